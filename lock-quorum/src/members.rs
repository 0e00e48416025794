//! Marks at the nodes: each process leaves one that states its list of nodes and its restart delay, and looks for those of others.
//!
//! A mark is an exclusive hold of one of a few reserved names, so that it works on each kind of node and expires after a crash. If
//! more processes run than there are names, the others rely on the marks that are there, and take one when it is free.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use lock_kit::runtime::RuntimeCheck;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use self::look::Refusal;
use self::marks::Marked;
use self::stay::{Stay, look_and_mark};
use crate::mark::{self, Mark};
use crate::node::Node;

mod look;
mod marks;
mod stay;

/// The number of reserved names at each node.
const NAMES: usize = 8;
/// The TTL of a mark, if the node keeps holds for that long.
const TTL: Duration = Duration::from_secs(30);
/// The time limit for a node that was reached a moment ago.
const PATIENCE: Duration = Duration::from_secs(2);
/// While others refuse this process, its acquires and renewals join again at most so often: each join asks for every reserved name
/// at every node.
const JOIN_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// The marks of this process, and what those of others mean for it.
pub(crate) struct Members {
    nodes: Arc<[Node]>,
    own: Mark,
    /// By node. Empty if they are not known.
    addresses: Vec<u32>,
    ttl: Duration,
    state: Mutex<State>,
    /// Counts how often the process has left.
    ended: watch::Sender<u64>,
    /// Notified when a node is not being asked for a mark any more.
    not_asked: Notify,
}

/// Whether other processes see this one by its marks.
#[derive(Default)]
enum Presence {
    /// It has never joined.
    #[default]
    Unseen,
    /// A task joins.
    Joining(Joining),
    /// The same task renews the marks, on this runtime.
    Joined(Arc<RuntimeCheck>),
    /// It was closed or refused, or the runtime of its task has ended or is not driven. The next acquire or renewal joins again.
    Left,
}

/// A join that is under way.
#[derive(Clone)]
struct Joining {
    since: Instant,
    /// How often the process had left before.
    number: u64,
    runtime: Arc<RuntimeCheck>,
    /// Closed at the end of the join.
    under_way: watch::Receiver<()>,
}

