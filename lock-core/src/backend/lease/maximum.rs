//! The longest time for which a hold may be kept, however often it is renewed.

use super::{Lease, Phase, Record};
use crate::lost::LostCause;
use crate::time::LeaseInstant;

impl Lease {
    /// Ends it then at the latest, whatever arms it: a hold that is not released by then is lost.
    pub(crate) fn end_by(&self, maximum_end: LeaseInstant) {
        let mut record = self.0.record.lock();
        if record.phase == Phase::Live {
            record.maximum_end = Some(maximum_end);
            drop(record);
            self.0.changed.notify_waiters();
        }
    }

    /// The moment at which the hold reaches its maximum, if it has one.
    pub(crate) fn maximum_end(&self) -> Option<LeaseInstant> {
        self.0.record.lock().maximum_end
    }
}

impl Record {
    /// Why it was lost, if its end has passed.
    pub(super) fn cause_of_end(&self) -> LostCause {
        match (self.maximum_end, self.hold_end()) {
            (Some(maximum_end), Some(hold_end)) if maximum_end <= hold_end => LostCause::MaximumHold,
            _ => LostCause::Expired,
        }
    }

    /// Nobody believes in the hold any more: what still counts is when the server ends it.
    pub(super) fn forget_maximum(&mut self) {
        self.maximum_end = None;
    }
}
