//! Durations as people write them.

use std::time::Duration;

/// The most digits of one number, and the most bytes of a text. `humantime` panics where seconds overflow, which takes more.
const MOST_DIGITS: usize = 10;
const LONGEST: usize = 64;

/// A duration as people write it, with its unit: `500ms`, `10s`, `1m 30s`. `None` for anything else, and for more than ten digits in
/// a row. For backends, whose URLs have durations.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// use lock_core::backend::parse_duration;
///
/// assert_eq!(parse_duration("1m 30s"), Some(Duration::from_secs(90)));
/// assert_eq!(parse_duration("90"), None);
/// ```
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let is_short = text.len() <= LONGEST && numbers.all(|number| number.len() <= MOST_DIGITS);
    is_short.then(|| humantime::parse_duration(text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sum_of_numbers_overflows() {
        for text in ["9999999999y", "9999999999y 9999999999y 9999999999y 9999999999y 999ms"] {
            assert!(parse_duration(text).is_some(), "{text}");
        }
        for text in [
            "18446744073709551615s 1000ms",
            "18446744073709551615s1000ms",
            "10000000000s",
            "",
            "1",
            "-1s",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
