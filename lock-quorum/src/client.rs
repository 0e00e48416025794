//! The state that the backend and all its holds share.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::LockName;
use lock_core::backend::{AcquireRequest, HolderId};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::clean_up::CleanUp;
use crate::members::Members;
use crate::node::Node;
use crate::rules;
use crate::votes::{Vote, Votes};

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) nodes: Vec<Node>,
    /// Where the nodes are, if that is known of all of them.
    addresses: Option<Vec<String>>,
    patience: Duration,
    /// The shortest TTL for which the nodes are near enough, as they were when they were connected.
    pub(crate) sensible_ttl: Mutex<Option<Duration>>,
    /// Until when a name counts as taken.
    taken: Mutex<HashMap<LockName, Instant>>,
    /// Until when a node does not decide who gets a name, by node: its vote is of a holder without a majority, or a majority has
    /// voted for somebody without it.
    passed_by: Mutex<HashMap<LockName, Vec<Option<Instant>>>>,
    requests: Mutex<Requests>,
    pub(crate) clean_up: CleanUp,
    /// The processes that use the same nodes.
    pub(crate) members: Arc<Members>,
}

/// The requests that may have something at a node, by the holder id of the quorum's request.
#[derive(Debug, Default)]
struct Requests {
    votes: HashMap<HolderId, Arc<Votes>>,
    /// How many there may be before those that are over are removed.
    limit: usize,
}

/// An acquire that is under way, for as long as the value lives.
pub(crate) struct Acquiring {
    client: Arc<Client>,
    pub(crate) votes: Arc<Votes>,
}

impl Client {
    pub(crate) fn new(nodes: Vec<Node>, patience: Duration, restart_delay: Option<Duration>) -> Self {
        let addresses: Option<Vec<String>> = nodes.iter().map(|node| node.backend.address()).collect();
        Self {
            members: Members::new(&nodes, addresses.as_deref(), restart_delay),
            addresses,
            nodes,
            patience,
            sensible_ttl: Mutex::default(),
            taken: Mutex::default(),
            passed_by: Mutex::default(),
            requests: Mutex::default(),
            clean_up: CleanUp::default(),
        }
    }

    /// How many nodes must agree.
    pub(crate) fn needed(&self) -> usize {
        rules::majority(self.nodes.len())
    }

    /// For how long a node may be silent before others go on without it.
    pub(crate) fn patience(&self, ttl: Duration) -> Duration {
        rules::patience(self.patience, ttl)
    }

    pub(crate) fn order(&self, name: &LockName) -> impl Iterator<Item = usize> + Clone + use<> {
        let order: Vec<usize> = match &self.addresses {
            Some(addresses) => rules::order_by_address(name.as_str(), addresses),
            None => rules::order(name.as_str(), self.nodes.len()).collect(),
        };
        order.into_iter()
    }

    /// Awaits the answer of a vote's node. Suspects the node if there is none within the patience since it was asked.
    pub(crate) async fn watch<T>(&self, vote: &Vote, asked: Instant, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        let ttl = vote.request.ttl();
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = sleep_until(asked + self.patience(ttl)) => {}
        }
        // It may wait in the node's queue.
        if vote.request.last_busy().is_none() {
            self.nodes[vote.node].suspect(rules::suspicion(ttl));
        }
        answer.await
    }

    /// A vote's node has answered the acquire of then.
    pub(crate) fn has_answered(&self, vote: &Vote, asked: Instant) {
        let node = &self.nodes[vote.node];
        node.has_answered();
        // Otherwise it has waited in the node's queue.
        if vote.request.last_busy().is_none() {
            node.answered_after(asked.elapsed());
        }
    }

    /// An acquire of this request begins. Its votes are known until it ends at least.
    pub(crate) fn begin_acquire(self: &Arc<Self>, request: &AcquireRequest) -> Acquiring {
        let mut requests = self.requests.lock();
        if requests.votes.len() >= requests.limit {
            requests.votes.retain(|_, votes| !votes.is_over());
            requests.limit = 2 * requests.votes.len() + 64;
        }
        let begin = || Arc::new(Votes::new(request, self.nodes.len()));
        let votes = requests.votes.entry(request.holder()).or_insert_with(begin).clone();
        votes.begin_acquire();
        Acquiring {
            client: self.clone(),
            votes,
        }
    }

    /// The votes of this request, if there may be any.
    pub(crate) fn known_votes_of(&self, request: &AcquireRequest) -> Option<Arc<Votes>> {
        self.requests.lock().votes.get(&request.holder()).cloned()
    }

    /// Forgets the request if nothing of it is left at any node.
    pub(crate) fn tidy(&self, votes: &Arc<Votes>) {
        let mut requests = self.requests.lock();
        if votes.is_over() {
            requests.votes.remove(&votes.request.holder());
        }
    }

    /// Whether the name was found taken a short time ago. Asked once.
    pub(crate) fn take_known_taken(&self, name: &LockName) -> bool {
        let until = self.taken.lock().remove(name);
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn note_taken(&self, name: &LockName) {
        let now = Instant::now();
        let mut taken = self.taken.lock();
        if taken.len() >= 1024 {
            taken.retain(|_, until| now < *until);
        }
        taken.insert(name.clone(), now + rules::KNOWN_TAKEN);
    }

    /// The node does not decide who gets this name, for a while.
    pub(crate) fn pass_by(&self, name: &LockName, node: usize) {
        let now = Instant::now();
        let mut passed_by = self.passed_by.lock();
        passed_by.retain(|_, nodes| nodes.iter().flatten().any(|until| now < *until));
        let nodes = passed_by
            .entry(name.clone())
            .or_insert_with(|| vec![None; self.nodes.len()]);
        nodes[node] = Some(now + rules::KNOWN_TAKEN);
    }

    pub(crate) fn is_passed_by(&self, name: &LockName, node: usize) -> bool {
        let passed_by = self.passed_by.lock();
        let until = passed_by.get(name).and_then(|nodes| nodes[node]);
        until.is_some_and(|until| Instant::now() < until)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.members.end();
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.votes.end_acquire();
        self.client.tidy(&self.votes);
    }
}
