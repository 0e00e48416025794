//! Pauses between tries.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// The shortest time from the beginning of one try to connect to the next, however many callers ask for one: 50 ms. A server that
/// is down is not flooded then, and one that is back is noticed soon.
pub const DIAL_SPACING: Duration = Duration::from_millis(50);

/// The pauses after failures in a row, without end: they double from `first` up to `longest`, and jitter adds up to as much again.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use lock_kit::backoff::pauses;
/// let mut pauses = pauses(Duration::from_millis(20), Duration::from_millis(500));
/// let first = pauses.next().expect("there is always one more");
/// assert!((20..=40).contains(&first.as_millis()));
/// ```
pub fn pauses(first: Duration, longest: Duration) -> impl Iterator<Item = Duration> + Send + use<> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(first)
        .with_max_delay(longest)
        .with_jitter()
        .without_max_times();
    pauses.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_never_end() {
        let (first, longest) = (Duration::from_millis(20), Duration::from_millis(500));
        let pauses: Vec<_> = pauses(first, longest).take(100).collect();
        assert_eq!(pauses.len(), 100);
        for (number, pause) in pauses.iter().enumerate() {
            let least = first.saturating_mul(1 << number.min(10)).min(longest);
            // Jitter adds less than as much again.
            assert!((least..=2 * least).contains(pause), "{number}: {pause:?}");
        }
    }
}
