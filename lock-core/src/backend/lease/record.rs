//! The state behind a lease.

use std::task::Waker;
use std::time::Duration;

use super::driven::Driven;
use super::suspicion::Suspicion;
use crate::backend::sent_at::SentAt;
use crate::error::Error;
use crate::lost::{Lost, LostCause};
use crate::time::LeaseInstant;

pub(super) struct Record {
    pub(super) phase: Phase,
    /// The end of the hold's own term, once armed.
    pub(super) term_end: Option<LeaseInstant>,
    /// The end of the session to which the hold is bound, if it is.
    pub(super) session_end: Option<LeaseInstant>,
    /// The time for which that session outlives its last contact with the server.
    pub(super) session_term: Option<Duration>,
    /// The moment at which a live hold reaches its maximum, if it has one.
    pub(super) maximum_end: Option<LeaseInstant>,
    /// The moment when the latest request was sent whose answer armed the lease.
    pub(super) armed_from: Option<LeaseInstant>,
    /// The moment when the latest request was sent whose answer armed the lease or bound it to its session.
    pub(super) heard_of: Option<SentAt>,
    /// The suspicion that no arming has cleared yet.
    pub(super) suspected: Option<Suspicion>,
    /// The latest error since the hold was last confirmed.
    pub(super) failure: Option<Error>,
    /// The moment when core last sent a renewal or received an answer, if core renews the hold.
    pub(super) driven: Driven,
    /// The loss, once the hold is lost.
    pub(super) lost: Option<Lost>,
    /// A loss that was reported during the release. The next holder must learn of it if the hold is passed on.
    pub(super) lost_in_release: Option<LostCause>,
    /// Whether such a loss was reported before the lease had ended.
    pub(super) was_lost_in_time: bool,
    /// The task to wake after a loss.
    pub(super) watcher: Option<Waker>,
}

impl Record {
    /// The end of the lease.
    pub(super) fn end(&self) -> Option<LeaseInstant> {
        let hold_end = self.hold_end()?;
        Some(
            self.maximum_end
                .map_or(hold_end, |maximum_end| maximum_end.min(hold_end)),
        )
    }

    /// The end of the hold, whatever its maximum is.
    pub(super) fn hold_end(&self) -> Option<LeaseInstant> {
        let term_end = self.term_end?;
        Some(
            self.session_end
                .map_or(term_end, |session_end| session_end.min(term_end)),
        )
    }

    /// A request sent at this moment was answered, so the hold was there when the answer came.
    pub(super) fn trust(&mut self, sent: SentAt) {
        self.heard_of = Some(self.heard_of.map_or(sent, |known| known.later(sent)));
        self.suspected = self.suspected.filter(|suspicion| !suspicion.is_cleared_by(sent));
        if self.suspected.is_none() {
            self.failure = None;
        }
    }

    /// The time between `now` and the sending of the request whose answer last confirmed the hold.
    pub(super) fn confirmed_before(&self, now: LeaseInstant) -> Option<Duration> {
        let confirmed = self.heard_of.map(|sent| sent.at).max(self.armed_from)?;
        Some(now.saturating_duration_since(confirmed))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Unarmed,
    Live,
    Releasing,
    Released,
    Lost(LostCause),
}
