//! The age of a kept node, as far as its waiter can tell. No I/O.

use std::time::Duration;

/// A time of ZooKeeper's leader, with the transaction that it was noted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerTime {
    pub(crate) zxid: i64,
    /// Milliseconds, rounded down.
    pub(crate) at: i64,
}

/// The time from the last write of a kept node to the creation of a waiter's own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// At least this, by one clock.
    AtLeast(Duration),
    /// The node was written later.
    Nothing,
    /// By two clocks, or by one that was set back: nobody knows.
    Unknown,
}

/// The time that has passed from `kept` to `own`.
///
/// A leader numbers its transactions with its epoch, which no other leader has. So times of one epoch are of one clock. If that was set
/// back in between, and it shows, they do not count either.
pub(crate) fn passed(kept: ServerTime, own: ServerTime) -> Passed {
    if own.zxid < kept.zxid {
        return Passed::Nothing;
    }
    match own.at.checked_sub(kept.at) {
        Some(passed) if epoch(own.zxid) == epoch(kept.zxid) && passed >= 0 => {
            // Both times were rounded down.
            Passed::AtLeast(Duration::from_millis((passed - 1).max(0).unsigned_abs()))
        }
        _ => Passed::Unknown,
    }
}

fn epoch(zxid: i64) -> i64 {
    zxid >> 32
}

/// The time that has certainly passed for everybody, when the time `here` has passed here: clocks may differ by a
/// twentieth.
pub(crate) fn certain(here: Duration) -> Duration {
    here - here / 20
}

/// The time to wait here until `time` has certainly passed for everybody.
pub(crate) fn wait_for(time: Duration) -> Duration {
    time.saturating_add(time / 19).saturating_add(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(epoch: i64, transaction: i64, at: i64) -> ServerTime {
        let zxid = epoch << 32 | transaction;
        ServerTime { zxid, at }
    }

    fn at_least(milliseconds: u64) -> Passed {
        Passed::AtLeast(Duration::from_millis(milliseconds))
    }

    #[test]
    fn times_of_one_clock_are_compared() {
        let since = |own| passed(time(1, 5, 1_000), own);
        assert_eq!(since(time(1, 6, 1_101)), at_least(100));
        assert_eq!(since(time(1, 6, 1_000)), at_least(0));
        // One transaction wrote both.
        assert_eq!(since(time(1, 5, 1_000)), at_least(0));
        // The kept node was written after the waiter's: what the clock shows says nothing.
        assert_eq!(since(time(1, 4, 9_000)), Passed::Nothing);
        assert_eq!(since(time(0, 9, 9_000)), Passed::Nothing);
    }

    #[test]
    fn times_of_two_clocks_are_not_compared() {
        let since = |own| passed(time(1, 5, 1_000), own);
        assert_eq!(since(time(2, 1, 900_000)), Passed::Unknown);
        assert_eq!(since(time(2, 1, 1_001)), Passed::Unknown);
        // The clock was set back.
        assert_eq!(since(time(1, 6, 999)), Passed::Unknown);
        assert_eq!(passed(time(1, 5, i64::MIN), time(1, 6, i64::MAX)), Passed::Unknown);
    }

    #[test]
    fn a_twentieth_of_a_time_is_not_certain() {
        assert_eq!(certain(Duration::from_secs(20)), Duration::from_secs(19));
        assert_eq!(certain(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_wait_is_long_enough_for_a_slower_clock() {
        for seconds in [0, 1, 90, 86_400] {
            let time = Duration::from_secs(seconds);
            let wait = wait_for(time);
            assert!(certain(wait) >= time, "{wait:?}");
            assert!(wait <= time + time / 18 + Duration::from_millis(1), "{wait:?}");
        }
        assert_eq!(wait_for(Duration::MAX), Duration::MAX);
    }
}
