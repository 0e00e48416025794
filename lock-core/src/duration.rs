//! Durations as people write them.

use std::time::Duration;

/// The most digits of one number, and the most bytes of a text. `humantime` panics where seconds overflow, which takes more.
const MOST_DIGITS: usize = 10;
const LONGEST: usize = 64;
/// The longest duration that is written with numbers of so many digits: 9,999,999,999 years of `humantime`.
const MOST: Duration = Duration::from_secs(9_999_999_999 * 31_557_600);

/// A duration as people write it, with its unit: `500ms`, `10s`, `1m 30s`. `None` for anything else, for numbers of more than ten
/// digits, and for more than 9,999,999,999 years. For backends, whose URLs have durations.
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
    // To `humantime`, `1 0s` is `10s`.
    let mut numbers = text.split(|c: char| !c.is_ascii_digit() && !c.is_whitespace());
    let digits = |number: &str| number.chars().filter(char::is_ascii_digit).count();
    let is_short = text.len() <= LONGEST && numbers.all(|number| digits(number) <= MOST_DIGITS);
    let duration = is_short.then(|| humantime::parse_duration(text).ok())?;
    duration.filter(|duration| *duration <= MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sum_of_numbers_overflows() {
        for text in ["9999999999y", "9999999998y 11months 29d 1h 1m 1s 1ms", "1 0s"] {
            assert!(parse_duration(text).is_some(), "{text}");
        }
        for text in [
            "18446744073709551615s 1000ms",
            "18446744073709551615s1000ms",
            "10000000000s",
            "18446744 073709551615s 1000ms",
            "18446744\u{2003}073709551615s 1000ms",
            "9999999999y 1ms",
            "9999999999y 9999999999y 9999999999y 9999999999y 999ms",
            "",
            "1",
            "-1s",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
