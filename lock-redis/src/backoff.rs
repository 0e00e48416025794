//! How long to wait before trying again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// The shortest time between two tries to connect, whoever wants one.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// How long to wait before connecting again after `failures` in a row if nobody wants a connection meanwhile: not at all
/// after none, then from 20 ms up to half a second, and with jitter up to as much again.
pub(crate) fn reconnect(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_millis(500);
    // After so many it is at its longest.
    const STEPS: u32 = 10;
    let Some(earlier) = failures.checked_sub(1) else {
        return Duration::ZERO;
    };
    let mut pauses = exponential(FIRST, LONGEST).build();
    pauses.nth(earlier.min(STEPS) as usize).unwrap_or(LONGEST)
}

/// When to ask again who has a name, as long as that is somebody who wakes nobody: from 5 ms up to 50 ms, and with
/// jitter up to as much again.
pub(crate) fn ask_again() -> impl Iterator<Item = Duration> + Send {
    exponential(Duration::from_millis(5), Duration::from_millis(50)).build()
}

fn exponential(first: Duration, longest: Duration) -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(first)
        .with_max_delay(longest)
        .with_jitter()
        .without_max_times()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn reconnects_at_once_and_then_less_and_less_often() {
        assert_eq!(reconnect(0), ms(0));
        for (failures, least) in [(1, 20), (2, 39), (4, 159), (6, 499), (u32::MAX, 499)] {
            let pause = reconnect(failures);
            assert!(
                (ms(least)..=ms(2 * least + 2)).contains(&pause),
                "{failures}: {pause:?}"
            );
        }
    }

    #[test]
    fn a_foreign_holder_is_asked_for_less_and_less_often_but_always_again() {
        let pauses: Vec<_> = ask_again().take(1000).collect();
        assert_eq!(pauses.len(), 1000);
        assert!((ms(4)..=ms(11)).contains(&pauses[0]), "{pauses:?}");
        assert!(
            pauses[10..].iter().all(|pause| (ms(49)..=ms(101)).contains(pause)),
            "{pauses:?}"
        );
    }
}
