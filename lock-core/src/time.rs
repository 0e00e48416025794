//! Time as leases count it: by the runtime's clock, and on top of it whatever time the machine was suspended.

use std::time::Duration;

use crate::sync::time::{Instant, sleep_until};

/// Formats a limit for a message, such as "within 5s".
pub(crate) fn within(limit: Duration) -> String {
    match limit.is_zero() {
        true => "at once".to_owned(),
        false => format!("within {limit:?}"),
    }
}

/// Formats the time between two events, such as "3s before".
pub(crate) fn before(time: Duration) -> String {
    match time < Duration::from_millis(1) {
        true => "just before".to_owned(),
        false => format!("{time:.1?} before"),
    }
}

/// Now, also in the destructor of a thread-local. There tokio's thread-locals may be gone, and its clock then panics with `test-util`.
pub(crate) fn now_anywhere() -> Instant {
    #[cfg(not(shuttle))]
    if crate::runtime::current_id().is_none() {
        return std::time::Instant::now().into();
    }
    Instant::now()
}

/// A moment of a lease's time.
///
/// The clocks of std and tokio stand still while a machine is suspended, and the server's clock does not. Two of these
/// moments are as far apart as they are by the server's clock. On tokio's paused time they are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseInstant(Instant);

impl LeaseInstant {
    /// Now, whatever has become of the machine until now.
    pub(crate) fn now() -> Self {
        let now = Instant::now();
        Self(now + suspended(now))
    }

    /// The same, where [`now_anywhere`] is needed.
    pub(crate) fn now_anywhere() -> Self {
        let now = now_anywhere();
        Self(now + suspended(now))
    }

    /// Now, or too early by suspensions that nobody has noticed yet: cheaper, for where early is the safe side.
    pub(crate) fn now_or_earlier() -> Self {
        Self(Instant::now() + suspended_as_seen())
    }

    pub(crate) fn checked_add(self, time: Duration) -> Option<Self> {
        self.0.checked_add(time).map(Self)
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// The same moment by the runtime's clock, unless the machine is suspended before.
    pub(crate) fn by_runtime(self) -> Instant {
        self.0.checked_sub(suspended_as_seen()).unwrap_or_else(Instant::now)
    }
}

/// For ever, without a time.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Notices that the machine was suspended: timers stood still meanwhile and fire too late.
#[derive(Debug, Default)]
pub(crate) struct SuspendDetector(Option<Duration>);

impl SuspendDetector {
    /// Returns whether the machine was suspended since the last call.
    pub(crate) fn was_suspended(&mut self) -> bool {
        let suspended = suspended(Instant::now());
        self.0.replace(suspended).is_some_and(|before| before < suspended)
    }

    /// The moment of the next check, for a task that waits until `planned`.
    pub(crate) fn next(planned: Instant) -> Instant {
        match system::CAN_TELL {
            true => planned.min(Instant::now() + LOOK_EVERY),
            false => planned,
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The total time for which the machine was suspended, from the first call until `now`.
fn suspended(now: Instant) -> Duration {
    #[cfg(test)]
    return system::look(now) + tests::look();
    #[cfg(not(test))]
    system::look(now)
}

/// The same, when it was last asked.
fn suspended_as_seen() -> Duration {
    #[cfg(test)]
    return system::seen() + tests::seen();
    #[cfg(not(test))]
    system::seen()
}

/// Linux has one clock that runs during a suspension, and one that stands still. Their distance grows in suspensions only.
#[cfg(all(any(target_os = "linux", target_os = "android"), not(shuttle)))]
mod system {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    use std::time::Duration;

    use rustix::time::{ClockId, Timespec, clock_gettime};

    use crate::sync::time::Instant;

    pub(super) const CAN_TELL: bool = true;

    /// The two clocks are not read at once, so their distance is inexact. No suspension is shorter than this.
    const NOISE: i64 = 1_000_000;

    /// Around a suspension the machine is awake for far longer than this without running any task, while its drivers go
    /// to sleep and come back. So there was no suspension between two looks that are this close.
    const CLOSE: u64 = 50_000;

    struct Seen {
        at_first: i64,
        latest: AtomicI64,
        start: Instant,
        /// The moment of the last look, in nanoseconds since the start.
        looked: AtomicU64,
    }

    static SEEN: LazyLock<Seen> = LazyLock::new(|| {
        // A delay between the readings makes a distance smaller, so the largest one is the best.
        let at_first = (0..8).map(|_| distance()).max().unwrap_or_default();
        Seen {
            at_first,
            latest: AtomicI64::new(at_first),
            start: Instant::now(),
            looked: AtomicU64::new(0),
        }
    });

    /// In nanoseconds, or a little less.
    fn distance() -> i64 {
        let nanos = |time: Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
        let goes_on = nanos(clock_gettime(ClockId::Boottime));
        goes_on - nanos(clock_gettime(ClockId::Monotonic))
    }

    pub(super) fn look(now: Instant) -> Duration {
        let now = now.saturating_duration_since(SEEN.start).as_nanos();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        // Shortly after another look there is nothing new to see.
        if now.abs_diff(SEEN.looked.load(Ordering::Acquire)) >= CLOSE {
            let distance = distance();
            if distance > SEEN.latest.load(Ordering::Relaxed) + NOISE {
                SEEN.latest.fetch_max(distance, Ordering::Relaxed);
            }
            SEEN.looked.store(now, Ordering::Release);
        }
        seen()
    }

    pub(super) fn seen() -> Duration {
        let nanos = SEEN.latest.load(Ordering::Relaxed) - SEEN.at_first;
        Duration::from_nanos(nanos.unsigned_abs())
    }
}

/// Elsewhere nobody tells. A model checker has a time of its own.
#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(shuttle))))]
mod system {
    use std::time::Duration;

    use crate::sync::time::Instant;

    pub(super) const CAN_TELL: bool = false;

    pub(super) fn look(_now: Instant) -> Duration {
        Duration::ZERO
    }

    pub(super) fn seen() -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
pub(crate) mod tests;
