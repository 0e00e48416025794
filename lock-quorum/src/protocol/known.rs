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
