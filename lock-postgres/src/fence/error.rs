//! Errors of statements in a user's own transaction.

use std::borrow::Cow;

use lock_core::{Error, ErrorKind};

/// The error of a fence in this table.
pub(crate) fn of_fence(error: tokio_postgres::Error, table: &str, resource: &str) -> Error {
    let of_table = match code(&error) {
        "42P01" | "3F000" => Some((
            ErrorKind::Misconfigured,
            format!("the table {table} is missing: run the SQL of lock_postgres::schema::fences"),
        )),
        "42703" | "42P10" => Some((
            ErrorKind::Misconfigured,
            format!("the table {table} has other columns: drop it, or name another with Fence::in_table"),
        )),
        "42501" => Some((
            ErrorKind::Denied,
            format!(
                "grant the PostgreSQL user SELECT, INSERT and UPDATE on the table {table}, and USAGE on its schema"
            ),
        )),
        "55P03" | "57014" => Some((
            ErrorKind::Unavailable,
            "another transaction has entered and did not end in time: run the transaction again".to_owned(),
        )),
        "40001" => Some((
            ErrorKind::Unavailable,
            "another holder has entered since this transaction began: run the transaction again".to_owned(),
        )),
        _ => None,
    };
    let (kind, problem) = of_table.map_or_else(|| meaning(&error), |(kind, problem)| (kind, problem.into()));
    let message = format!("the fence of {resource:?} cannot be entered: {problem}");
    Error::new(kind, message).with_source(error)
}

/// What may be wrong with any statement in a transaction, and what to do.
pub(crate) fn meaning(error: &tokio_postgres::Error) -> (ErrorKind, Cow<'static, str>) {
    let (kind, problem) = match code(error) {
        "" => (
            ErrorKind::Unavailable,
            "the connection to the PostgreSQL server broke: run the transaction again",
        ),
        "40P01" => (
            ErrorKind::Unavailable,
            "PostgreSQL ended a deadlock: run the transaction again",
        ),
        "25006" => (
            ErrorKind::Misconfigured,
            "the transaction cannot write: begin it READ WRITE, on the primary",
        ),
        "25P02" => (
            ErrorKind::Misconfigured,
            "a statement of this transaction failed before: roll back",
        ),
        "53200" => (
            ErrorKind::Unavailable,
            "the PostgreSQL server has no room for another lock: raise max_locks_per_transaction there",
        ),
        code if code.starts_with("57P") || code.starts_with("08") => (
            ErrorKind::Unavailable,
            "the PostgreSQL server ended the connection: run the transaction again",
        ),
        _ => (ErrorKind::Unexpected, "the PostgreSQL server refuses the statement"),
    };
    (kind, problem.into())
}

/// The server's code for what went wrong; empty if it is not the server that complains.
pub(crate) fn code(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("", |code| code.code())
}
