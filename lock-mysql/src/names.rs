//! How names and labels stand in statements and in the tables. Everything that comes from a caller goes in as hexadecimal
//! digits, so that one text of several statements costs one round trip and nothing can be injected.

use std::fmt::{self, Display};

use lock_core::LockName;

/// A name as it is in the tables: its bytes, which a VARBINARY compares one by one.
pub(crate) fn hex(name: &LockName) -> String {
    Hex(name.as_str().as_bytes()).to_string()
}

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
}
