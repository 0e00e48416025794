//! Bugs, one for each race, that the tests of races have to find: without them nobody knows whether they find any. In
//! every other build than theirs there are none.

#[cfg(shuttle)]
pub(crate) use self::planted::is_planted;
#[cfg(shuttle)]
pub use self::planted::plant;

/// A planted bug.
#[cfg_attr(not(shuttle), expect(unreachable_pub, reason = "the tests of races see it"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A renewal does not ask whether the release has begun.
    RenewsAfterRelease,
    /// An answer that comes after the release has begun brings the lease back to life.
    AnswerRevives,
    /// What was handed over to somebody who has gone is kept for them.
    HandsOverToNobody,
    /// A shutdown looks whether all is done, and then listens whether it gets done.
    LooksBeforeItListens,
    /// A hold whose last guard has gone is shared all the same.
    SharesWhatHasEnded,
    /// An acquire that came too late leaves what was granted in that moment.
    LeavesLateGrant,
    /// A runner that another one has replaced takes work.
    WorksWhenReplaced,
    /// A try that is refused while a release is under way does not ask again.
    AsksOnce,
}

#[cfg(not(shuttle))]
pub(crate) const fn is_planted(_: Plant) -> bool {
    false
}

#[cfg(shuttle)]
mod planted {
    use std::cell::Cell;

    use super::Plant;

    thread_local! {
        /// Shuttle runs all tasks of a test on one thread.
        static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
    }

    /// From here on, this bug is there, and no other.
    pub fn plant(plant: Option<Plant>) {
        PLANTED.set(plant);
    }

    pub(crate) fn is_planted(plant: Plant) -> bool {
        PLANTED.get() == Some(plant)
    }
}
