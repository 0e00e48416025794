//! Time as leases count it: by the runtime's clock, and on top of it whatever time the machine was suspended.

use std::time::Duration;

use crate::backend::rules::Moment;
use crate::sync::time::Instant;

/// A moment of a lease's time.
///
/// The clocks of std and tokio stand still while a machine is suspended, and the server's goes on. Two such moments lie
/// as far apart here as they do there. On tokio's paused time they are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(Instant);

impl Time {
    /// Now, whatever has become of the machine until now.
    pub(crate) fn now() -> Self {
        // In this order: a suspension between the two, too, comes after this was called.
        let suspended = suspended();
        Self(Instant::now() + suspended)
    }

    /// Now, or too early by suspensions that nobody has noticed yet: cheaper, for where early is the safe side.
    pub(crate) fn now_or_earlier() -> Self {
        Self(Instant::now() + suspended_as_seen())
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// When the runtime's clock will show it, unless the machine is suspended before.
    pub(crate) fn by_runtime(self) -> Instant {
        self.0.checked_sub(suspended_as_seen()).unwrap_or_else(Instant::now)
    }
}

impl Moment for Time {
    fn after(self, time: Duration) -> Option<Self> {
        self.0.checked_add(time).map(Self)
    }
}

/// Notices that the machine was suspended: timers stood still meanwhile and fire too late.
#[derive(Debug, Default)]
pub(crate) struct Lookout(Option<Duration>);

impl Lookout {
    /// Whether it was, since this was last asked.
    pub(crate) fn was_suspended(&mut self) -> bool {
        let suspended = suspended();
        self.0.replace(suspended).is_some_and(|before| before < suspended)
    }

    /// When to ask again, for somebody who waits until `planned`.
    pub(crate) fn next(planned: Instant) -> Instant {
        match system::CAN_TELL {
            true => planned.min(Instant::now() + LOOK_EVERY),
            false => planned,
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long the machine was suspended until now, in all since this was first asked.
fn suspended() -> Duration {
    #[cfg(test)]
    return system::look() + tests::look();
    #[cfg(not(test))]
    system::look()
}

/// The same, when it was last asked.
fn suspended_as_seen() -> Duration {
    #[cfg(test)]
    return system::seen() + tests::seen();
    #[cfg(not(test))]
    system::seen()
}

/// Linux has a clock that goes on and one that stands still. What one is ahead of the other grows in suspensions alone.
#[cfg(all(any(target_os = "linux", target_os = "android"), not(shuttle)))]
mod system {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use rustix::time::{ClockId, Timespec, clock_gettime};

    pub(super) const CAN_TELL: bool = true;

    /// The two are not read at once, so that their distance is inexact; nobody suspends a machine for less than this.
    const NOISE: i64 = 1_000_000;

    struct Seen {
        at_first: i64,
        latest: AtomicI64,
    }

    static SEEN: LazyLock<Seen> = LazyLock::new(|| {
        // Whatever comes between the readings makes a distance smaller: the largest is the best.
        let at_first = (0..8).map(|_| distance()).max().unwrap_or_default();
        Seen {
            at_first,
            latest: AtomicI64::new(at_first),
        }
    });

    /// In nanoseconds, or a little less.
    fn distance() -> i64 {
        let nanos = |time: Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
        let goes_on = nanos(clock_gettime(ClockId::Boottime));
        goes_on - nanos(clock_gettime(ClockId::Monotonic))
    }

    pub(super) fn look() -> Duration {
        let latest = SEEN.latest.load(Ordering::Relaxed);
        let distance = distance();
        if distance <= latest + NOISE {
            return SEEN.since_first(latest);
        }
        let latest = SEEN.latest.fetch_max(distance, Ordering::Relaxed);
        SEEN.since_first(latest.max(distance))
    }

    pub(super) fn seen() -> Duration {
        SEEN.since_first(SEEN.latest.load(Ordering::Relaxed))
    }

    impl Seen {
        fn since_first(&self, latest: i64) -> Duration {
            Duration::from_nanos((latest - self.at_first).unsigned_abs())
        }
    }
}

/// Elsewhere nobody tells. A model checker has a time of its own.
#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(shuttle))))]
mod system {
    use std::time::Duration;

    pub(super) const CAN_TELL: bool = false;

    pub(super) fn look() -> Duration {
        Duration::ZERO
    }

    pub(super) fn seen() -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
pub(crate) mod tests;
