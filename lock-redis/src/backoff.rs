//! How long to wait before trying again. The randomness comes in as a number from 0 to 1, so that tests can choose.

use std::time::Duration;

/// When a waiter asks again after it was told that the name is taken: between the halves and the whole of a step that
/// grows from 5 ms to 50 ms, but not after the hold may have ended.
///
/// `previous` is what it was told the time before, `rest` what is left of the hold (`None`: it has no end).
pub(crate) fn ask_again(previous: Option<Duration>, rest: Option<Duration>, random: f64) -> Duration {
    const FIRST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_millis(50);
    let step = previous.map_or(FIRST, |previous| (previous * 2).clamp(FIRST, LONGEST));
    // The server's clock counts whole milliseconds: a hold with 0 left ends within the next.
    let rest = rest.map_or(Duration::MAX, |rest| rest + Duration::from_millis(1));
    jittered(step, random).min(rest)
}

/// The longest wait before connecting again.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long to wait before connecting again after `failures` in a row: not at all after none, then from 20 ms up to
/// one second, of which the jitter takes up to half.
pub(crate) fn reconnect(failures: u32, random: f64) -> Duration {
    const FIRST: Duration = Duration::from_millis(20);
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => jittered((FIRST * (1 << doublings.min(10))).min(LONGEST_PAUSE), random),
    }
}

fn jittered(step: Duration, random: f64) -> Duration {
    step.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_waiter_asks_less_and_less_often() {
        assert_eq!(ask_again(None, None, 1.0), ms(5));
        assert_eq!(ask_again(None, None, 0.0), Duration::from_micros(2500));
        assert_eq!(ask_again(Some(ms(5)), None, 1.0), ms(10));
        assert_eq!(ask_again(Some(ms(40)), None, 1.0), ms(50));
        assert_eq!(ask_again(Some(ms(1)), None, 1.0), ms(5));
    }

    #[test]
    fn a_waiter_is_there_when_the_hold_ends() {
        assert_eq!(ask_again(Some(ms(50)), Some(ms(7)), 1.0), ms(8));
        assert_eq!(ask_again(Some(ms(50)), Some(ms(0)), 1.0), ms(1));
        assert_eq!(ask_again(Some(ms(50)), Some(ms(700)), 1.0), ms(50));
    }

    #[test]
    fn reconnects_at_once_and_then_at_most_every_second() {
        assert_eq!(reconnect(0, 1.0), ms(0));
        assert_eq!(reconnect(1, 1.0), ms(20));
        assert_eq!(reconnect(2, 0.0), ms(20));
        assert_eq!(reconnect(4, 1.0), ms(160));
        assert_eq!(reconnect(7, 1.0), ms(1000));
        assert_eq!(reconnect(u32::MAX, 1.0), ms(1000));
    }
}
