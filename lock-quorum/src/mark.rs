//! The statement of a process about its quorum, in the label of a mark, and the check of whether two statements are
//! compatible.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use lock_core::{Error, ErrorKind};

use crate::rules;

/// The part of a process's configuration that other processes of the quorum have to know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    nodes: usize,
    /// Zero without one.
    restart_delay: Duration,
    /// A hash of each node's address, sorted. Empty if they are not known, or too many for a label.
    addresses: Vec<u32>,
}

/// So many hashes fit into a label.
const MOST_ADDRESSES: usize = 20;
const PREFIX: &str = "quorum of ";

impl Mark {
    pub(crate) fn new(nodes: usize, restart_delay: Option<Duration>, addresses: &[u32]) -> Self {
        let mut addresses = match addresses.len() <= MOST_ADDRESSES {
            true => addresses.to_vec(),
            false => Vec::new(),
        };
        addresses.sort_unstable();
        Self {
            nodes,
            restart_delay: restart_delay.unwrap_or_default(),
            addresses,
        }
    }

    pub(crate) fn parse(label: &str) -> Option<Self> {
        let (nodes, rest) = label.strip_prefix(PREFIX)?.split_once(" nodes, delay ")?;
        let (delay, list) = rest.split_once(" ms, list ")?;
        let addresses = list.split(',').filter(|hash| !hash.is_empty());
        let addresses: Option<Vec<u32>> = addresses.map(|hash| u32::from_str_radix(hash, 16).ok()).collect();
        // With more nodes than that, sums of two quorums would overflow.
        let nodes: u16 = nodes.parse().ok()?;
        let delay = Duration::from_millis(delay.parse().ok()?);
        Some(Self::new(nodes.into(), Some(delay), &addresses?))
    }

    /// Whether this process may continue beside one with the `other` mark. The mark was seen at the nodes `seen_at`,
    /// and the nodes `answered` have answered. If the other process has a shorter restart delay, the result is limited
    /// to a TTL. One with a longer delay must have limited itself: this process's marks at the nodes `known_at` were there first.
    pub(crate) fn beside(
        &self,
        other: &Self,
        own_addresses: &[u32],
        seen_at: &BTreeSet<usize>,
        answered: &BTreeSet<usize>,
        known_at: &BTreeSet<usize>,
    ) -> Result<Option<Duration>, Error> {
        let shared = self.shared_with(other, own_addresses, seen_at, answered);
        if !rules::majorities_meet(self.nodes, other.nodes, shared) {
            let message = format!(
                "another process has a list of {} nodes, {shared} of which are among the {} nodes of this one, so that both could be \
                 granted the same lock: add or remove one node at a time, in all processes, or stop the processes with the other \
                 list first",
                other.nodes, self.nodes
            );
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        // It can be granted nothing without one of these nodes. If fewer than a majority answered, the next look decides.
        let needed = rules::majority(self.nodes).min(answered.len()).max(1);
        let sees_this = seen_at.intersection(known_at).count() >= needed;
        match (self.restart_delay, other.restart_delay) {
            (own, theirs) if own == theirs => Ok(None),
            (own, theirs) if own < theirs && !own.is_zero() && sees_this => Ok(None),
            (own, theirs) if own > theirs && !theirs.is_zero() => Ok(Some(theirs)),
            (own, theirs) => {
                let said = |delay: Duration| match delay.is_zero() {
                    true => "no restart_delay".to_owned(),
                    false => format!("a restart_delay of {delay:?}"),
                };
                let message = format!(
                    "another process uses these nodes with {}, and this one with {}, so that a node that forgot a lock could \
                     grant it too early: use the same delay in all processes, or stop the other processes first",
                    said(theirs),
                    said(own)
                );
                Err(Error::new(ErrorKind::Misconfigured, message))
            }
        }
    }

    pub(crate) fn has_longer_delay_than(&self, other: &Self) -> bool {
        self.restart_delay > other.restart_delay
    }

    /// Whether a process with this mark has no majority without one of this many of its nodes.
    pub(crate) fn needs_one_of(&self, nodes: usize) -> bool {
        self.nodes.saturating_sub(nodes) < rules::majority(self.nodes)
    }

    /// The number of nodes that are in both lists. A node whose mark was seen is in both, and so is one that both call
    /// by the same address. A node that does not answer may be in both under another name, so it counts as long as it
    /// does not answer. If the two lists call no node by the same address where the mark was seen, the largest possible
    /// number is assumed.
    fn shared_with(
        &self,
        other: &Self,
        own_addresses: &[u32],
        seen_at: &BTreeSet<usize>,
        answered: &BTreeSet<usize>,
    ) -> usize {
        let is_listed = |node: usize| other.addresses.binary_search(&own_addresses[node]).is_ok();
        if own_addresses.len() != self.nodes || !seen_at.iter().any(|node| is_listed(*node)) {
            return self.nodes.min(other.nodes);
        }
        (0..self.nodes)
            .filter(|node| seen_at.contains(node) || is_listed(*node) || !answered.contains(node))
            .count()
            .min(other.nodes)
    }
}

/// The label, which everybody sees who looks at the mark.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delay = self.restart_delay.as_millis();
        write!(f, "{PREFIX}{} nodes, delay {delay} ms, list ", self.nodes)?;
        for (index, hash) in self.addresses.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{hash:08x}")?;
        }
        Ok(())
    }
}

