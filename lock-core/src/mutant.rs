//! Mutants of core: one deliberate bug for each race, which the tests of races must find. They show that the tests can
//! fail. Every other build has none of them.

#[cfg(shuttle)]
pub use self::active::activate;
#[cfg(shuttle)]
pub(crate) use self::active::is_active;

/// A deliberate bug.
#[cfg_attr(not(shuttle), expect(unreachable_pub, reason = "the tests of races see it"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A renewal does not ask whether the release has begun.
    RenewsAfterRelease,
    /// An answer that comes after the release has begun brings the lease back to life.
    AnswerRevives,
    /// A shutdown looks whether all is done, and then listens whether it gets done.
    LooksBeforeItListens,
    /// A shutdown counts the jobs before the calls: one that is dropped in between is counted as neither.
    CountsJobsFirst,
    /// A hold whose last guard has gone is shared all the same.
    SharesWhatHasEnded,
    /// An acquire that came too late leaves what was granted in that moment.
    LeavesLateGrant,
    /// A runner that another one has replaced takes work.
    WorksWhenReplaced,
    /// A try that is refused while a release is under way does not ask again.
    AsksOnce,
    /// A reader joins a shared hold whose last guard has gone.
    JoinsWhatHasEnded,
    /// A line of permits stays closed when the request that closed it is granted or gone.
    StaysClosed,
    /// After an upgrade has replaced a hold, answers to the renewals of the former hold still count.
    HeedsTheFormerHold,
    /// A hold counts as lost if the server does not know it, though an upgrade may have replaced it.
    TakesAGrantForALoss,
    /// A hold is released before its upgrade is undone.
    ReleasesBeforeTheUndo,
    /// A hold that was passed to a caller who has gone is kept, and not released.
    PassesToNobody,
    /// A loss that is reported during a pass reaches the giver alone, and not the next holder.
    MissesALossInAPass,
    /// A waiter whose time is up leaves the line before it reads the last known state of the name.
    LeavesBeforeTheLastWord,
}

#[cfg(not(shuttle))]
pub(crate) const fn is_active(_: Mutant) -> bool {
    false
}

#[cfg(shuttle)]
mod active {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        /// Shuttle runs all tasks of a test on one thread.
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Makes this the one mutant that is active from here on.
    pub fn activate(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }

    pub(crate) fn is_active(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }
}
