//! The pauses of waiters that ask their server again.
//!
//! For backends whose server does not keep a waiter's place. A waiter asks, is refused, and asks again after a pause,
//! unless something wakes it before. A wake-up may get lost, so a pause is always bounded.

use std::time::Duration;

/// The events that wake a waiter before its pause is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakes {
    /// The release of the name, which finds this waiter's mark at the server.
    Release,
    /// The next grant, which calls one of those who wait without a mark.
    Turn,
    /// Nothing.
    Nobody,
    /// The connection by which it is woken, once that is made.
    Connection,
    /// It is to ask at once.
    Now,
}

/// The shortest and the longest time between two questions of a waiter that nobody wakes, if few names are waited for.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));
/// The longest time between two questions of one that a release wakes: the call that wakes it may be lost.
const PAUSE_IF_WOKEN: Duration = Duration::from_secs(1);
/// The longest time between two questions of one whose turn comes: whoever was to call it may be gone, or have called another
/// one that is gone.
const PAUSE_UNTIL_TURN: Duration = Duration::from_millis(500);
/// The longest time between two questions of one that waits to share the name, whatever wakes it: these cost the server more.
const PAUSE_TO_SHARE: Duration = Duration::from_secs(2);
/// Each name that is waited for adds so much to the longest time: a process asks at most a thousand times a second.
const FOR_EACH_NAME: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The longest time between two questions of a waiter, if the process waits for so many names. `shares`: whether it waits to
/// share its name.
pub fn longest_pause(names: usize, wakes: Wakes, shares: bool) -> Duration {
    let names = u32::try_from(names).unwrap_or(u32::MAX);
    let one = match wakes {
        _ if shares => PAUSE_TO_SHARE,
        Wakes::Release => PAUSE_IF_WOKEN,
        Wakes::Turn | Wakes::Connection => PAUSE_UNTIL_TURN,
        Wakes::Nobody | Wakes::Now => PAUSES.1,
    };
    (one + FOR_EACH_NAME.saturating_mul(names)).min(LONGEST_PAUSE)
}

/// The pause after the `refused`th refusal, from 1: longer and longer up to [`longest`](longest_pause), but no longer than until
/// the hold ends after `rest`, and with so much jitter that waiters do not ask at the same time. `random` is from 0 to 1.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use lock_kit::pacing::{Wakes, longest_pause, pause};
/// let longest = longest_pause(1, Wakes::Nobody, false);
/// let rest = Duration::from_secs(30);
/// assert_eq!(pause(2, longest, rest, Wakes::Nobody, 1.0), Duration::from_millis(10));
/// ```
pub fn pause(refused: u32, longest: Duration, rest: Duration, wakes: Wakes, random: f64) -> Duration {
    let shortest = PAUSES.0;
    let backoff = match wakes {
        Wakes::Now => return Duration::ZERO,
        Wakes::Release | Wakes::Turn | Wakes::Connection => longest,
        Wakes::Nobody => shortest
            .saturating_mul(1 << refused.saturating_sub(1).min(16))
            .min(longest),
    };
    // Not all at the moment when the hold ends.
    let end = rest + shortest.mul_f64(random);
    backoff.mul_f64(0.5 + random / 2.0).min(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The pause of one that waits to have the name alone.
    fn alone(refused: u32, names: usize, rest: Duration, wakes: Wakes, random: f64) -> Duration {
        pause(refused, longest_pause(names, wakes, false), rest, wakes, random)
    }

    #[test]
    fn asks_less_and_less_often_and_when_the_hold_ends() {
        let pauses = [1, 2, 3, 4, 5, 99].map(|refused| alone(refused, 0, ms(9999), Wakes::Nobody, 1.0));
        assert_eq!(pauses, [ms(5), ms(10), ms(20), ms(40), ms(50), ms(50)]);
        assert_eq!(alone(99, 0, ms(9999), Wakes::Nobody, 0.0), ms(25));
        assert_eq!(alone(99, 0, ms(7), Wakes::Nobody, 0.0), ms(7));
        assert_eq!(alone(99, 0, ms(7), Wakes::Nobody, 1.0), ms(12));
    }

    #[test]
    fn one_that_is_woken_asks_seldom() {
        assert_eq!(alone(1, 0, ms(9999), Wakes::Release, 1.0), ms(1000));
        assert_eq!(alone(1, 0, ms(9999), Wakes::Release, 0.0), ms(500));
        assert_eq!(alone(1, 0, ms(7), Wakes::Release, 1.0), ms(12));
        assert_eq!(alone(1, 0, ms(9999), Wakes::Turn, 1.0), ms(500));
        assert_eq!(alone(9, 0, ms(9999), Wakes::Now, 1.0), ms(0));
    }

    #[test]
    fn one_that_waits_to_share_asks_at_most_once_a_second() {
        for wakes in [Wakes::Turn, Wakes::Connection, Wakes::Nobody] {
            let longest = longest_pause(0, wakes, true);
            assert_eq!(pause(10, longest, ms(9999), wakes, 0.0), ms(1000), "{wakes:?}");
        }
        let longest = longest_pause(0, Wakes::Nobody, true);
        let pauses = [1, 2, 9, 10].map(|refused| pause(refused, longest, ms(9999), Wakes::Nobody, 1.0));
        assert_eq!(pauses, [ms(5), ms(10), ms(1280), ms(2000)]);
    }

    #[test]
    fn a_thousand_names_ask_a_thousand_times_a_second() {
        assert_eq!(alone(99, 1000, ms(60_000), Wakes::Nobody, 1.0), ms(1050));
        assert_eq!(alone(u32::MAX, usize::MAX, ms(70), Wakes::Nobody, 1.0), ms(75));
        assert_eq!(
            alone(u32::MAX, usize::MAX, ms(99_999), Wakes::Release, 1.0),
            LONGEST_PAUSE
        );
    }
}
