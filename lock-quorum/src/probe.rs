//! The start: connects to the nodes, and checks that they are different servers. And the end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, HolderId};
use lock_core::{Error, ErrorKind, LockName, Result};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::clean_up;
use crate::client::Client;
use crate::error::NodeErrors;
use crate::members;
use crate::rules;
use crate::votes::{Call, Vote, Votes};

/// The time to wait for the other nodes when a majority is connected.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time limit for a node that was reached a moment ago, if a majority has answered.
const REST: Duration = Duration::from_secs(2);

/// Connects to a majority at least. A setting that cannot work is an error wherever it is, since it does not pass.
pub(crate) async fn connect(client: &Arc<Client>) -> Result<()> {
    let nodes = client.nodes.len();
    let mut errors = NodeErrors::default();
    let mut connected = Vec::new();
    let mut is_refused = false;
    let connecting = client.nodes.iter().enumerate();
    let mut connecting: FuturesUnordered<_> = connecting
        .map(|(node, own)| async move { (node, own.backend.connect().await) })
        .collect();
    let mut patience = pin!(sleep(PATIENCE));
    loop {
        let answer = tokio::select! {
            biased;
            answer = connecting.next() => answer,
            // The others may be down for long.
            () = &mut patience, if connected.len() >= client.needed() => break,
        };
        let Some((node, answer)) = answer else { break };
        match answer {
            Ok(()) => connected.push(node),
            Err(error) => {
                is_refused |= !error.is_retryable();
                errors.add(node, client.nodes[node].kind(), error);
            }
        }
    }
    if is_refused || connected.len() < client.needed() {
        let message = format!("{} of {nodes} nodes cannot be used", errors.iter().count());
        let error = errors.into_error(message);
        return Err(if is_refused { error.retryable(false) } else { error });
    }
    connected.sort_unstable();
    check_different(client, &connected).await?;
    members::join(&client.members, &connected).await
}

/// Which two nodes are the same server, if any are found to be: the names of both.
type Same = Option<(String, String)>;

/// Asks all nodes at the same time. A node that does not answer while a majority does is left out: the next process that starts
/// compares it.
async fn check_different(client: &Arc<Client>, connected: &[usize]) -> Result<()> {
    let (by_name, by_id) = tokio::join!(share_a_name(client, connected), same_server(client, connected));
    match by_name?.or(by_id) {
        None => Ok(()),
        Some((earlier, later)) => {
            let message = format!(
                "nodes {earlier} and {later} are the same server, which has one vote: name each server once, with one database and prefix"
            );
            Err(Error::new(ErrorKind::Misconfigured, message))
        }
    }
}

/// Takes the same random name at each node. It is taken already only if another node is the same server.
async fn share_a_name(client: &Arc<Client>, connected: &[usize]) -> Result<Same> {
    /// Longer than the probe, and short for what a process leaves behind that dies meanwhile.
    const TTL: Duration = Duration::from_secs(10);
    let name = LockName::new(format!("quorum-probe-{}", HolderId::random()))?;
    let start = |node: usize| {
        let terms = Terms::new(TTL).label(format!("{LABEL}{}", node + 1));
        RequestOptions::new(name.clone(), terms).waits(false).start()
    };
    let first: (AcquireRequest, RequestControl) = start(0);
    let votes = Arc::new(Votes::new(&first.0, client.nodes.len()));
    let mut probes = Vec::new();
    for node in connected {
        let vote = Arc::new(Vote::new(*node, start(*node), false));
        votes.record(&vote);
        probes.push(Probe::new(client, &votes, vote));
    }
    let asked = Instant::now();
    let mut times = Vec::new();
    let mut same = None;
    let mut answers: FuturesUnordered<_> = probes.iter_mut().map(Probe::ask).collect();
    while same.is_none() {
        let limit = match times.len() >= client.needed() {
            true => REST,
            false => TTL,
        };
        let Ok(Some((node, answer))) = timeout_at(asked + limit, answers.next()).await else {
            break;
        };
        times.push(asked.elapsed());
        if let Ok(Attempt::Busy(busy)) = answer {
            let other = busy.holder.as_deref().and_then(|label| label.strip_prefix(LABEL));
            same = Some(in_order(other, node));
        }
    }
    drop(answers);
    drop(probes);
    // Those that have not answered take so long at least.
    times.resize(connected.len(), asked.elapsed());
    *client.sensible_ttl.lock() = rules::sensible_ttl(times, client.nodes.len());
    Ok(same)
}