/// A node's address in a mark.
pub(crate) fn hash(address: &str) -> u32 {
    let hash = rules::fnv_1a(address.bytes());
    // The upper and the lower half.
    (hash >> 32) as u32 ^ hash as u32
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

    /// Whether a process with the first list may start beside one with the second list, if the second one's marks are
    /// at these nodes.
    fn beside(own: &[u32], other: &[u32], seen_at: &[usize]) -> bool {
        let [mine, theirs] = [own, other].map(|list| Mark::new(list.len(), MINUTE, list));
        let answered = (0..own.len()).collect();
        let seen_at = seen_at.iter().copied().collect();
        mine.beside(&theirs, own, &seen_at, &answered, &BTreeSet::new()).is_ok()
    }

    #[test]
    fn a_mark_survives_its_label() {
        for addresses in [vec![], vec![7], (1..=20).map(|node| u32::MAX - node).collect()] {
            for delay in [None, MINUTE] {
                let mark = Mark::new(addresses.len(), delay, &addresses);
                let label = mark.to_string();
                assert!(label.len() <= 255, "{label}");
                assert_eq!(Mark::parse(&label), Some(mark), "{label}");
            }
        }
        for label in [
            "",
            "quorum of",
            "quorum of 3 nodes, delay x ms, list ",
            "quorum of 3 nodes, delay 1 ms, list zz",
        ] {
            assert_eq!(Mark::parse(label), None, "{label}");
        }
    }

    /// Processes of all versions read it.
    #[test]
    fn the_label_of_a_mark_stays_the_same() {
        let mark = Mark::new(2, MINUTE, &[u32::MAX, 10]);
        let label = "quorum of 2 nodes, delay 60000 ms, list 0000000a,ffffffff";
        assert_eq!(mark.to_string(), label);
    }

    /// Processes of all versions compare them.
    #[test]
    fn the_hash_of_an_address_stays_the_same() {
        assert_eq!(
            ["", "a", "redis a:6379/0/"].map(hash),
            [0x4fd0_bfc1, 0x2962_30c0, 0xff32_c849]
        );
    }

    #[test]
    fn a_mark_has_at_most_twenty_addresses() {
        let addresses: Vec<u32> = (0..21).collect();
        assert_eq!(Mark::new(20, None, &addresses[..20]).addresses, addresses[..20]);
        assert!(Mark::new(21, None, &addresses).addresses.is_empty());
    }

    #[test]
    fn lists_that_differ_by_one_node_go_together() {
        assert!(beside(&[1, 2, 3], &[3, 2, 1], &[0]));
        assert!(beside(&[1, 2, 3, 4], &[1, 2, 3], &[0, 1, 2]));
        assert!(beside(&[1, 2, 3], &[1, 2, 3, 4], &[0]));
        assert!(!beside(&[1, 2, 3, 4, 5], &[1, 2, 3], &[0, 1, 2]), "two nodes more");
        assert!(!beside(&[1, 2, 4], &[1, 2, 3], &[0, 1]), "a node replaced");
        assert!(!beside(&[3, 4, 5], &[1, 2, 3], &[0]), "one node in both");
    }

    /// Nodes that could not be asked count by their addresses, and nodes that were seen count whatever they are called.
    #[test]
    fn a_node_that_is_down_is_in_both_lists() {
        assert!(beside(&[1, 2, 3, 4], &[1, 2, 3], &[0]));
        assert!(beside(&[1, 2, 30, 4], &[1, 2, 3], &[0, 2]));
        assert!(
            beside(&[10, 20, 30], &[1, 2, 3], &[0, 1]),
            "the same nodes by other names"
        );
        assert!(
            !beside(&[10, 20, 30, 40, 50], &[1, 2, 3], &[0, 1]),
            "whatever their names are"
        );
    }

    /// Three hosts that each call their own node `localhost`: one of the nodes is down.
    #[test]
    fn a_node_that_is_down_and_has_another_name_is_no_reason_to_refuse() {
        let (own, other) = ([10, 2, 3], [1, 2, 3]);
        let [mine, theirs] = [own, other].map(|list| Mark::new(3, MINUTE, &list));
        let beside = |answered: &[usize]| {
            let answered = answered.iter().copied().collect();
            let seen_at = BTreeSet::from([1, 2]);
            mine.beside(&theirs, &own, &seen_at, &answered, &BTreeSet::new())
                .is_ok()
        };
        assert!(beside(&[1, 2]));
        assert!(!beside(&[0, 1, 2]), "a node replaced: it answers, and has no mark");
    }

    #[test]
    fn a_process_needs_one_of_so_many_nodes_that_the_others_are_no_majority() {
        let needs_one_of = |list: usize| {
            let mark = Mark::new(list, None, &[]);
            (0..=list).find(|nodes| mark.needs_one_of(*nodes))
        };
        assert_eq!([1, 2, 3, 4, 5].map(needs_one_of), [1, 1, 2, 2, 3].map(Some));
    }

    #[test]
    fn a_longer_delay_limits_the_ttl_and_a_shorter_one_is_refused() {
        let list = [1, 2, 3];
        let [none, minute, hour] =
            [None, MINUTE, MINUTE.map(|minute| minute * 60)].map(|delay| Mark::new(3, delay, &list));
        let everywhere = (0..3).collect();
        let beside = |own: &Mark, other: &Mark| own.beside(other, &list, &everywhere, &everywhere, &BTreeSet::new());
        assert_eq!(beside(&minute, &minute).unwrap(), None);
        assert_eq!(beside(&hour, &minute).unwrap(), MINUTE);
        for (own, other) in [(&minute, &hour), (&none, &minute), (&minute, &none)] {
            let error = beside(own, other).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        }
    }

    /// The other one saw it at a majority of the nodes.
    #[test]
    fn a_shorter_delay_that_was_there_first_is_not_refused() {
        let list = [1, 2, 3];
        let [none, minute, hour] =
            [None, MINUTE, MINUTE.map(|minute| minute * 60)].map(|delay| Mark::new(3, delay, &list));
        let beside_among = |own: &Mark, other: &Mark, seen_at: &[usize], known_at: &[usize], answered: &[usize]| {
            let [seen_at, known_at, answered] =
                [seen_at, known_at, answered].map(|nodes| nodes.iter().copied().collect());
            own.beside(other, &list, &seen_at, &answered, &known_at).is_ok()
        };
        let beside = |own: &Mark, other: &Mark, seen_at: &[usize], known_at: &[usize]| {
            beside_among(own, other, seen_at, known_at, &[0, 1, 2])
        };
        assert!(beside(&minute, &hour, &[0, 1, 2], &[0, 2]));
        assert!(!beside(&minute, &hour, &[0, 1, 2], &[0]));
        assert!(!beside(&minute, &hour, &[0, 1], &[0, 2]), "its mark is not there");
        assert!(!beside(&none, &hour, &[0, 1, 2], &[0, 1, 2]), "no delay at all");
        assert!(!beside(&minute, &none, &[0, 1, 2], &[0, 1, 2]));
        assert!(
            beside_among(&minute, &hour, &[0], &[0], &[0]),
            "the others did not answer"
        );
        assert!(!beside_among(&minute, &hour, &[0], &[], &[0]));
        assert!(
            !beside_among(&minute, &hour, &[0], &[0], &[0, 1]),
            "it may have come to node 0 alone"
        );
        assert!(!beside_among(&minute, &hour, &[0], &[], &[]));
    }
}
