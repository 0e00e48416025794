//! What the task of a connection and its callers share: the requests without an answer, and the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_kit::runtime::RuntimeCheck;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::OnEnd;

/// What the connection's task and its callers share.
pub(super) struct State {
    pub(super) check: RuntimeCheck,
    pub(super) ended: AtomicBool,
    pub(super) reason: Mutex<Option<Arc<tokio_postgres::Error>>>,
    pub(super) unanswered: Mutex<Unanswered>,
    pub(super) on_end: Mutex<Option<OnEnd>>,
}

impl State {
    /// It has ended: whoever asked to learn of it does, once.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        let on_end = self.on_end.lock().take();
        if let Some(on_end) = on_end {
            on_end();
        }
    }
}

#[derive(Default)]
pub(super) struct Unanswered {
    next: u64,
    /// When each of them was sent.
    pub(super) since: BTreeMap<u64, Instant>,
    /// The number of those that wait for their turn.
    pub(super) queued: usize,
}

/// A request that is under way, or whose caller has left.
pub(super) struct UnansweredRequest {
    state: Arc<State>,
    number: u64,
}

impl UnansweredRequest {
    pub(super) fn begin(state: &Arc<State>) -> Self {
        let mut unanswered = state.unanswered.lock();
        let number = unanswered.next;
        unanswered.next += 1;
        unanswered.since.insert(number, Instant::now());
        drop(unanswered);
        let state = state.clone();
        Self { state, number }
    }
}

impl Drop for UnansweredRequest {
    fn drop(&mut self) {
        self.state.unanswered.lock().since.remove(&self.number);
    }
}

/// A request that waits for its turn.
pub(super) struct QueuedRequest(Arc<State>);

impl QueuedRequest {
    pub(super) fn begin(state: &Arc<State>) -> Self {
        state.unanswered.lock().queued += 1;
        Self(state.clone())
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        self.0.unanswered.lock().queued -= 1;
    }
}

/// The connection has ended with its task, also if that ended with its runtime.
pub(super) struct EndOnDrop(pub(super) Arc<State>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
