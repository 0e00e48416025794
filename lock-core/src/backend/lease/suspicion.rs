//! Doubts whether a hold is still there.

use crate::backend::sent_at::{self, SentAt};
use crate::time::LeaseInstant;

/// Answers to requests that were sent after it clear it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Suspicion {
    number: u64,
    /// When the request was sent whose answer is missing, if there is one. Earlier ones may have been sent after the same number.
    since: Option<LeaseInstant>,
}

impl Suspicion {
    pub(super) fn next() -> Self {
        Self {
            number: sent_at::next_suspicion(),
            since: None,
        }
    }

    /// Of a request that was sent then.
    pub(super) fn since(sent: SentAt) -> Self {
        Self {
            number: sent.suspicions,
            since: Some(sent.at),
        }
    }

    pub(super) fn is_cleared_by(self, sent: SentAt) -> bool {
        self.number <= sent.suspicions && self.since.is_none_or(|since| since <= sent.at)
    }
}
