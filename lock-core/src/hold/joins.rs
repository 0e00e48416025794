//! The limit on readers that join a shared hold of their process.

use crate::backend::{Lease, Mode};
use crate::options::CheckedLock;
use crate::sync::time::Instant;
use crate::sync::{AtomicUsize, Ordering};

/// A hold may be joined for this part of its ttl.
const JOINED_FOR: u32 = 3;

/// The bound on those who join a shared hold. Without it, a process that reads without a pause would never let go, and a
/// writer elsewhere would starve. It counts all who ever joined, and not those who are there. The reader after the last one
/// asks the server, where it stands behind the writer.
#[derive(Debug)]
pub(super) struct Joins {
    /// As many as may follow each other on an exclusive lock.
    pub(super) at_most: usize,
    /// Counted from before the hold was asked for. `None` past the end of the clock.
    until: Option<Instant>,
    /// Changed under the lock of the queue alone.
    joined: AtomicUsize,
}

impl Joins {
    /// For a hold with these options; `None` if nobody may ever join it.
    pub(super) fn of(lock: &CheckedLock, lease: &Lease) -> Option<Self> {
        let options = &lock.options;
        if options.mode != Mode::Shared || options.reentry_key.is_some() {
            return None;
        }
        let armed_from = lease.armed_from().unwrap_or_else(Instant::now);
        Some(Self {
            at_most: lock.limits.passes.try_into().unwrap_or(usize::MAX),
            until: armed_from.checked_add(options.ttl / JOINED_FOR),
            joined: AtomicUsize::new(0),
        })
    }

    /// Whether one more reader may join now.
    pub(super) fn are_allowed(&self, now: Instant) -> bool {
        self.joined.load(Ordering::Relaxed) < self.at_most && self.until.is_none_or(|until| now < until)
    }

    /// Counts readers that have joined.
    pub(super) fn add(&self, joined: usize) {
        self.joined.fetch_add(joined, Ordering::Relaxed);
    }
}