#[derive(Default)]
struct State {
    marks: Vec<Arc<Marked>>,
    /// The nodes that are being asked for a mark, and on which runtimes.
    asked: BTreeMap<usize, Arc<RuntimeCheck>>,
    presence: Presence,
    /// When the last join began.
    last_join: Option<Instant>,
    /// Whether there may be marks that were not seen, since a node did not answer the last look, or since our mark was
    /// placed after it.
    must_look: bool,
    /// The marks beside which this process must not acquire anything.
    refusals: BTreeMap<Mark, Refusal>,
    /// The shortest restart delay of another process, if ours is longer.
    longest_ttl: Option<Duration>,
    /// Whether a process with a longer restart delay was seen, which has to see this one.
    is_beside_longer: bool,
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
            not_asked: Notify::new(),
        })
    }

    /// Whether an acquire with this TTL may continue, as far as is known. Sends no request.
    pub(crate) fn check(&self, ttl: Duration) -> Result<()> {
        let state = self.state.lock();
        if let Some(error) = state.refused() {
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
        self.leave(&mut self.state.lock());
    }

    /// Leaves, unless the process has left since then, and perhaps begun anew.
    fn leave_since(&self, number: u64) {
        let mut state = self.state.lock();
        if *self.ended.borrow() == number {
            self.leave(&mut state);
        }
    }

    fn leave(&self, state: &mut State) {
        if !matches!(state.presence, Presence::Unseen) {
            state.presence = Presence::Left;
        }
        self.ended.send_modify(|ended| *ended += 1);
    }

    /// Releases the marks, unless the process holds a lock, or may soon. The next acquire joins again.
    pub(crate) async fn close(&self, is_used: impl FnOnce() -> bool) {
        let marks = {
            let mut state = self.state.lock();
            // An acquire is known before it looks at the presence, so either `is_used` sees it, or it sees that the process has left.
            if is_used() {
                return;
            }
            self.leave(&mut state);
            // Those of a process that begins anew after this are not taken from it.
            std::mem::take(&mut state.marks)
        };
        self.release(marks).await;
    }

    /// The task that joins or renews the marks: how often the process had left before, and on which runtime it is.
    fn task(&self) -> Option<(u64, Arc<RuntimeCheck>)> {
        let state = self.state.lock();
        match &state.presence {
            Presence::Joining(Joining { runtime, .. }) | Presence::Joined(runtime) => {
                Some((*self.ended.borrow(), runtime.clone()))
            }
            Presence::Unseen | Presence::Left => None,
        }
    }

    /// Leaves if nobody drives the runtime of the task that joins or renews the marks: it may never go on.
    ///
    /// # Cancel safety
    /// If it is dropped, it goes on in the background, or callers who wait for a short time would never find it out.
    async fn leave_undriven(self: &Arc<Self>) {
        let is_unknown = |runtime: &RuntimeCheck| runtime.is_driven().now_or_never() != Some(true);
        if let Some((number, runtime)) = self.task().filter(|(_, runtime)| is_unknown(runtime)) {
            let members = self.clone();
            let checking = tokio::spawn(async move {
                if !runtime.is_driven().await {
                    members.leave_since(number);
                }
            });
            let _ = checking.await;
        }
    }

    /// The join that is under way, or `None` if the process has joined. Begins one at these nodes if it has not, and that `is_wanted`.
    /// See [`answers`] for the `rest`.
    fn joining(self: &Arc<Self>, nodes: &[usize], rest: Duration, is_wanted: impl FnOnce() -> bool) -> Option<Joining> {
        let mut state = self.state.lock();
        match &state.presence {
            Presence::Joined(_) => return None,
            Presence::Joining(joining) => return Some(joining.clone()),
            Presence::Unseen | Presence::Left => {}
        }
        // Asked here: a process that is closed has left before, or sees what is used.
        if !is_wanted() {
            return None;
        }
        let (is_under_way, under_way) = watch::channel(());
        let (since, ended) = (Instant::now(), self.ended.subscribe());
        let joining = Joining {
            since,
            number: *ended.borrow(),
            runtime: Arc::new(RuntimeCheck::new()),
            under_way,
        };
        state.presence = Presence::Joining(joining.clone());
        state.last_join = Some(since);
        // A runtime that ended left them. Those that may expire before the first renewal are taken anew.
        let needed = |mark: &Marked| match self.nodes[mark.node].capabilities.session_renewal {
            // For as long as its session lives.
            true => Duration::ZERO,
            false => self.ttl / 2,
        };
        state
            .marks
            .retain(|mark| mark.request.lease().valid_for() > needed(mark));
        drop(state);
        let runtime = joining.runtime.clone();
        let stay = Stay {
            members: self.clone(),
            number: joining.number,
            runtime: runtime.clone(),
            is_under_way: Some(is_under_way),
        };
        let staying = stay.run(nodes.to_vec(), rest, ended);
        // A runtime that shuts down drops it at once.
        tokio::spawn(async move { runtime.watch(staying).await });
        Some(joining)
    }

    /// The same for an acquire or a renewal, at all nodes. `None` also if the process has never joined, since a connect begins that, or
    /// was refused just now.
    fn joining_again(self: &Arc<Self>, rest: Duration, is_wanted: impl FnOnce() -> bool) -> Option<Joining> {
        {
            let state = self.state.lock();
            let is_early = |last: Instant| last.elapsed() < JOIN_AGAIN_EVERY;
            match state.presence {
                Presence::Unseen => return None,
                Presence::Left if state.refused().is_some() && state.last_join.is_some_and(is_early) => return None,
                _ => {}
            }
        }
        let nodes: Vec<usize> = (0..self.nodes.len()).collect();
        self.joining(&nodes, rest, is_wanted)
    }

    /// Begins to join again in the background if the process has left, for as long as a hold `is_used`. For a renewal: the
    /// runtime of the marks may have ended since the acquire, or is driven no more.
    pub(crate) fn stay_seen(self: &Arc<Self>, is_used: impl FnOnce() -> bool + Send + 'static) {
        match self.task() {
            None => drop(self.joining_again(PATIENCE, is_used)),
            Some((_, runtime)) if runtime.is_here() => {}
            Some(_) => {
                let members = self.clone();
                tokio::spawn(async move {
                    members.leave_undriven().await;
                    members.joining_again(PATIENCE, is_used);
                });
            }
        }
    }

    /// Waits until the process has joined again, if it has left or nobody drives the runtime of its marks; but not for longer
    /// than until a join has taken the `patience`. Before that, it takes up to 0.75 s to find out that nobody drives the runtime. Both
    /// are waited for: an acquire could otherwise be granted before others see this process.
    async fn seen_again(self: &Arc<Self>, patience: Duration) {
        self.leave_undriven().await;
        // A silent node delays each of three steps by a quarter, so that what the others say is known within the patience.
        while let Some(mut joining) = self.joining_again(patience / 4, || true) {
            match timeout_at(joining.since + patience, joining.over()).await {
                Ok(Over::Undriven) => self.leave_since(joining.number),
                Ok(Over::Joined) | Err(_) => return,
            }
        }
    }
}

