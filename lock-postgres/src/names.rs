//! How names stand in statements.

use lock_core::{Error, ErrorKind, Result};

/// The longest prefix of table names. It leaves room for the endings: PostgreSQL cuts a name after 63 bytes.
const LONGEST_PREFIX: usize = 48;
/// The longest name of a table or a schema.
pub(crate) const LONGEST_IDENTIFIER: usize = 63;

/// Bytes as a literal without a backslash: what that means depends on a setting.
pub(crate) fn literal(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("decode('{digits}','hex')")
}

/// A table in a schema, between quotation marks.
pub(crate) fn quoted(schema: Option<&str>, table: &str) -> String {
    match schema {
        Some(schema) => format!("\"{schema}\".\"{table}\""),
        None => format!("\"{table}\""),
    }
}

/// Checks a schema and a prefix of table names.
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
