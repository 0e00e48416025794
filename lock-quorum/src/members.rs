//! Marks at the nodes: each process leaves one that states its list of nodes and its restart delay, and looks for those of others.
//!
//! A mark is an exclusive hold of one of a few reserved names, so that it works on each kind of node and expires after a crash. If
//! more processes run than there are names, the others rely on the marks that are there, and take one when it is free.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Hold, ReleaseOptions, Renewal};
use lock_core::{Error, ErrorKind, HoldState, LockName, Result};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::mark::{self, Mark};
use crate::node::Node;
use crate::rules;

/// The number of reserved names at each node.
const NAMES: usize = 8;
/// The TTL of a mark, if the node keeps holds for that long.
const TTL: Duration = Duration::from_secs(30);
/// The time limit for a node that was reached a moment ago.
const PATIENCE: Duration = Duration::from_secs(2);

/// The marks of this process, and what those of others mean for it.
pub(crate) struct Members {
    nodes: Arc<[Node]>,
    own: Mark,
    /// By node. Empty if they are not known.
    addresses: Vec<u32>,
    ttl: Duration,
    state: Mutex<State>,
    /// Counts how often the process stopped to want marks.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    marks: Vec<Arc<Marked>>,
    /// The nodes that are being asked for a mark.
    asked: BTreeSet<usize>,
    /// Whether the process wants marks.
    is_wanted: bool,
    /// Whether a task renews them.
    is_kept: bool,
    /// Whether the backend was closed since the process joined.
    was_closed: bool,
    /// Whether there may be marks that were not seen, since a node did not answer the last look, or since our mark was
    /// placed after it.
    must_look: bool,
    /// Why this process must not acquire anything.
    refused: Option<Error>,
    /// The shortest restart delay of another process, if ours is longer.
    longest_ttl: Option<Duration>,
}

/// A mark of this process.
struct Marked {
    node: usize,
    hold: Arc<dyn Hold>,
    request: AcquireRequest,
    /// To be dropped with it.
    _control: RequestControl,
}

impl Members {
    pub(crate) fn new(nodes: &Arc<[Node]>, addresses: Option<&[String]>, restart_delay: Option<Duration>) -> Arc<Self> {
        let addresses: Vec<u32> = addresses
            .unwrap_or_default()
            .iter()
            .map(|address| mark::hash(address))
            .collect();
        let capabilities = || nodes.iter().map(|node| node.capabilities);
        let longest = capabilities().map(|node| node.longest_ttl).min().unwrap_or(TTL);
        let shortest = capabilities().map(|node| node.shortest_ttl).max().unwrap_or(TTL);
        Arc::new(Self {
            nodes: nodes.clone(),
            own: Mark::new(nodes.len(), restart_delay, &addresses),
            addresses,
            ttl: TTL.min(longest).max(shortest),
            state: Mutex::default(),
            ended: watch::Sender::new(0),
        })
    }

    /// Whether an acquire with this TTL may continue, as far as is known. Sends no request.
    pub(crate) fn check(&self, ttl: Duration) -> Result<()> {
        let state = self.state.lock();
        if let Some(error) = &state.refused {
            return Err(error.clone());
        }
        match state.longest_ttl.filter(|longest| ttl > *longest) {
            None => Ok(()),
            Some(longest) => {
                let message = format!(
                    "a TTL of {ttl:?} is longer than the restart_delay of another process of this quorum: choose at most {longest:?} \
                     until all processes have the longer delay"
                );
                Err(Error::new(ErrorKind::Misconfigured, message))
            }
        }
    }

