//! Limits of the undos: the number that may be kept, and the number that the backend runs at a time.

use std::pin::pin;
use std::time::Duration;

use crate::sync::time::sleep;
use crate::sync::{AtomicBool, AtomicUsize, Ordering, Semaphore};

/// The most undos that are kept. A hung server keeps all of them waiting, and each takes about a kilobyte.
const MOST_KEPT: usize = 10_000;

/// The most undos that the backend is asked for at a time: an acquire waits behind no more at the server.
const MOST_AT_ONCE: usize = 256;

/// After this time without an answer, the next undo need not wait for this one: a single slow name or node must not delay
/// the undos of all others.
const PATIENCE: Duration = Duration::from_millis(100);

/// The undos of one keeper's task.
#[derive(Debug)]
pub(crate) struct Undos {
    kept: AtomicUsize,
    slots: Semaphore,
    /// Whether an undo was dropped since none was kept.
    has_dropped: AtomicBool,
}

/// Counts an undo for as long as it lives.
#[derive(Debug)]
pub(super) struct Kept<'a>(&'a Undos);

impl Undos {
    pub(super) fn new() -> Self {
        Self {
            kept: AtomicUsize::new(0),
            slots: Semaphore::new(MOST_AT_ONCE),
            has_dropped: AtomicBool::new(false),
        }
    }

    /// `None` if there are too many already.
    pub(super) fn keep(&self) -> Option<Kept<'_>> {
        let one_more = |kept| (kept < MOST_KEPT).then_some(kept + 1);
        let kept = self.kept.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more);
        kept.ok().map(|_| Kept(self))
    }

    /// Returns whether this is the first undo that is dropped since none was kept.
    pub(super) fn is_first_drop(&self) -> bool {
        !self.has_dropped.swap(true, Ordering::SeqCst)
    }

    /// Polls the call of the backend once few enough others are under way.
    pub(super) async fn take_turns<T>(&self, call: impl Future<Output = T>) -> T {
        let slot = self.slots.acquire().await;
        let mut call = pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = sleep(PATIENCE) => drop(slot),
        }
        call.await
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if self.0.kept.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.has_dropped.store(false, Ordering::SeqCst);
        }
    }
}
