//! A fence that is a row of an SQL database, entered within the caller's own transaction.

use std::error::Error as StdError;
use std::fmt;

use lock_core::{Error, ErrorKind, FencingToken, Result};

/// The longest name of a resource, in bytes.
const LONGEST_RESOURCE: usize = 512;

/// Checks the name of a resource.
///
/// # Errors
/// [`ErrorKind::InvalidName`] unless it has 1 to 512 bytes.
pub fn check_resource(resource: &[u8]) -> Result<()> {
    if (1..=LONGEST_RESOURCE).contains(&resource.len()) {
        return Ok(());
    }
    let message = format!(
        "a fenced resource is {} bytes: name it by 1 to {LONGEST_RESOURCE}",
        resource.len()
    );
    Err(Error::new(ErrorKind::InvalidName, message))
}

/// The statements with this resource, a literal, and this token in the places of `:resource` and `:token`.
///
/// # Examples
/// ```
/// # use lock_core::FencingToken;
/// # use lock_kit::fence::fill_placeholders;
/// let sql = "UPDATE t SET writer = :token WHERE resource = :resource";
/// let filled = fill_placeholders(sql, "x'61'", FencingToken::new(7).unwrap());
/// assert_eq!(filled, "UPDATE t SET writer = 7 WHERE resource = x'61'");
/// ```
pub fn fill_placeholders(statements: &str, resource: &str, token: FencingToken) -> String {
    statements
        .replace(":resource", resource)
        .replace(":token", &token.to_string())
}

/// Why a holder cannot enter a fence, whatever its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The table is missing. The text says how to make it.
    NoTable(&'static str),
    /// The table has other columns.
    OtherColumns,
    /// The user lacks a permission. The text says which one it needs besides those on the table, or is empty.
    Denied(&'static str),
    /// Another transaction has entered, and did not end in time.
    Occupied,
    /// The server ended the transaction, as each of several waited for another one.
    Deadlock,
}

impl Obstacle {
    /// The kind of the error, and what to do. `server`: such as `MySQL`.
    pub fn advice(self, server: &str, table: &str) -> (ErrorKind, String) {
        match self {
            Self::NoTable(make) => (
                ErrorKind::Misconfigured,
                format!("the table {table} is missing: {make}"),
            ),
            Self::OtherColumns => (
                ErrorKind::Misconfigured,
                format!("the table {table} has other columns: drop it, or name another with Fence::in_table"),
            ),
            Self::Denied(besides) => (
                ErrorKind::Denied,
                format!("grant the {server} user SELECT, INSERT and UPDATE on the table {table}{besides}"),
            ),
            Self::Occupied => (
                ErrorKind::Unavailable,
                "another transaction has entered and did not end in time: run the transaction again".to_owned(),
            ),
            Self::Deadlock => (
                ErrorKind::Unavailable,
                format!("{server} ended a deadlock: run the transaction again"),
            ),
        }
    }
}

/// The error for a resource whose fence cannot be entered.
pub fn entry_error(
    resource: &str,
    (kind, advice): (ErrorKind, impl fmt::Display),
    source: impl Into<Box<dyn StdError + Send + Sync>>,
) -> Error {
    let message = format!("the fence of {resource:?} cannot be entered: {advice}");
    Error::new(kind, message).with_source(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_1_to_512_bytes() {
        for (length, is_fine) in [(0, false), (1, true), (512, true), (513, false)] {
            let checked = check_resource(&vec![b'a'; length]);
            assert_eq!(checked.is_ok(), is_fine, "{length}");
            if let Err(error) = checked {
                assert_eq!(error.kind(), ErrorKind::InvalidName);
                assert!(error.to_string().contains(&format!("is {length} bytes: ")), "{error}");
            }
        }
    }

    #[test]
    fn every_place_is_filled() {
        let sql = "SET w = :token WHERE r = :resource AND w < :token";
        let filled = fill_placeholders(sql, "x'61'", FencingToken::new(7).unwrap());
        assert_eq!(filled, "SET w = 7 WHERE r = x'61' AND w < 7");
    }

    #[test]
    fn each_obstacle_says_what_to_do() {
        for (obstacle, kind, said) in [
            (
                Obstacle::NoTable("run this"),
                ErrorKind::Misconfigured,
                "the table t is missing: run this",
            ),
            (
                Obstacle::OtherColumns,
                ErrorKind::Misconfigured,
                "the table t has other columns: drop it, or name another with Fence::in_table",
            ),
            (
                Obstacle::Denied(", and that"),
                ErrorKind::Denied,
                "grant the MySQL user SELECT, INSERT and UPDATE on the table t, and that",
            ),
            (
                Obstacle::Occupied,
                ErrorKind::Unavailable,
                "another transaction has entered and did not end in time: run the transaction again",
            ),
            (
                Obstacle::Deadlock,
                ErrorKind::Unavailable,
                "MySQL ended a deadlock: run the transaction again",
            ),
        ] {
            let error = entry_error("a\"b", obstacle.advice("MySQL", "t"), "the server's words");
            assert_eq!(error.kind(), kind, "{obstacle:?}");
            let message = format!("the fence of \"a\\\"b\" cannot be entered: {said}: the server's words");
            assert_eq!(error.to_string(), message);
        }
    }
}