    /// Has the marks released soon.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        (state.is_wanted, state.is_kept) = (false, false);
        self.ended.send_modify(|ended| *ended += 1);
    }

    /// Releases the marks, unless the process has something at a node that others must know of. The next acquire joins again.
    ///
    /// To be asked after `was_closed` is set: an acquire is known before it looks at that.
    pub(crate) async fn close(&self, is_used: impl FnOnce() -> bool) {
        {
            let mut state = self.state.lock();
            state.was_closed |= state.is_wanted;
        }
        if !is_used() {
            self.leave().await;
        }
    }

    /// Whether the process has left, or its marks are renewed no more since their runtime has ended.
    fn must_join(&self) -> bool {
        let state = self.state.lock();
        state.was_closed || (state.is_wanted && !state.is_kept)
    }

    /// Releases the marks, as far as the nodes answer.
    async fn leave(&self) {
        self.end();
        self.release().await;
    }

    /// No release is dropped half-way, unless the mark has expired.
    async fn release(&self) {
        let marks = std::mem::take(&mut self.state.lock().marks);
        let lasts = rules::lasts_at_node(self.ttl);
        let released = marks.into_iter().map(|mark| {
            tokio::spawn(async move {
                // A mark at a silent node expires.
                let _ = timeout(lasts, mark.hold.release(ReleaseOptions::default())).await;
            })
        });
        let _ = timeout(PATIENCE, join_all(released)).await;
    }

    /// Keeps the mark, unless none is wanted any more.
    fn keep(&self, mark: Marked) -> std::result::Result<(), Marked> {
        let mut state = self.state.lock();
        match state.is_wanted {
            false => Err(mark),
            true => {
                state.marks.push(Arc::new(mark));
                // Somebody who came meanwhile may have left one.
                state.must_look = true;
                Ok(())
            }
        }
    }

    /// Takes the first reserved name that is free, beginning anywhere.
    async fn take(&self, node: usize, backend: &dyn DistributedLock) -> Result<()> {
        let (first, lasts) = (rand::random_range(0..NAMES), rules::lasts_at_node(self.ttl));
        for number in (first..NAMES).chain(0..first) {
            let terms = Terms::new(self.ttl).label(self.own.to_string());
            // It is no vote: a node gives it during its restart delay, too.
            let options = RequestOptions::new(name(number)?, terms).waits(false).reinstates();
            let (request, control) = options.start();
            let attempt = timeout(lasts, backend.acquire(&request)).await;
            let mark = match attempt.unwrap_or_else(|_| Err(unanswered())) {
                Ok(Attempt::Granted(hold, _armed)) => Marked {
                    node,
                    hold,
                    request,
                    _control: control,
                },
                Ok(_) => continue,
                Err(error) if request.was_certainly_not_sent(&error) => return Err(error),
                // If this fails too, the mark expires.
                Err(_) => {
                    let abandoned = timeout(lasts, backend.abandon(&request)).await;
                    return abandoned.unwrap_or_else(|_| Err(unanswered()));
                }
            };
            if let Err(unwanted) = self.keep(mark) {
                let released = timeout(lasts, unwanted.hold.release(ReleaseOptions::default())).await;
                released.unwrap_or_else(|_| Err(unanswered()))?;
            }
            return Ok(());
        }
        Ok(())
    }

    /// Renews the mark, and returns whether it is still there. A node that does not answer is asked again later.
    async fn renew(&self, mark: &Marked, is_of_session: bool) -> bool {
        if !is_of_session && let Ok(Ok(Renewal::Lost)) = timeout(PATIENCE, mark.hold.renew(self.ttl)).await {
            return false;
        }
        matches!(mark.request.lease().state(), HoldState::Held | HoldState::Suspect)
    }
}

fn name(number: usize) -> Result<LockName> {
    LockName::new(format!("polylock-quorum-member-{number}"))
}

/// Leaves a mark at each of these nodes, and looks at those of others: before, so that a stranger leaves none, and again, so that
/// of two that come at once one sees the other.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] if a process whose list or delay does not go together with this one's uses the nodes.
pub(crate) async fn join(members: &Arc<Members>, nodes: &[usize]) -> Result<()> {
    look(members, nodes).await;
    if members.state.lock().refused.is_none() {
        members.state.lock().is_wanted = true;
        leave_marks(members, nodes).await;
        look(members, nodes).await;
    }
    let (refused, is_kept) = {
        let state = members.state.lock();
        (state.refused.clone(), state.is_kept)
    };
    if let Some(error) = refused {
        if !is_kept {
            // The process did not start. It acquires nothing until it has joined.
            members.leave().await;
        }
        return Err(error);
    }
    let was_kept = {
        let mut state = members.state.lock();
        state.was_closed = false;
        std::mem::replace(&mut state.is_kept, true)
    };
    if !was_kept {
        let ended = members.ended.subscribe();
        // Made before the task is, which a runtime that shuts down drops.
        let kept = Kept(members.clone(), *ended.borrow());
        tokio::spawn(keep(kept, ended));
    }
    Ok(())
}

/// Joins again if the process has left, and says whether an acquire with this TTL may begin. To be called for an acquire that is known.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] as from [`join`], or if the TTL is too long beside another process.
pub(crate) async fn check_acquire(members: &Arc<Members>, ttl: Duration) -> Result<()> {
    if members.must_join() {
        let nodes: Vec<usize> = (0..members.nodes.len()).collect();
        join(members, &nodes).await?;
    }
    members.check(ttl)
}

