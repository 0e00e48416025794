//! The limit on the nodes of one session. No I/O.
//!
//! The end of a session is one transaction that names all its ephemeral nodes. Followers read transactions of at most 2 MiB
//! by default. On three servers of version 3.8.0, 2.5 MB of paths ended in elections without end, for all clients; 1.2 MB
//! did no harm. So a session carries much less, and the next session takes what goes beyond.
//!
//! Watches need no budget. The driver sends those of a session again after a reconnect, and breaks if their paths have more
//! than 128 KiB; but a driver of ours serves one connection only, and the waiters set their watches on the next one.

use std::collections::HashMap;

/// The most bytes of node paths in a session.
pub(crate) const MAX_PATH_BYTES: usize = 512 * 1024;

/// The same, with nodes whose delete was sent: the server executes it before it creates another node of this session,
/// unless the connection breaks.
const MAX_WITH_LEAVING: usize = 2 * MAX_PATH_BYTES;

/// The longest name of a node of ours, for permits, with the server's framing.
const NODE_NAME: usize = 84;

/// The bytes that a node in this directory costs its session.
pub(crate) fn path_bytes(directory: &str) -> usize {
    directory.len() + NODE_NAME
}

/// The nodes of a session: those that are at the server, and those that may be.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    kept: usize,
    leaving: usize,
    directories: HashMap<String, Nodes>,
    /// The session is about to end, and takes no more nodes.
    closed: bool,
}

/// The nodes in one directory.
#[derive(Debug, Default)]
struct Nodes {
    kept: usize,
    leaving: usize,
}

impl Budget {
    /// True if a node in this directory fits.
    pub(crate) fn has_room(&self, directory: &str) -> bool {
        let bytes = path_bytes(directory);
        // Another name must not take the room that a release makes for the next acquire, or that one would be sent in
        // another session and overtake the release.
        let follows_another = || self.directories.get(directory).is_some_and(|nodes| nodes.leaving > 0);
        let fits = self.kept + bytes <= MAX_PATH_BYTES || follows_another();
        fits && !self.closed && self.kept + self.leaving + bytes <= MAX_WITH_LEAVING
    }

    /// Counts a node, which must be [given back](Self::give_back). False if it does not fit.
    pub(crate) fn reserve(&mut self, directory: &str) -> bool {
        let fits = self.has_room(directory);
        if fits {
            self.kept += path_bytes(directory);
            match self.directories.get_mut(directory) {
                Some(nodes) => nodes.kept += 1,
                None => drop(
                    self.directories
                        .insert(directory.to_owned(), Nodes { kept: 1, leaving: 0 }),
                ),
            }
        }
        fits
    }

    /// The delete of a node that was counted was sent.
    pub(crate) fn leave(&mut self, directory: &str) {
        if let Some(nodes) = self.directories.get_mut(directory) {
            nodes.kept -= 1;
            nodes.leaving += 1;
            self.kept -= path_bytes(directory);
            self.leaving += path_bytes(directory);
        }
    }

    /// A node that was counted is gone.
    pub(crate) fn give_back(&mut self, directory: &str, was_leaving: bool) {
        let Some(nodes) = self.directories.get_mut(directory) else {
            return;
        };
        let (count, total) = match was_leaving {
            true => (&mut nodes.leaving, &mut self.leaving),
            false => (&mut nodes.kept, &mut self.kept),
        };
        *count -= 1;
        *total -= path_bytes(directory);
        if nodes.kept + nodes.leaving == 0 {
            self.directories.remove(directory);
        }
    }

    /// Closes it if there are no nodes. False if there are.
    pub(crate) fn close(&mut self) -> bool {
        self.closed |= self.directories.is_empty();
        self.closed
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// In how many directories there are nodes.
    pub(crate) fn directories(&self) -> usize {
        self.directories.len()
    }

    /// True if there are nodes in this directory.
    pub(crate) fn carries(&self, directory: &str) -> bool {
        self.directories.contains_key(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(budget: &mut Budget, directory: &str) -> usize {
        std::iter::repeat_with(|| budget.reserve(directory))
            .take_while(|fits| *fits)
            .count()
    }

    #[test]
    fn the_paths_of_a_session_have_half_a_mebibyte_at_most() {
        for directory in ["/a".to_owned(), format!("/{}", "%2F".repeat(512))] {
            let mut budget = Budget::default();
            let count = fill(&mut budget, &directory);
            // Nodes are named as Curator does: `_c_`, an id of 36 characters, `-lock-`, and a number of up to 11.
            let on_the_wire = count * (4 + directory.len() + 1 + 3 + 36 + 6 + 11);
            assert!(on_the_wire < MAX_PATH_BYTES, "{on_the_wire}");
            assert!(count * path_bytes(&directory) + path_bytes(&directory) > MAX_PATH_BYTES);
            assert!(!budget.has_room(&directory));
        }
    }

    #[test]
    fn a_node_that_leaves_makes_room_for_the_next() {
        let mut budget = Budget::default();
        let count = fill(&mut budget, "/a");
        budget.leave("/a");
        // Another name was faster.
        assert!(budget.reserve("/b") && !budget.has_room("/b"));
        assert!(budget.carries("/a") && budget.reserve("/a"));
        budget.give_back("/a", true);
        assert!(!budget.has_room("/a"));
        for _ in 0..count {
            budget.give_back("/a", false);
        }
        assert!(!budget.carries("/a"));
        budget.give_back("/b", false);
        assert_eq!((budget.kept, budget.leaving), (0, 0));
    }

    #[test]
    fn only_an_empty_session_is_closed() {
        let mut budget = Budget::default();
        assert!(budget.reserve("/a"));
        assert!(!budget.close() && !budget.is_closed());
        budget.give_back("/a", false);
        assert!(budget.close() && budget.is_closed());
        assert!(!budget.reserve("/a"));
    }

    #[test]
    fn nodes_that_may_be_there_are_bounded_too() {
        let mut budget = Budget::default();
        let mut count = 0;
        while budget.reserve("/a") {
            budget.leave("/a");
            count += 1;
        }
        assert_eq!(count, MAX_WITH_LEAVING / path_bytes("/a"));
    }
}
