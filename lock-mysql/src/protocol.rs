//! The pieces that statements are made of. Everything that comes from a caller goes in as hexadecimal digits, so that
//! one text of several statements costs one round trip and nothing can be injected.

use std::fmt::{self, Display};
use std::time::Duration;

pub(crate) mod row_lock;

/// The longest label that is kept, in bytes.
pub(crate) const LABEL_BYTES: usize = 255;

/// Bytes as a literal, such as `x'6f6b'`. MySQL compares it with a `VARBINARY` byte by byte.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("x'")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("'")
    }
}

/// A label as a literal: its first [`LABEL_BYTES`] bytes, cut between two characters, or `''` for none.
pub(crate) fn label(label: Option<&str>) -> String {
    let label = label.unwrap_or_default();
    Hex(&label.as_bytes()[..label.floor_char_boundary(LABEL_BYTES)]).to_string()
}

/// The server's clock in microseconds since 1970, at this very moment: `NOW()` stands still while a statement waits.
/// The session's time zone is UTC.
pub(crate) const SERVER_MICROS: &str = "CAST(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6)) AS UNSIGNED)";

/// A duration in the whole seconds that MySQL's timeouts count in, never shorter than it is.
pub(crate) fn seconds_up(duration: Duration) -> u64 {
    let more = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(more).clamp(1, LONGEST_SECONDS)
}

/// The longest `wait_timeout` that both MySQL and MariaDB take: a year.
pub(crate) const LONGEST_SECONDS: u64 = 31_536_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_digits_gets_into_a_statement() {
        assert_eq!(Hex("a\0'; DROP".as_bytes()).to_string(), "x'6100273b2044524f50'");
        assert_eq!(Hex("Ö".as_bytes()).to_string(), "x'c396'");
        assert_eq!(Hex(b"").to_string(), "x''");
    }

    #[test]
    fn a_long_label_is_cut_between_two_characters() {
        assert_eq!(label(None), "x''");
        assert_eq!(label(Some("ok")), "x'6f6b'");
        let long = format!("{}ö", "a".repeat(254));
        assert_eq!(label(Some(&long)), Hex("a".repeat(254).as_bytes()).to_string());
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(seconds_up(Duration::ZERO), 1);
        assert_eq!(seconds_up(Duration::from_millis(1)), 1);
        assert_eq!(seconds_up(Duration::from_secs(2)), 2);
        assert_eq!(seconds_up(Duration::from_millis(2001)), 3);
        assert_eq!(seconds_up(Duration::MAX), LONGEST_SECONDS);
    }
}
