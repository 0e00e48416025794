//! When a request was sent, as far as a lease is concerned.

use std::sync::atomic::AtomicU64;

use crate::sync::Ordering;
use crate::time::LeaseInstant;

/// The moment just before a request went out, from which the lease that its answer arms is counted.
#[derive(Clone, Copy, Debug)]
pub struct SentAt {
    pub(super) at: LeaseInstant,
    /// How many suspicions there had been: two events may share one reading of the clock.
    pub(super) suspicions: u64,
}

/// All suspicions of this process, so that one `SentAt` can arm every lease of a session.
static SUSPICIONS: AtomicU64 = AtomicU64::new(0);

impl SentAt {
    /// Takes the time just before a renewal or a session's heartbeat is sent. An acquire takes it by
    /// [`AcquireRequest::sending`](super::AcquireRequest::sending).
    pub fn now() -> Self {
        Self {
            at: LeaseInstant::now_or_earlier(),
            suspicions: SUSPICIONS.load(Ordering::SeqCst),
        }
    }

    /// The later one.
    pub(super) fn later(self, other: Self) -> Self {
        match self.key() < other.key() {
            true => other,
            false => self,
        }
    }

    /// What tells which of two was earlier.
    pub(super) fn key(&self) -> (u64, LeaseInstant) {
        (self.suspicions, self.at)
    }
}

/// Counts one more suspicion, and returns its number.
pub(super) fn next_suspicion() -> u64 {
    SUSPICIONS.fetch_add(1, Ordering::SeqCst) + 1
}
