//! The state that the backend and all its holds share.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::LockName;
use lock_core::backend::{AcquireRequest, HolderId};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};

use crate::clean_up::CleanUp;
use crate::members::Members;
use crate::node::Node;
use crate::protocol::Known;
use crate::rules;
use crate::votes::{Vote, Votes};

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) nodes: Arc<[Node]>,
    /// Where the nodes are, if that is known of all of them.
    addresses: Option<Vec<String>>,
    patience: Duration,
    /// The shortest TTL for which the nodes are near enough, as they were when they were connected.
    pub(crate) sensible_ttl: Mutex<Option<Duration>>,
    /// The knowledge of nodes and names that all requests share.
    known: Arc<Mutex<Known>>,
    requests: Mutex<Requests>,
    pub(crate) clean_up: CleanUp,
    /// The processes that use the same nodes.
    pub(crate) members: Arc<Members>,
}

/// The requests that may have something at a node, by the holder id of the quorum's request.
#[derive(Debug, Default)]
struct Requests {
    votes: HashMap<HolderId, Arc<Votes>>,
    /// The number of entries at which those that are over are removed.
    limit: usize,
}

/// An acquire that is under way, for as long as the value lives.
pub(crate) struct Acquiring {
    client: Arc<Client>,
    pub(crate) votes: Arc<Votes>,
}

impl Client {
    pub(crate) fn new(
        nodes: Vec<Node>,
        known: Arc<Mutex<Known>>,
        patience: Duration,
        restart_delay: Option<Duration>,
    ) -> Self {
        let nodes: Arc<[Node]> = nodes.into();
        let addresses: Option<Vec<String>> = nodes.iter().map(|node| node.backend.address()).collect();
        Self {
            members: Members::new(&nodes, addresses.as_deref(), restart_delay),
            addresses,
            nodes,
            patience,
            sensible_ttl: Mutex::default(),
            known,
            requests: Mutex::default(),
            clean_up: CleanUp::default(),
        }
    }

    /// The number of nodes that must agree.
    pub(crate) fn needed(&self) -> usize {
        rules::majority(self.nodes.len())
    }

    /// For how long a node may be silent before others go on without it.
    pub(crate) fn patience(&self, ttl: Duration) -> Duration {
        rules::patience(self.patience, ttl)
    }

    /// The same before the TTL bounds it.
    pub(crate) fn configured_patience(&self) -> Duration {
        self.patience
    }

    /// The knowledge of nodes and names that all requests share.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// In which order a request for this name asks the nodes.
    pub(crate) fn order(&self, name: &LockName) -> Vec<usize> {
        match &self.addresses {
            Some(addresses) => rules::order_by_address(name.as_str(), addresses),
            None => rules::order(name.as_str(), self.nodes.len()).collect(),
        }
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

    /// Whether a lock is held or being acquired. Votes that are only undone do not count: none of them becomes a hold.
    pub(crate) fn is_used(&self) -> bool {
        self.requests.lock().votes.values().any(|votes| votes.are_used())
    }

    /// Forgets the request if nothing of it is left at any node.
    pub(crate) fn tidy(&self, votes: &Arc<Votes>) {
        let mut requests = self.requests.lock();
        if votes.is_over() {
            requests.votes.remove(&votes.request.holder());
        }
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
