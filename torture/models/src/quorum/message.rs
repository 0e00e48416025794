//! The messages between clients and nodes.

use std::fmt;
use std::time::Duration;

use lock_core::FencingToken;

/// The holder id of one vote. A request for another vote, also of the same client at the same node, has another one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(pub(super) u64);

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    Acquire(Acquire),
    Renew(Id),
    /// The vote's token becomes this one, if it was smaller.
    Raise(Id, FencingToken),
    /// Releases or abandons.
    End(Id),
    /// Asks who holds the name.
    Status(Id),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Acquire {
    pub(super) id: Id,
    /// Whom the node names while the vote lasts.
    pub(super) holder: u64,
    /// The time for which the vote lasts without renewal.
    pub(super) ttl: Duration,
    /// Whether the request waits in the node's queue.
    pub(super) waits: bool,
    /// The token is this one, or what the node counts if that is larger; else what the node counts, and its clock.
    pub(super) adopts: Option<FencingToken>,
    /// It restores a vote that was live when the node forgot it.
    pub(super) reinstates: bool,
    /// It ends whatever hold there is. Only a mutant asks so.
    pub(super) by_force: bool,
}

/// An answer of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Granted(FencingToken),
    /// Somebody else's, for this long at most, and whose.
    Busy(Duration, u64),
    /// Who holds the name.
    HeldBy(Option<u64>),
    /// The id was ended before.
    Ended,
    /// The node may have forgotten votes, and gives no fresh ones yet.
    MayHaveForgotten,
    /// Renewed, raised or ended.
    Done,
    NotYours,
    /// Not an answer: the name is offered to a request that waits.
    Offered,
}

/// An answer as it arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mail {
    pub(super) node: usize,
    pub(super) answer: Answer,
    pub(super) request: Sent,
}

/// A request, as its sender remembers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) client: usize,
    pub(super) node: usize,
    pub(super) request: Request,
    /// By the client's clock.
    pub(super) at: Duration,
    /// Counts the requests of all.
    pub(super) number: u64,
}

impl Request {
    pub(super) fn id(&self) -> Id {
        match self {
            Self::Acquire(acquire) => acquire.id,
            Self::Renew(id) | Self::Raise(id, _) | Self::End(id) | Self::Status(id) => *id,
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}
