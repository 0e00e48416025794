//! Doubt whether a hold is still there.

use super::{Lease, Phase};
use crate::backend::sent_at::{self, SentAt};
use crate::error::Error;
use crate::observe;
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

impl Lease {
    /// Marks the hold as suspect until an arming that was sent after now.
    pub fn suspect(&self) {
        self.suspect_by(Suspicion::next, |_| {});
    }

    /// The same, and records why: the connection failed, or could not be made again. If the hold is lost before an arming
    /// clears the suspicion, [`Lost::error`](crate::Lost::error) returns the latest error. Its text must not contain secrets.
    pub fn suspect_because(&self, why: Error) {
        self.suspect_by(Suspicion::next, |failure| *failure = Some(why));
    }

    /// Marks the hold as suspect until an arming that was sent then or later, because a renewal failed.
    pub(crate) fn renewal_failed(&self, sent: SentAt, why: Error) {
        self.suspect_by(|| Suspicion::since(sent), |failure| *failure = Some(why));
    }

    /// The same because a renewal is unanswered, of which an error that is known already says more.
    pub(crate) fn renewal_unanswered(&self, sent: SentAt, why: impl FnOnce() -> Error) {
        let note = |failure: &mut Option<Error>| *failure = failure.take().or_else(|| Some(why()));
        self.suspect_by(|| Suspicion::since(sent), note);
    }

    fn suspect_by(&self, suspicion: impl FnOnce() -> Suspicion, note: impl FnOnce(&mut Option<Error>)) {
        let mut record = self.0.record.lock();
        let phase = record.phase;
        if matches!(phase, Phase::Live | Phase::Releasing) {
            let before = record.suspected;
            record.suspected = before.max(Some(suspicion()));
            note(&mut record.failure);
            if before.is_none() && phase == Phase::Live {
                let now = LeaseInstant::now();
                let left = record.end().map(|end| end.saturating_duration_since(now));
                let (failure, confirmed) = (record.failure.clone(), record.confirmed_before(now));
                drop(record);
                observe::suspected(&self.0.name, failure.as_ref(), confirmed, left);
            }
        }
    }
}
