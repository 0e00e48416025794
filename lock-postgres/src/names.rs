//! How names, labels and holder ids stand in statements and in the tables.

use std::error::Error as StdError;

use bytes::{BufMut, BytesMut};
use lock_core::backend::HolderId;
use lock_core::{Error, ErrorKind, LockName, Result};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// The longest prefix of table names. It leaves room for the endings: PostgreSQL cuts a name after 63 bytes.
const LONGEST_PREFIX: usize = 48;
/// The longest name of a table or a schema.
pub(crate) const LONGEST_IDENTIFIER: usize = 63;
/// The longest label that is kept, in bytes.
const LABEL_BYTES: usize = 255;

/// A holder id as a `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id([u8; 16]);

impl Id {
    /// As a literal.
    pub(crate) fn literal(self) -> String {
        format!("'{self}'::uuid")
    }

    /// From the text of a notification or of a row, with or without hyphens.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|digit| *digit != '-').collect();
        let is_id = digits.len() == HolderId::HEX_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_id)?;
        Some(Self(number.to_be_bytes()))
    }
}

impl From<HolderId> for Id {
    fn from(holder: HolderId) -> Self {
        let number = u128::from_str_radix(&holder.to_string(), 16);
        Self(
            number
                .expect("a holder id is written in 32 hexadecimal digits")
                .to_be_bytes(),
        )
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }
}

/// A name as the bytes of its column.
pub(crate) fn name_bytes(name: &LockName) -> &[u8] {
    name.as_str().as_bytes()
}

/// A label as the bytes of its column: its first [`LABEL_BYTES`] bytes, cut between two characters.
pub(crate) fn label_bytes(label: Option<&str>) -> Option<&[u8]> {
    let end = |label: &str| {
        (0..=LABEL_BYTES.min(label.len()))
            .rev()
            .find(|end| label.is_char_boundary(*end))
    };
    label.map(|label| &label.as_bytes()[..end(label).unwrap_or(0)])
}

/// Bytes as a literal without a backslash: what that means depends on a setting.
pub(crate) fn literal(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("decode('{digits}','hex')")
}

/// The same, or `NULL`.
pub(crate) fn literal_or_null(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| "NULL::bytea".to_owned(), literal)
}

/// A table in a schema, between quotation marks.
pub(crate) fn quoted(schema: Option<&str>, table: &str) -> String {
    match schema {
        Some(schema) => format!("\"{schema}\".\"{table}\""),
        None => format!("\"{table}\""),
    }
}

/// Checks what [`PostgresConfig::with_table`](crate::PostgresConfig::with_table) and
/// [`with_schema`](crate::PostgresConfig::with_schema) allow. The message does not show the name: it may be a part of a password.
pub(crate) fn check_identifiers(schema: Option<&str>, table: &str) -> Result<()> {
    if !is_identifier(table, LONGEST_PREFIX) {
        let message = "the table's name is not allowed: use 1 to 48 letters, digits, _ or $";
        return Err(Error::new(ErrorKind::Misconfigured, message));
    }
    if schema.is_some_and(|schema| !is_identifier(schema, LONGEST_IDENTIFIER)) {
        let message = "the schema's name is not allowed: use 1 to 63 letters, digits, _ or $";
        return Err(Error::new(ErrorKind::Misconfigured, message));
    }
    Ok(())
}

pub(crate) fn is_identifier(name: &str, longest: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_$".contains(&byte);
    (1..=longest).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in the tables must not change: other versions of this crate look for it.
    #[test]
    fn a_name_is_its_bytes() {
        let written = |name| literal(name_bytes(&LockName::new(name).unwrap()));
        assert_eq!(written("orders/42"), "decode('6f72646572732f3432','hex')");
        assert_eq!(written("a\0'\\; DROP"), "decode('6100275c3b2044524f50','hex')");
        assert_eq!(written("Ö"), "decode('c396','hex')");
        assert_eq!(literal_or_null(None), "NULL::bytea");
    }

    #[test]
    fn a_holder_id_is_a_uuid() {
        let holder = HolderId::random();
        let id = Id::from(holder);
        assert_eq!(id.to_string(), holder.to_string());
        assert_eq!(id.literal(), format!("'{holder}'::uuid"));
        let hyphens = "00000000-0000-0000-0000-00000000000a";
        assert_eq!(Id::read(hyphens).unwrap().to_string(), format!("{:032x}", 10));
        for bad in [
            "",
            "a",
            "+0000000000000000000000000000000",
            "00000000-0000-0000-0000-0000000000é",
        ] {
            assert_eq!(Id::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_identifier_ends_no_quotes() {
        for good in ["t", "Shop_locks$2", "0"] {
            check_identifiers(Some(good), good).unwrap();
        }
        for bad in ["", "a\"b", "a.b", "a b", "ö", "a\0", &"x".repeat(49)] {
            assert_eq!(
                check_identifiers(None, bad).unwrap_err().kind(),
                ErrorKind::Misconfigured
            );
        }
        assert!(check_identifiers(Some("a\""), "t").is_err());
        assert_eq!(quoted(Some("s"), "t_leases"), "\"s\".\"t_leases\"");
    }

    #[test]
    fn a_long_label_is_cut_between_two_characters() {
        assert_eq!(label_bytes(None), None);
        let long = format!("{}ö", "a".repeat(254));
        assert_eq!(label_bytes(Some(&long)).unwrap().len(), 254);
    }
}
