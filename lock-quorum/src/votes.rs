//! Votes: what a quorum's request has asked of its nodes.
//!
//! Each vote is a request of its own, with its own holder id and lease. It is recorded before it is sent, and stays recorded
//! until its node has certainly nothing of it.

pub(crate) use self::vote::{Call, Vote};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lock_core::backend::{AcquireRequest, Armed, Lease, ReleaseOutcome};
use lock_core::{Error, ErrorKind, FencingToken, HoldState, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Why a request failed that was given up before anybody else was known to have the name.
pub(crate) const GIVEN_UP: &str = "given up before a majority of the nodes had answered";

/// All votes of one request of the quorum.
pub(crate) struct Votes {
    /// The quorum's request.
    pub(crate) request: AcquireRequest,
    state: Mutex<State>,
    changed: Notify,
    /// Whether any request may have reached a node.
    was_sent: AtomicBool,
    /// Whether the caller knows how the release ended.
    release_reported: AtomicBool,
    /// The number of handles to the hold.
    handles: AtomicUsize,
    /// Whether a task follows the sessions of the votes.
    is_followed: AtomicBool,
}

struct State {
    phase: Phase,
    /// The number of acquires that are under way. Between two attempts an acquire has asked no node.
    acquires: usize,
    /// All that may have left something at their nodes.
    asked: Vec<Arc<Vote>>,
    /// Those that make the hold, by node.
    of_hold: Vec<Option<Arc<Vote>>>,
    /// By node: until when a vote that it has lost would have lived. Until then a new one restores it.
    lost: Vec<Option<Instant>>,
    /// By node: whether somebody has revoked its vote. It is asked for no other one.
    revoked: Vec<bool>,
    /// The nodes' answers to the release.
    released: Vec<Option<ReleaseOutcome>>,
    ended_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Acquiring,
    Held(FencingToken),
    /// Released, abandoned or lost.
    Ended,
}

impl Votes {
    pub(crate) fn new(request: &AcquireRequest, nodes: usize) -> Self {
        let state = State {
            phase: Phase::Acquiring,
            acquires: 0,
            asked: Vec::new(),
            of_hold: vec![None; nodes],
            lost: vec![None; nodes],
            revoked: vec![false; nodes],
            released: vec![None; nodes],
            ended_at: None,
        };
        Self {
            request: request.clone(),
            state: Mutex::new(state),
            changed: Notify::new(),
            was_sent: AtomicBool::new(false),
            release_reported: AtomicBool::new(false),
            handles: AtomicUsize::new(0),
            is_followed: AtomicBool::new(false),
        }
    }

    pub(crate) fn begin_acquire(&self) {
        self.state.lock().acquires += 1;
    }

    pub(crate) fn end_acquire(&self) {
        self.state.lock().acquires -= 1;
    }

    pub(crate) fn note_sent(&self) {
        self.was_sent.store(true, Ordering::SeqCst);
    }

    pub(crate) fn was_sent(&self) -> bool {
        self.was_sent.load(Ordering::SeqCst)
    }

    /// Records a vote before it is sent. False if the request has ended.
    pub(crate) fn record(&self, vote: &Arc<Vote>) -> bool {
        self.record_if(vote, |_| true)
    }

    /// The same of the only vote at its node. False also if the node may have another one: that one would refuse it.
    pub(crate) fn record_missing(&self, vote: &Arc<Vote>) -> bool {
        self.record_if(vote, |asked| asked.iter().all(|known| known.node != vote.node))
    }

    fn record_if(&self, vote: &Arc<Vote>, may_ask: impl Fn(&[Arc<Vote>]) -> bool) -> bool {
        let mut state = self.state.lock();
        let may_ask = state.phase != Phase::Ended && may_ask(&state.asked);
        if may_ask {
            state.asked.push(vote.clone());
        }
        may_ask
    }

    /// The node has nothing of it any more.
    pub(crate) fn forget(&self, vote: &Arc<Vote>) {
        let mut state = self.state.lock();
        state.asked.retain(|known| !Arc::ptr_eq(known, vote));
        take_if(&mut state.of_hold, vote);
        drop(state);
        self.changed.notify_waiters();
    }

    /// The same of a vote of the hold that the node has lost. `until` is when it would have ended, if a new one is to restore it.
    pub(crate) fn lose(&self, vote: &Arc<Vote>, until: Option<Instant>) {
        let mut state = self.state.lock();
        // Otherwise another renewal was told before, and may have asked for the new one.
        if take_if(&mut state.of_hold, vote) {
            state.lost[vote.node] = until;
        }
        drop(state);
        self.forget(vote);
    }

    /// The same of one that somebody has revoked.
    pub(crate) fn revoke(&self, vote: &Arc<Vote>) {
        self.state.lock().revoked[vote.node] = true;
        self.lose(vote, None);
    }

    /// Whether somebody has revoked the node's vote.
    pub(crate) fn was_revoked_at(&self, node: usize) -> bool {
        self.state.lock().revoked[node]
    }

    /// The hold begins with these votes, of which it needs so many.
    ///
    /// # Errors
    /// If the request has ended meanwhile: then its lease is not armed. If too few votes are live.
    pub(crate) fn grant(&self, token: FencingToken, votes: &[Arc<Vote>], needed: usize) -> Result<Armed> {
        let mut state = self.state.lock();
        if state.phase != Phase::Acquiring {
            return Err(self.abandoned());
        }
        let leases: Vec<Lease> = votes.iter().map(|vote| vote.lease().clone()).collect();
        let armed = self.request.lease().arm_by(&leases, needed)?;
        state.phase = Phase::Held(token);
        for vote in votes {
            state.of_hold[vote.node] = Some(vote.clone());
        }
        Ok(armed)
    }

    /// The error of an acquire whose request was abandoned meanwhile. Core does that only once the request was given up.
    pub(crate) fn abandoned(&self) -> Error {
        match self.request.is_given_up() {
            true => Error::new(ErrorKind::Unavailable, GIVEN_UP),
            false => Error::new(ErrorKind::Unexpected, "this request was abandoned"),
        }
    }

    /// Adds a vote to the hold. False if the hold has ended, or has one of that node.
    pub(crate) fn add(&self, vote: &Arc<Vote>) -> bool {
        let mut state = self.state.lock();
        let fits = matches!(state.phase, Phase::Held(_)) && state.of_hold[vote.node].is_none();
        if fits {
            state.of_hold[vote.node] = Some(vote.clone());
            state.lost[vote.node] = None;
        }
        drop(state);
        self.changed.notify_waiters();
        fits
    }

    /// The node has the name for somebody else.
    pub(crate) fn note_taken(&self, node: usize) {
        self.state.lock().lost[node] = None;
    }

    /// Whether the node has lost a vote that would still live, and has given no other one since.
    pub(crate) fn has_lost(&self, node: usize) -> bool {
        self.state.lock().lost[node].is_some_and(|until| Instant::now() < until)
    }

    /// The vote makes the hold no more. False if it did not.
    pub(crate) fn remove(&self, vote: &Arc<Vote>) -> bool {
        take_if(&mut self.state.lock().of_hold, vote)
    }

    /// The hold's token, while it is held.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        match self.state.lock().phase {
            Phase::Held(token) => Some(token),
            Phase::Acquiring | Phase::Ended => None,
        }
    }

    /// No vote of it counts from now on.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Ended;
        state.ended_at.get_or_insert_with(Instant::now);
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().phase == Phase::Ended
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        self.until(|state| state.phase == Phase::Ended).await;
    }

    /// The same of a hold, whose lease ends at the latest then: a handle may be dropped without a release.
    pub(crate) async fn over(&self) {
        tokio::select! {
            biased;
            () = self.ended() => {}
            _ended = self.request.lease().ended() => {}
        }
    }

    /// Waits until nothing of this vote is left at its node.
    pub(crate) async fn forgotten(&self, vote: &Arc<Vote>) {
        self.until(|state| !state.asked.iter().any(|known| Arc::ptr_eq(known, vote)))
            .await;
    }

    /// Waits until this vote, for which another renewal has asked, makes the hold, or will not. Returns whether it does.
    pub(crate) async fn added(&self, vote: &Arc<Vote>) -> bool {
        let is_of_hold = |state: &State| {
            state.of_hold[vote.node]
                .as_ref()
                .is_some_and(|known| Arc::ptr_eq(known, vote))
        };
        let is_asked = |state: &State| state.asked.iter().any(|known| Arc::ptr_eq(known, vote));
        self.until(|state| is_of_hold(state) || !is_asked(state)).await;
        is_of_hold(&self.state.lock())
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            // Hears of each change from here on.
            let changed = self.changed.notified();
            if is_so(&self.state.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// All that may have left something at their nodes.
    pub(crate) fn asked(&self) -> Vec<Arc<Vote>> {
        self.state.lock().asked.clone()
    }

    /// The number of nodes that have nothing of this request.
    pub(crate) fn clean_nodes(&self) -> usize {
        let state = self.state.lock();
        let is_clean = |node: &usize| !state.asked.iter().any(|vote| vote.node == *node);
        (0..state.of_hold.len()).filter(is_clean).count()
    }

    /// Whether the node may have anything of this request.
    pub(crate) fn may_be_at(&self, node: usize) -> bool {
        self.state.lock().asked.iter().any(|vote| vote.node == node)
    }

    /// The vote for which another renewal has asked this node, if it may still become a part of the hold.
    pub(crate) fn asked_at(&self, node: usize) -> Option<Arc<Vote>> {
        let state = self.state.lock();
        let mut open = state.asked.iter().filter(|vote| !vote.is_cleaned_up());
        open.find(|vote| vote.node == node).cloned()
    }

    /// Those that make the hold.
    pub(crate) fn of_hold(&self) -> Vec<Arc<Vote>> {
        self.state.lock().of_hold.iter().flatten().cloned().collect()
    }

    /// Their leases.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.of_hold().iter().map(|vote| vote.lease().clone()).collect()
    }

    pub(crate) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::SeqCst);
    }

    /// Drops a handle to the hold, and returns whether it was the last one.
    pub(crate) fn drop_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::SeqCst) == 1
    }

    pub(crate) fn has_handle(&self) -> bool {
        self.handles.load(Ordering::SeqCst) > 0
    }

    /// A task is about to follow the hold. False if one does.
    pub(crate) fn begin_following(&self) -> bool {
        !self.is_followed.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn end_following(&self) {
        self.is_followed.store(false, Ordering::SeqCst);
    }

    /// Whether they are a hold whose lease lives, or may become one.
    pub(crate) fn are_used(&self) -> bool {
        let state = self.state.lock();
        match state.phase {
            Phase::Ended => false,
            Phase::Acquiring => state.acquires > 0,
            Phase::Held(_) => state.acquires > 0 || self.is_live(),
        }
    }

    fn is_live(&self) -> bool {
        matches!(self.request.lease().state(), HoldState::Held | HoldState::Suspect)
    }

    /// Whether it is known that nobody needs these votes any more.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        let lasts = state.asked.iter().map(|vote| vote.lasts_at_node()).max();
        let expired = |ended: Instant| ended.elapsed() > lasts.unwrap_or_default();
        match state.phase {
            Phase::Acquiring if state.acquires > 0 => false,
            Phase::Acquiring | Phase::Ended if state.asked.is_empty() => true,
            // Its clean-up has gone with its runtime: it has expired.
            Phase::Acquiring | Phase::Ended => state.ended_at.is_some_and(expired),
            Phase::Held(_) => !self.is_live(),
        }
    }
}

fn take_if(votes: &mut [Option<Arc<Vote>>], vote: &Arc<Vote>) -> bool {
    votes[vote.node].take_if(|known| Arc::ptr_eq(known, vote)).is_some()
}

impl fmt::Debug for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Votes")
            .field("request", &self.request)
            .field("phase", &state.phase)
            .field("asked", &state.asked.len())
            .finish_non_exhaustive()
    }
}

mod release;
#[cfg(test)]
mod tests;
mod vote;