/// At those that have none. An acquire without an answer is abandoned when what it left has expired; one that is answered before is
/// kept.
async fn leave_marks(members: &Arc<Members>, nodes: &[usize]) {
    let mut taking = Vec::new();
    for node in nodes.iter().copied() {
        let Some(asked) = Asked::begin(members, node) else {
            continue;
        };
        let backend = members.nodes[node].backend.clone();
        taking.push(tokio::spawn(async move {
            // Tried again at the next renewal.
            let _ = asked.0.take(node, &*backend).await;
            drop(asked);
        }));
    }
    let _ = timeout(PATIENCE, join_all(taking)).await;
}

/// A node that is being asked for a mark, for as long as the value lives.
struct Asked(Arc<Members>, usize);

impl Asked {
    /// `None` if it has one, or is being asked.
    fn begin(members: &Arc<Members>, node: usize) -> Option<Self> {
        let mut state = members.state.lock();
        let has_mark = state.marks.iter().any(|mark| mark.node == node);
        (!has_mark && state.asked.insert(node)).then(|| Self(members.clone(), node))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.state.lock().asked.remove(&self.1);
    }
}

/// Looks at the marks of others, and notes what they mean. Until every node has answered, the keeper looks again, and what was found
/// before still counts.
async fn look(members: &Members, nodes: &[usize]) {
    members.state.lock().must_look = false;
    let looks = nodes
        .iter()
        .flat_map(|node| (0..NAMES).map(move |number| (*node, number)));
    let looks = looks.map(|(node, number)| async move {
        let status = async {
            let name = name(number)?;
            let status = members.nodes[node].backend.status(&name);
            timeout(PATIENCE, status).await.unwrap_or_else(|_| Err(unanswered()))
        };
        (node, status.await)
    });
    let mut answered: BTreeSet<usize> = nodes.iter().copied().collect();
    let mut others: BTreeMap<Mark, BTreeSet<usize>> = BTreeMap::new();
    for (node, status) in join_all(looks).await {
        let Ok(status) = status else {
            answered.remove(&node);
            continue;
        };
        let label = status.holders.first().and_then(|holder| holder.label.as_deref());
        if let Some(mark) = label.and_then(Mark::parse) {
            others.entry(mark).or_default().insert(node);
        }
    }
    let judged = others
        .iter()
        .map(|(mark, seen_at)| members.own.beside(mark, &members.addresses, seen_at, &answered));
    let judged: Result<Vec<Option<Duration>>> = judged.collect();
    let is_whole = answered.len() == members.nodes.len();
    let mut state = members.state.lock();
    state.must_look |= !is_whole;
    match judged {
        Err(error) => state.refused = Some(error),
        Ok(limits) => {
            let limit = limits.into_iter().flatten().min();
            if is_whole {
                (state.longest_ttl, state.refused) = (limit, None);
            } else {
                state.longest_ttl = [state.longest_ttl, limit].into_iter().flatten().min();
            }
        }
    }
}

fn unanswered() -> Error {
    Error::new(ErrorKind::Unavailable, "a node did not answer in time")
}

/// Renews the marks until nobody wants them any more.
async fn keep(kept: Kept, mut ended: watch::Receiver<u64>) {
    let members = &kept.0;
    loop {
        tokio::select! {
            biased;
            _ = ended.changed() => break,
            () = sleep(members.ttl / 3) => {}
        }
        renew(members).await;
    }
    // Unless the process has begun anew meanwhile.
    if !members.state.lock().is_wanted {
        members.release().await;
    }
}

/// A task renews the marks, for as long as the value lives.
struct Kept(Arc<Members>, u64);

impl Drop for Kept {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if *self.0.ended.borrow() == self.1 {
            state.is_kept = false;
        }
    }
}

async fn renew(members: &Arc<Members>) {
    let marks = members.state.lock().marks.clone();
    let renewed = join_all(marks.iter().map(|mark| async {
        let is_of_session = members.nodes[mark.node].capabilities.session_renewal;
        (mark.node, members.renew(mark, is_of_session).await)
    }));
    let lost: BTreeSet<usize> = renewed
        .await
        .into_iter()
        .filter(|(_, lives)| !lives)
        .map(|(node, _)| node)
        .collect();
    members.state.lock().marks.retain(|mark| !lost.contains(&mark.node));

    let nodes: Vec<usize> = (0..members.nodes.len()).collect();
    leave_marks(members, &nodes).await;
    let (must_look, was_refused, is_limited) = {
        let state = members.state.lock();
        (state.must_look, state.refused.is_some(), state.longest_ttl.is_some())
    };
    if must_look || was_refused || is_limited {
        look(members, &nodes).await;
        let refused = members.state.lock().refused.clone();
        if let Some(error) = refused.filter(|_| !was_refused) {
            tracing::error!(target: "polylock", %error, "a process with another quorum uses the same nodes: no lock is acquired");
        }
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
