//! The lease of a hold that was passed on, continued for its next holder.

use super::{Lease, Phase};
use crate::time::LeaseInstant;

impl Lease {
    /// Continues the lease of a hold that is being released, if that is live and not suspect. This lease must be
    /// unarmed.
    pub(crate) fn inherit(&self, giver: &Self) -> bool {
        let now = LeaseInstant::now();
        let (term_end, (session_end, session_term), armed_from) = {
            let giver = giver.lock(now);
            if giver.phase != Phase::Releasing || giver.suspected.is_some() || giver.lost_in_release.is_some() {
                return false;
            }
            (
                giver.term_end,
                (giver.session_end, giver.session_term),
                giver.armed_from,
            )
        };
        let mut record = self.lock(now);
        if record.phase != Phase::Unarmed {
            return false;
        }
        record.phase = Phase::Live;
        record.term_end = term_end;
        record.session_end = session_end;
        record.session_term = session_term;
        record.armed_from = armed_from;
        record.driven.look(now);
        true
    }

    /// The moment when the latest request was sent whose answer confirmed the hold.
    pub(crate) fn confirmed_at(&self) -> Option<LeaseInstant> {
        self.0.record.lock().armed_from
    }

    /// Takes over events that the giver's lease received during the pass. Later events reach this lease directly.
    pub(crate) fn catch_up(&self, giver: &Self) {
        let (suspected, failure, lost) = {
            let giver = giver.0.record.lock();
            (giver.suspected.is_some(), giver.failure.clone(), giver.lost_in_release)
        };
        match &failure {
            Some(failure) if suspected => self.suspect_because(failure.clone()),
            None if suspected => self.suspect(),
            _ => {}
        }
        if let Some(cause) = lost {
            self.lose_by(cause, failure);
        }
    }
}