/// The number of the node that has the name, if that is known, and of one that found it taken, counted from 0.
fn in_order(other: Option<&str>, node: usize) -> (String, String) {
    let node = node + 1;
    match other.and_then(|other| other.parse::<usize>().ok()) {
        Some(other) => (other.min(node).to_string(), other.max(node).to_string()),
        None => ("an earlier one".to_owned(), node.to_string()),
    }
}

/// The first two nodes that say that they are the same server. They may keep their votes in different places of it, or refuse any
/// vote at the moment.
async fn same_server(client: &Arc<Client>, connected: &[usize]) -> Same {
    let asked = connected.iter().map(|node| {
        let backend = &client.nodes[*node].backend;
        async move { (*node, timeout(REST, backend.server_id()).await) }
    });
    let mut known: Vec<(usize, String)> = Vec::new();
    for (node, answer) in join_all(asked).await {
        let Ok(Ok(Some(id))) = answer else { continue };
        if let Some((earlier, _)) = known.iter().find(|(_, known)| *known == id) {
            return Some(((earlier + 1).to_string(), (node + 1).to_string()));
        }
        known.push((node, id));
    }
    None
}

/// A TTL that is too short for the way to the nodes is no error: they may be nearer at another time.
pub(crate) fn warn_of_short_ttl(client: &Client, ttl: Duration) {
    if let Some(sensible) = client.sensible_ttl.lock().filter(|sensible| ttl < *sensible) {
        tracing::warn!(target: "polylock", ?ttl, ?sensible,
            "the TTL is short for the time in which a majority of the nodes answers: choose a longer one, or nearer nodes");
    }
}

const LABEL: &str = "quorum probe of node ";

/// A name that is taken for a short time; given back in the background.
struct Probe {
    client: Arc<Client>,
    votes: Arc<Votes>,
    vote: Arc<Vote>,
    call: Option<Call>,
}

impl Probe {
    fn new(client: &Arc<Client>, votes: &Arc<Votes>, vote: Arc<Vote>) -> Self {
        Self {
            client: client.clone(),
            votes: votes.clone(),
            call: Some(Call::new(&client.nodes[vote.node], &vote)),
            vote,
        }
    }

    /// The node, and its answer.
    async fn ask(&mut self) -> (usize, Result<Attempt>) {
        let node = self.vote.node;
        let Some(call) = &mut self.call else {
            return (node, Ok(Attempt::Busy(Default::default())));
        };
        let attempt = call.future.as_mut().await;
        self.call = None;
        (node, attempt)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        clean_up::give_back(&self.client, &self.votes, &self.vote, self.call.take());
    }
}

/// Waits until what goes on in the background is over, as far as the nodes answer; then closes all nodes. When a majority is closed,
/// the others close in the background.
pub(crate) async fn close(client: &Arc<Client>) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(1);
    clean_up::go_on(client);
    // Holds at a silent node expire by themselves.
    let ended = async { tokio::join!(client.clean_up.finished(), client.members.close(|| client.is_used())) };
    let _ = timeout(PATIENCE, ended).await;
    let closing = client.nodes.iter().enumerate();
    let mut closing: FuturesUnordered<_> = closing
        .map(|(node, own)| async move { (node, own.backend.close().await) })
        .collect();
    let mut errors = NodeErrors::default();
    let mut closed = 0;
    let mut patience = pin!(sleep(PATIENCE));
    loop {
        let answer = tokio::select! {
            biased;
            answer = closing.next() => answer,
            () = &mut patience, if closed >= client.needed() => break,
        };
        let Some((node, answer)) = answer else { break };
        match answer {
            Ok(()) => closed += 1,
            Err(error) => errors.add(node, client.nodes[node].kind(), error),
        }
    }
    match closed >= client.needed() {
        true => Ok(()),
        false => Err(errors.into_error("too few nodes have answered that their sessions are closed")),
    }
}
