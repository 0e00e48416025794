//! Losing a hold, and the description of the loss.

use std::task::Waker;

use super::{Lease, Phase, Record};
use crate::backend::rules;
use crate::error::Error;
use crate::lost::{Lost, LostCause};
use crate::time::LeaseInstant;

impl Lease {
    /// The hold is gone, as the server or its connection says. Does nothing to a lease that was never armed (then it is
    /// the acquire that fails), that is being released, or that has ended.
    pub fn lose(&self, cause: LostCause) {
        self.lose_by(cause, None);
    }

    /// The same, and records why the connection or session has ended: [`Lost::error`] returns it. Its text must not contain
    /// secrets.
    pub fn lose_because(&self, cause: LostCause, why: Error) {
        self.lose_by(cause, Some(why));
    }

    pub(super) fn lose_by(&self, cause: LostCause, why: Option<Error>) {
        let mut record = self.0.record.lock();
        if matches!(record.phase, Phase::Live | Phase::Releasing) && why.is_some() {
            record.failure = why;
        }
        match record.phase {
            Phase::Live => self.set_lost(&mut record, cause, LeaseInstant::now()),
            Phase::Releasing => {
                let now = LeaseInstant::now();
                record.lost_in_release = Some(cause);
                record.was_lost_in_time |= !record.end().is_some_and(|end| rules::has_expired(end, now));
            }
            Phase::Unarmed | Phase::Released | Phase::Lost(_) => {}
        }
    }

    /// Has `watcher` woken when the hold is lost, or now if it is.
    pub(crate) fn tell_of_loss(&self, watcher: Waker) {
        let mut record = self.0.record.lock();
        match record.phase {
            Phase::Lost(_) => watcher.wake(),
            _ => record.watcher = Some(watcher),
        }
    }

    /// Whether the backend reported the loss during the release, before the lease had ended.
    pub(crate) fn was_lost_in_release(&self) -> bool {
        self.0.record.lock().was_lost_in_time
    }

    /// The server answered the release that the hold had been gone before. Returns how it was lost, as the backend said, if it
    /// said anything.
    pub(crate) fn lost_before_release(&self) -> Lost {
        let mut record = self.0.record.lock();
        let cause = record.lost_in_release.unwrap_or(LostCause::NotHeld);
        if record.phase == Phase::Releasing {
            self.set_lost(&mut record, cause, LeaseInstant::now());
            return self.lost(&record, cause);
        }
        // The lease has ended meanwhile, and counts as released.
        self.describe_loss(&mut record, cause, LeaseInstant::now())
    }

    pub(super) fn lost(&self, record: &Record, cause: LostCause) -> Lost {
        let known = record.lost.clone();
        known.unwrap_or_else(|| Lost::new(self.0.name.clone(), cause))
    }

    pub(super) fn set_lost(&self, record: &mut Record, cause: LostCause, now: LeaseInstant) {
        record.phase = Phase::Lost(cause);
        record.lost = Some(self.describe_loss(record, cause, now));
        self.0.changed.notify_waiters();
        if let Some(watcher) = record.watcher.take() {
            // The keeper's, which takes no lease's lock under its own.
            watcher.wake();
        }
    }

    /// All that is known of a loss at `now`.
    fn describe_loss(&self, record: &mut Record, cause: LostCause, now: LeaseInstant) -> Lost {
        let end = record.end().filter(|end| rules::has_expired(*end, now));
        record.forget_maximum();
        let failure = record.failure.take();
        let error = match cause {
            LostCause::Expired => end.and_then(|end| record.driven.stall(end, now)).or(failure),
            // Neither is why: the server answered, or the time was up.
            LostCause::NotHeld | LostCause::Revoked | LostCause::MaximumHold => None,
            _ => failure,
        };
        let lost = Lost::new(self.0.name.clone(), cause);
        let ended = end.map(|end| now.saturating_duration_since(end));
        lost.with_details(error, record.confirmed_before(now), ended)
    }
}
