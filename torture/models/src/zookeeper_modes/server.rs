//! The lock's directory at the server.

use lock_core::backend::{Mode, rules};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Server {
    zxid: u64,
    /// The last change of the children.
    pzxid: u64,
    /// In the order of their creation.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) owner: usize,
    pub(super) czxid: u64,
    /// As its name says.
    pub(super) mode: Mode,
    is_downgraded: bool,
    has_entered: bool,
}

/// The content of a list of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Listing {
    pub(super) pzxid: u64,
    pub(super) nodes: Vec<(usize, u64, Mode)>,
}

impl Server {
    pub(super) fn listing(&self) -> Listing {
        Listing {
            pzxid: self.pzxid,
            nodes: self
                .nodes
                .iter()
                .map(|node| (node.owner, node.czxid, node.mode))
                .collect(),
        }
    }

    pub(super) fn create(&mut self, owner: usize, mode: Mode) {
        let czxid = self.write();
        self.pzxid = czxid;
        self.nodes.push(Node {
            owner,
            czxid,
            mode,
            is_downgraded: false,
            has_entered: false,
        });
    }

    /// Ends the owner's first node.
    pub(super) fn end(&mut self, owner: usize) -> Option<u64> {
        let at = self.nodes.iter().position(|node| node.owner == owner)?;
        self.pzxid = self.write();
        Some(self.nodes.remove(at).czxid)
    }

    pub(super) fn downgrade(&mut self, owner: usize) -> Option<u64> {
        let at = self.nodes.iter().position(|node| node.owner == owner)?;
        self.write();
        self.nodes[at].is_downgraded = true;
        Some(self.nodes[at].czxid)
    }

    /// Its creation, and the write.
    pub(super) fn enter(&mut self, owner: usize) -> Option<(u64, u64)> {
        let at = self.nodes.iter().position(|node| node.owner == owner)?;
        self.nodes[at].has_entered = true;
        Some((self.nodes[at].czxid, self.write()))
    }

    fn write(&mut self) -> u64 {
        self.zxid += 1;
        self.zxid
    }

    pub(super) fn node_of(&self, owner: usize) -> Option<&Node> {
        self.nodes.iter().find(|node| node.owner == owner)
    }

    pub(super) fn has(&self, czxid: u64) -> bool {
        self.nodes.iter().any(|node| node.czxid == czxid)
    }

    pub(super) fn is_downgraded(&self, czxid: u64) -> bool {
        self.nodes.iter().any(|node| node.czxid == czxid && node.is_downgraded)
    }

    pub(super) fn has_entered(&self, czxid: u64) -> bool {
        self.nodes.iter().any(|node| node.czxid == czxid && node.has_entered)
    }

    /// Whether the owner's node is among those in front that fit together.
    pub(super) fn admits(&self, owner: usize) -> bool {
        let mode = |node: &Node| if node.is_downgraded { Mode::Shared } else { node.mode };
        let Some(at) = self.nodes.iter().position(|node| node.owner == owner) else {
            return false;
        };
        rules::admits([], self.nodes[..at].iter().map(mode), mode(&self.nodes[at]))
    }
}
