//! How names, labels and holder ids stand in statements and in the tables.

use lock_core::backend::HolderId;
use lock_core::{LockName, Result};
use lock_kit::tables::{self, LONGEST_PREFIX, check_configured, hexadecimal};
use uuid::Uuid;

/// The longest name of a table or a schema.
pub(crate) const LONGEST_IDENTIFIER: usize = 63;

/// A holder id as a `uuid`.
pub(crate) fn id_of(holder: HolderId) -> Uuid {
    Uuid::parse_str(&holder.to_string()).expect("a holder id is written in 32 hexadecimal digits")
}

/// The same as a literal.
pub(crate) fn id_literal(id: Uuid) -> String {
    format!("'{}'::uuid", id.simple())
}

/// A name as the bytes of its column.
pub(crate) fn name_bytes(name: &LockName) -> &[u8] {
    name.as_str().as_bytes()
}

/// A label as the bytes of its column.
pub(crate) fn label_bytes(label: Option<&str>) -> Option<&[u8]> {
    label.map(tables::label_bytes)
}

/// Bytes as a literal without a backslash: what that means depends on a setting.
pub(crate) fn literal(bytes: &[u8]) -> String {
    format!("decode('{}','hex')", hexadecimal(bytes))
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
/// [`with_schema`](crate::PostgresConfig::with_schema) allow.
pub(crate) fn check_identifiers(schema: Option<&str>, table: &str) -> Result<()> {
    check_configured("table", table, LONGEST_PREFIX)?;
    schema.map_or(Ok(()), |schema| check_configured("schema", schema, LONGEST_IDENTIFIER))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

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
        assert_eq!(id_literal(id_of(holder)), format!("'{holder}'::uuid"));
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
