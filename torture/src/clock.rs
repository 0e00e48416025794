//! The one clock of a run: monotonic, absolute, the same in all processes of the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative on this clock.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The moment that lies this far ahead, read such that neither a pause nor a lost time slice moves it: the two clocks
/// cannot be read at once. `None` when nothing is left.
pub(crate) fn at_end_of(valid_for: impl Fn() -> Duration) -> Option<u64> {
    const AT_ONCE: u64 = 200_000;
    for attempt in 1.. {
        let before = now();
        let left = valid_for();
        if left.is_zero() {
            return None;
        }
        if now() - before < AT_ONCE || attempt == 50 {
            return Some(before + nanos(left));
        }
    }
    None
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// For people.
pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
