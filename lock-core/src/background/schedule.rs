//! The schedule by which holds are checked and renewed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::job::Job;
use crate::own_hold::OwnHold;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, Weak};

/// A hold as the keeper sees it.
pub(crate) trait ScheduledHold: fmt::Debug + Send + Sync {
    /// The hold's place in the schedule. Only the schedule changes it.
    fn slot(&self) -> &Mutex<ScheduleSlot>;

    /// Checks a due hold, and renews it if necessary. Returns the next check, or `None` if the hold has ended. If the
    /// machine `resumed`, timers are late.
    fn check_due(self: Arc<Self>, runner: usize, resumed: bool) -> Option<Checked>;

    /// The time by which the check may be early if another hold is due, so that their renewals are sent together.
    fn may_be_early(&self) -> Duration;

    /// Whether another runner polls a renewal of this hold.
    fn is_renewed_elsewhere(&self, runner: usize) -> bool;

    /// Ends a lost hold: nothing renews it any more.
    fn end_lost(&self);

    /// The hold as its process sees it. `None` if its release has begun.
    fn own(&self) -> Option<OwnHold>;

    /// Ends it at the server.
    fn release_job(self: Arc<Self>) -> Box<dyn Job>;
}

/// The result of checking a due hold.
pub(crate) struct Checked {
    /// The next check, whatever becomes of the renewal.
    pub(crate) next: Instant,
    /// Returns the next check once the renewal has ended.
    pub(crate) renewal: Option<BoxFuture<'static, Instant>>,
}

/// The place of a hold in the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScheduleSlot {
    /// Nowhere: it is new, or being checked.
    #[default]
    None,
    /// To be checked then; the number tells holds of the same moment apart.
    Due(Instant, u64),
    /// Struck off: it is being released, or was lost.
    Gone,
}

#[derive(Debug, Default)]
pub(super) struct Schedule {
    holds: BTreeMap<(Instant, u64), Arc<dyn ScheduledHold>>,
    /// The holds that were due and are being checked, by their address. Weak: the check may drop the last reference to
    /// a hold.
    checking: HashMap<usize, Weak<dyn ScheduledHold>>,
    last_number: u64,
}

impl Schedule {
    /// Looks after the hold at that time and no other; false when it was struck off.
    pub(super) fn put(&mut self, hold: &Arc<dyn ScheduledHold>, due: Instant) -> bool {
        let mut slot = hold.slot().lock();
        match *slot {
            ScheduleSlot::Gone => return false,
            ScheduleSlot::Due(due, number) => drop(self.holds.remove(&(due, number))),
            ScheduleSlot::None => self.checked(&**hold),
        }
        self.last_number += 1;
        *slot = ScheduleSlot::Due(due, self.last_number);
        self.holds.insert((due, self.last_number), hold.clone());
        true
    }

    /// False when the hold was struck off already.
    pub(super) fn strike_off(&mut self, hold: &dyn ScheduledHold) -> bool {
        match std::mem::replace(&mut *hold.slot().lock(), ScheduleSlot::Gone) {
            ScheduleSlot::Due(due, number) => drop(self.holds.remove(&(due, number))),
            ScheduleSlot::None => self.checked(hold),
            ScheduleSlot::Gone => return false,
        }
        true
    }

    /// Those that are due by then, out of the schedule; all of them without a time. If there is any, also those behind it that
    /// may be early.
    pub(super) fn take_due(&mut self, by: Option<Instant>) -> Vec<Arc<dyn ScheduledHold>> {
        let later = match by {
            Some(by) => {
                let mut later = self.holds.split_off(&(by, u64::MAX));
                if !self.holds.is_empty() {
                    let is_early = |due: Instant, hold: &Arc<dyn ScheduledHold>| {
                        due.saturating_duration_since(by) <= hold.may_be_early()
                    };
                    while let Some(next) = later.first_entry().filter(|next| is_early(next.key().0, next.get())) {
                        let (due, hold) = next.remove_entry();
                        self.holds.insert(due, hold);
                    }
                }
                later
            }
            None => BTreeMap::new(),
        };
        let due: Vec<_> = std::mem::replace(&mut self.holds, later).into_values().collect();
        for hold in &due {
            *hold.slot().lock() = ScheduleSlot::None;
            self.checking.insert(address(&**hold), Arc::downgrade(hold));
        }
        due
    }

    /// All that are looked after, those that are being checked too.
    pub(super) fn all(&self) -> Vec<Arc<dyn ScheduledHold>> {
        let checking = self.checking.values().filter_map(Weak::upgrade);
        self.holds.values().cloned().chain(checking).collect()
    }

    fn checked(&mut self, hold: &dyn ScheduledHold) {
        // Mostly it is a new one, and none is being checked.
        if !self.checking.is_empty() {
            self.checking.remove(&address(hold));
        }
    }

    /// Has this runner look now after what another one is renewing.
    pub(super) fn hasten(&mut self, runner: usize, now: Instant) {
        let renewing = self.holds.values().filter(|hold| hold.is_renewed_elsewhere(runner));
        for hold in renewing.cloned().collect::<Vec<_>>() {
            self.put(&hold, now);
        }
    }

    pub(super) fn first_due(&self) -> Option<Instant> {
        self.holds.keys().next().map(|(due, _)| *due)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }
}

/// The hold's address: a number that no other hold has while a reference to it is left.
fn address(hold: &dyn ScheduledHold) -> usize {
    std::ptr::from_ref(hold).cast::<()>().addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Fake(Mutex<ScheduleSlot>);

    impl ScheduledHold for Fake {
        fn slot(&self) -> &Mutex<ScheduleSlot> {
            &self.0
        }

        fn check_due(self: Arc<Self>, _runner: usize, _resumed: bool) -> Option<Checked> {
            None
        }

        fn may_be_early(&self) -> Duration {
            Duration::ZERO
        }

        fn is_renewed_elsewhere(&self, _runner: usize) -> bool {
            false
        }

        fn end_lost(&self) {}

        fn own(&self) -> Option<OwnHold> {
            None
        }

        fn release_job(self: Arc<Self>) -> Box<dyn Job> {
            unreachable!("only the schedule is tested")
        }
    }

    #[test]
    fn those_that_are_being_checked_count_until_they_are_put_back_or_gone() {
        let mut schedule = Schedule::default();
        let [one, other]: [Arc<dyn ScheduledHold>; 2] = [Arc::new(Fake::default()), Arc::new(Fake::default())];
        let now = Instant::now();
        assert!(schedule.put(&one, now) && schedule.put(&other, now));
        let due = schedule.take_due(Some(now));
        assert_eq!((due.len(), schedule.is_empty(), schedule.all().len()), (2, true, 2));
        assert!(schedule.put(&one, now));
        assert_eq!((schedule.all().len(), schedule.checking.len()), (2, 1));
        assert!(schedule.strike_off(&*other));
        assert_eq!((schedule.all().len(), schedule.checking.len()), (1, 0));
    }
}
