//! The state that the backend and all its holds share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::LockName;
use lock_core::backend::{AcquireRequest, HolderId};
use tokio::time::Instant;

use crate::clean_up::CleanUp;
use crate::node::{Node, lock};
use crate::rules;
use crate::votes::Votes;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) nodes: Vec<Node>,
    patience: Duration,
    /// The shortest TTL for which the nodes are near enough, as they were when they were connected.
    pub(crate) sensible_ttl: Mutex<Option<Duration>>,
    /// Until when a name counts as taken.
    taken: Mutex<HashMap<LockName, Instant>>,
    requests: Mutex<Requests>,
    pub(crate) clean_up: CleanUp,
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
    pub(crate) fn new(nodes: Vec<Node>, patience: Duration) -> Self {
        Self {
            nodes,
            patience,
            sensible_ttl: Mutex::default(),
            taken: Mutex::default(),
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
        rules::order(name.as_str(), self.nodes.len())
    }

    /// An acquire of this request begins. Its votes are known until it ends at least.
    pub(crate) fn begin_acquire(self: &Arc<Self>, request: &AcquireRequest) -> Acquiring {
        let mut requests = lock(&self.requests);
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
        lock(&self.requests).votes.get(&request.holder()).cloned()
    }

    /// Forgets the request if nothing of it is left at any node.
    pub(crate) fn tidy(&self, votes: &Arc<Votes>) {
        let mut requests = lock(&self.requests);
        if votes.is_over() {
            requests.votes.remove(&votes.request.holder());
        }
    }

    /// Whether the name was found taken a short time ago. Asked once.
    pub(crate) fn take_known_taken(&self, name: &LockName) -> bool {
        let until = lock(&self.taken).remove(name);
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn note_taken(&self, name: &LockName) {
        let now = Instant::now();
        let mut taken = lock(&self.taken);
        if taken.len() >= 1024 {
            taken.retain(|_, until| now < *until);
        }
        taken.insert(name.clone(), now + rules::KNOWN_TAKEN);
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.votes.end_acquire();
        self.client.tidy(&self.votes);
    }
}
