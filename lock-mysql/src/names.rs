//! Names and labels in statements and in the tables. All text from a caller is written as hexadecimal digits, so that
//! several statements in one text cost one round trip and nothing can be injected.

use lock_core::{LockName, Result};
use lock_kit::tables::{LABEL_BYTES, LONGEST_PREFIX, check_configured, hexadecimal, label_bytes};

/// The condition of a row that no lock has: no name is empty. A statement that cannot lock such a row waits for the whole table.
pub(crate) const NO_ROW: &str = "`name`=x''";

/// A name as a literal, such as `x'6f6b'`: its bytes, which a `VARBINARY` compares one by one.
pub(crate) fn name_literal(name: &LockName) -> String {
    hex(name.as_str().as_bytes())
}

/// The part of a label that is kept as a literal, or `x''` for none.
pub(crate) fn label_literal(label: Option<&str>) -> String {
    hex(label_bytes(label.unwrap_or_default()))
}

/// The same, filled up with zeros so that labels of about the same length have the same.
pub(crate) fn padded_label_literal(label: Option<&str>) -> String {
    const STEP: usize = 64;
    let mut bytes = label_bytes(label.unwrap_or_default()).to_vec();
    bytes.resize(bytes.len().max(1).next_multiple_of(STEP).min(LABEL_BYTES), 0);
    hex(&bytes)
}

/// A label without what fills it up.
pub(crate) fn unpadded(label: &[u8]) -> &[u8] {
    let end = label.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &label[..end]
}

/// Checks what [`MySqlConfig::with_table`](crate::MySqlConfig::with_table) allows.
pub(crate) fn check_table_prefix(table: &str) -> Result<()> {
    check_configured("table", table, LONGEST_PREFIX)
}

/// Bytes as a literal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("x'{}'", hexadecimal(bytes))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    /// The contents of the tables must not change: other versions of this crate read them.
    #[test]
    fn a_name_is_its_bytes_in_digits() {
        let literal = |name| name_literal(&LockName::new(name).unwrap());
        assert_eq!(literal("orders/42"), "x'6f72646572732f3432'");
        assert_eq!(literal("a\0'; DROP"), "x'6100273b2044524f50'");
        assert_eq!(literal("Ö"), "x'c396'");
    }

    #[test]
    fn a_long_label_is_cut_between_two_characters() {
        assert_eq!(label_literal(None), "x''");
        assert_eq!(label_literal(Some("ok")), "x'6f6b'");
        let long = format!("{}ö", "a".repeat(254));
        assert_eq!(label_literal(Some(&long)), hex("a".repeat(254).as_bytes()));
        let padded = |label| padded_label_literal(label).len() / 2 - 1;
        assert_eq!([None, Some(""), Some("ok")].map(padded), [64; 3]);
        assert_eq!(
            [&long[..64], &long[..65], &long].map(|label| padded(Some(label))),
            [64, 128, 255]
        );
        assert_eq!(unpadded(b"o\0k\0\0"), b"o\0k");
        assert_eq!((unpadded(b""), unpadded(b"\0")), (&b""[..], &b""[..]));
    }
}
