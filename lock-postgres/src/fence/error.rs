//! Errors of statements in a user's own transaction.

use std::borrow::Cow;

use lock_core::{Error, ErrorKind};

use crate::error::Cause;

/// The error of a fence in this table.
pub(crate) fn of_fence(error: tokio_postgres::Error, table: &str, resource: &str) -> Error {
    let of_table = match cause(&error) {
        Some(Cause::NoTable | Cause::NoSchema) => Some((
            ErrorKind::Misconfigured,
            format!("the table {table} is missing: run the SQL of lock_postgres::schema::fences"),
        )),
        Some(Cause::OtherColumns) => Some((
            ErrorKind::Misconfigured,
            format!("the table {table} has other columns: drop it, or name another with Fence::in_table"),
        )),
        Some(Cause::Denied) => Some((
            ErrorKind::Denied,
            format!(
                "grant the PostgreSQL user SELECT, INSERT and UPDATE on the table {table}, and USAGE on its schema"
            ),
        )),
        Some(Cause::Locked | Cause::Cancelled) => Some((
            ErrorKind::Unavailable,
            "another transaction has entered and did not end in time: run the transaction again".to_owned(),
        )),
        Some(Cause::OldSnapshot) => Some((
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
    let (kind, problem) = match cause(error) {
        None => (
            ErrorKind::Unavailable,
            "the connection to the PostgreSQL server broke: run the transaction again",
        ),
        Some(Cause::Deadlock) => (
            ErrorKind::Unavailable,
            "PostgreSQL ended a deadlock: run the transaction again",
        ),
        Some(Cause::ReadOnly) => (
            ErrorKind::Misconfigured,
            "the transaction cannot write: begin it READ WRITE, on the primary",
        ),
        Some(Cause::FailedBefore) => (
            ErrorKind::Misconfigured,
            "a statement of this transaction failed before: roll back",
        ),
        Some(Cause::NoMemory) => (
            ErrorKind::Unavailable,
            "the PostgreSQL server has no room for another lock: raise max_locks_per_transaction there",
        ),
        Some(Cause::NoRoom) => (
            ErrorKind::Unavailable,
            "the PostgreSQL server has no memory or disk left: see its log",
        ),
        Some(Cause::Starting | Cause::Ended | Cause::Broken) => (
            ErrorKind::Unavailable,
            "the PostgreSQL server ended the connection: run the transaction again",
        ),
        Some(_) => (ErrorKind::Unexpected, "the PostgreSQL server refuses the statement"),
    };
    (kind, problem.into())
}

/// What the server complains of; `None` if it is not the server that does.
pub(crate) fn cause(error: &tokio_postgres::Error) -> Option<Cause> {
    error.code().map(|code| Cause::of(code.code()))
}
