//! When a waiter looks whether it is its turn, if nobody wakes it.

use std::time::Duration;

/// The longest that a place lasts without a refresh; the scripts know it too.
const LONGEST_PLACE: Duration = Duration::from_secs(15);

/// The longest that an offer may wait: a place outlives several.
pub(crate) const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// How long a waiter's place lasts if it does not refresh it: no longer than its hold would.
pub(crate) fn place_lasts(ttl: Duration, grace: Duration) -> Duration {
    ttl.clamp(3 * grace, LONGEST_PLACE)
}

/// When a waiter asks again: in time to keep its place, and when the name becomes free unless somebody passes it on.
/// Those behind the first look a grace later each, so that not all of them come at once.
///
/// `rest` is what is left of the hold (`None`: it has no end), `ahead` how many come before, `random` from 0 to 1.
pub(crate) fn look_after(
    place: Duration,
    rest: Option<Duration>,
    ahead: u32,
    grace: Duration,
    random: f64,
) -> Duration {
    // The server's clock counts whole milliseconds: a hold with 0 left ends within the next.
    const TICK: Duration = Duration::from_millis(1);
    let refresh = (place / 3).mul_f64(0.8 + random / 5.0);
    match rest {
        Some(rest) => refresh.min((rest + TICK).saturating_add(grace.saturating_mul(ahead))),
        None => refresh,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = ms(100);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_place_lasts_as_long_as_a_hold_within_bounds() {
        assert_eq!(place_lasts(ms(10), GRACE), ms(300));
        assert_eq!(place_lasts(ms(1500), GRACE), ms(1500));
        assert_eq!(place_lasts(ms(60_000), GRACE), ms(15_000));
        assert_eq!(place_lasts(ms(10), LONGEST_GRACE), LONGEST_PLACE);
    }

    #[test]
    fn a_place_is_refreshed_three_times_in_its_life() {
        for ahead in [0, 1, 1000] {
            assert_eq!(look_after(ms(900), None, ahead, GRACE, 1.0), ms(300));
            assert_eq!(look_after(ms(900), Some(ms(60_000)), ahead, GRACE, 0.0), ms(240));
        }
    }

    #[test]
    fn the_first_looks_when_the_hold_ends_and_the_others_after_it() {
        let look = |rest, ahead| look_after(ms(15_000), Some(ms(rest)), ahead, GRACE, 1.0);
        assert_eq!([look(0, 0), look(7, 0)], [ms(1), ms(8)]);
        assert_eq!([look(7, 1), look(7, 2)], [ms(108), ms(208)]);
        assert_eq!(look(7, u32::MAX), ms(5000));
    }
}
