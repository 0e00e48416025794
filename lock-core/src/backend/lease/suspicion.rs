//! Doubt whether a hold is still there.

use crate::backend::sent_at::{self, SentAt};
use crate::time::LeaseInstant;

/// A suspicion of a hold. Answers to requests that were sent after it clear it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Suspicion {
    number: u64,
    /// The moment when the unanswered request was sent, if there is one. Earlier requests may share the number.
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