/// Joins at these nodes, or waits for the join that is under way. A process that has joined looks and marks again.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] if a process whose list or delay does not go together with this one's uses the nodes.
///
/// # Cancel safety
/// Dropping it does not end the join.
pub(crate) async fn join(members: &Arc<Members>, nodes: &[usize]) -> Result<()> {
    members.leave_undriven().await;
    loop {
        let Some(mut joining) = members.joining(nodes, PATIENCE, || true) else {
            look_and_mark(members, nodes, PATIENCE).await;
            break;
        };
        match joining.over().await {
            Over::Joined => break,
            Over::Undriven => members.leave_since(joining.number),
        }
    }
    // If it was closed meanwhile, the next acquire joins again.
    members.state.lock().refused().cloned().map_or(Ok(()), Err)
}

/// Whether an acquire may begin, as far as is known. If the process has left, it joins again. A join that is under way is waited for,
/// but only until it has taken the `patience`, or the request is given up. If nobody drives its runtime, this takes up to
/// 0.75 s more, and then another join begins, which has the whole `patience`. To be called for an acquire that is known.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] as from [`join`], or if the TTL is too long beside another process.
pub(crate) async fn check_acquire(members: &Arc<Members>, request: &AcquireRequest, patience: Duration) -> Result<()> {
    tokio::select! {
        biased;
        () = members.seen_again(patience) => {}
        () = request.given_up() => {}
    }
    members.check(request.ttl())
}

/// How the wait for a join ended.
enum Over {
    /// The process has joined, or was refused, or has left.
    Joined,
    /// Nobody drives its runtime.
    Undriven,
}

impl Joining {
    async fn over(&mut self) -> Over {
        tokio::select! {
            biased;
            // Nothing is ever sent: it fails when the sender is dropped.
            _ = self.under_way.changed() => Over::Joined,
            () = self.runtime.undriven() => Over::Undriven,
        }
    }
}

impl State {
    /// Why this process must not acquire anything.
    fn refused(&self) -> Option<&Error> {
        self.refusals.values().next().map(|refusal| &refusal.error)
    }

    /// Whether a mark of this process lives at the node. Forgets one that has expired.
    fn has_mark_at(&mut self, node: usize) -> bool {
        self.marks.retain(|mark| mark.node != node || mark.is_live());
        self.marks.iter().any(|mark| mark.node == node)
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
