//! The knowledge that a process has of its nodes and of names.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use lock_core::LockName;

use crate::rules;

/// The knowledge that a process has of its nodes and of names, from all its requests.
#[derive(Debug)]
pub struct Known {
    nodes: Vec<Node>,
    /// Until when a name counts as taken.
    taken: HashMap<LockName, Instant>,
    /// Until when a node does not decide who gets a name, by node: its vote is of a holder without a majority, or a majority has
    /// voted for somebody without it.
    passed_by: HashMap<LockName, Vec<Option<Instant>>>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    suspected_until: Option<Instant>,
    /// The round trip of its last answer.
    round_trip: Option<Duration>,
}

impl Known {
    /// Nothing is known of so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes: vec![Node::default(); nodes],
            taken: HashMap::new(),
            passed_by: HashMap::new(),
        }
    }

    /// Whether the node was silent, or could not be asked, a short time ago.
    pub fn is_suspected(&self, node: usize, now: Instant) -> bool {
        self.nodes[node].suspected_until.is_some_and(|until| now < until)
    }

    /// Suspects the node for this time, unless it is suspected for longer.
    pub fn suspect(&mut self, node: usize, now: Instant, time: Duration) {
        let suspected = &mut self.nodes[node].suspected_until;
        *suspected = now.checked_add(time).max(*suspected);
    }

    /// The node has answered.
    pub fn has_answered(&mut self, node: usize) {
        self.nodes[node].suspected_until = None;
    }

    /// The node has answered a request, which did not wait in its queue, after so long.
    pub fn answered_after(&mut self, node: usize, time: Duration) {
        self.nodes[node].round_trip = Some(time);
    }

    /// The round trip of the node's last answer. `None` before the first.
    pub fn round_trip(&self, node: usize) -> Option<Duration> {
        self.nodes[node].round_trip
    }

    /// Whether the name was found taken a short time ago. The entry is removed.
    pub fn take_known_taken(&mut self, name: &LockName, now: Instant) -> bool {
        self.taken.remove(name).is_some_and(|until| now < until)
    }

    /// The name was found taken.
    pub fn note_taken(&mut self, name: &LockName, now: Instant) {
        if self.taken.len() >= 1024 && !self.taken.contains_key(name) {
            self.taken.retain(|_, until| now < *until);
        }
        self.taken.insert(name.clone(), now + rules::KNOWN_TAKEN);
    }

    /// The node does not decide who gets this name, for a while.
    pub fn pass_by(&mut self, name: &LockName, node: usize, now: Instant) {
        self.passed_by
            .retain(|_, nodes| nodes.iter().flatten().any(|until| now < *until));
        let count = self.nodes.len();
        let nodes = self.passed_by.entry(name.clone()).or_insert_with(|| vec![None; count]);
        nodes[node] = Some(now + rules::KNOWN_TAKEN);
    }

    /// Whether the node is not needed to decide who gets this name.
    pub fn is_passed_by(&self, name: &LockName, node: usize, now: Instant) -> bool {
        let until = self.passed_by.get(name).and_then(|nodes| nodes[node]);
        until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    #[test]
    fn a_node_is_suspected_until_it_answers_or_the_longest_time_is_over() {
        let (mut known, now) = (Known::new(2), Instant::now());
        assert!(!known.is_suspected(1, now));
        known.suspect(1, now, 2 * SECOND);
        known.suspect(1, now, SECOND);
        assert!(!known.is_suspected(0, now));
        assert!(known.is_suspected(1, now + SECOND) && !known.is_suspected(1, now + 2 * SECOND));
        known.has_answered(1);
        assert!(!known.is_suspected(1, now));
    }

    #[test]
    fn the_round_trip_is_that_of_the_node_s_last_answer() {
        let mut known = Known::new(2);
        known.answered_after(1, 2 * SECOND);
        known.answered_after(1, SECOND);
        assert_eq!([0, 1].map(|node| known.round_trip(node)), [None, Some(SECOND)]);
    }

    #[test]
    fn a_name_is_known_taken_once_and_for_a_while() {
        let (mut known, now, name) = (Known::new(1), Instant::now(), name("a"));
        assert!(!known.take_known_taken(&name, now));
        known.note_taken(&name, now);
        assert!(known.take_known_taken(&name, now + rules::KNOWN_TAKEN - SECOND));
        assert!(!known.take_known_taken(&name, now), "the entry was removed");
        known.note_taken(&name, now);
        assert!(!known.take_known_taken(&name, now + rules::KNOWN_TAKEN));
    }

    /// A sweep at each note would make a thousand names cost a million steps.
    #[test]
    fn old_names_are_dropped_when_a_new_one_finds_a_thousand() {
        let (mut known, now) = (Known::new(1), Instant::now());
        for number in 0..1023 {
            known.note_taken(&name(&number.to_string()), now);
        }
        known.note_taken(&name("younger"), now + SECOND);
        let later = now + rules::KNOWN_TAKEN;
        known.note_taken(&name("younger"), later);
        assert_eq!(known.taken.len(), 1024, "it has its place");
        known.take_known_taken(&name("0"), later);
        known.note_taken(&name("new"), later);
        assert_eq!(known.taken.len(), 1024, "there was room");
        known.note_taken(&name("newer"), later);
        assert_eq!(known.taken.len(), 3);
    }

    #[test]
    fn a_node_is_passed_by_for_one_name_and_for_a_while() {
        let (mut known, now, passed) = (Known::new(2), Instant::now(), name("a"));
        known.pass_by(&passed, 1, now);
        let until = now + rules::KNOWN_TAKEN;
        assert!(known.is_passed_by(&passed, 1, until - SECOND) && !known.is_passed_by(&passed, 1, until));
        assert!(!known.is_passed_by(&passed, 0, now) && !known.is_passed_by(&name("b"), 1, now));
        known.pass_by(&name("b"), 0, until - SECOND);
        known.pass_by(&name("c"), 0, until);
        let names: Vec<bool> = ["a", "b", "c"]
            .map(|passed| known.passed_by.contains_key(&name(passed)))
            .into();
        assert_eq!(names, [false, true, true], "an entry whose time is over is dropped");
    }
}
