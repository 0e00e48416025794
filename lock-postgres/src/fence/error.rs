//! Errors of statements in a user's own transaction.

use std::borrow::Cow;

use lock_core::{Error, ErrorKind};
use lock_kit::fence::{Obstacle, entry_error};

use crate::error::{Cause, POOLER_SETTINGS};

/// The error of a fence in this table.
pub(crate) fn of_fence(error: tokio_postgres::Error, table: &str, resource: &str) -> Error {
    const SNAPSHOT: &str = "another holder has entered since this transaction began: run the transaction again";
    let obstacle = match cause(&error) {
        Some(Cause::NoTable | Cause::NoSchema) => Obstacle::NoTable("run the SQL of lock_postgres::schema::fences"),
        Some(Cause::OtherColumns) => Obstacle::OtherColumns,
        Some(Cause::Denied) => Obstacle::Denied(", and USAGE on its schema"),
        Some(Cause::Locked | Cause::Cancelled) => Obstacle::Occupied,
        Some(Cause::OldSnapshot) => return entry_error(resource, (ErrorKind::Unavailable, SNAPSHOT), error),
        _ => return entry_error(resource, meaning(&error), error),
    };
    entry_error(resource, obstacle.advice("PostgreSQL", table), error)
}

/// What may be wrong with any statement in a transaction, and what to do.
pub(crate) fn meaning(error: &tokio_postgres::Error) -> (ErrorKind, Cow<'static, str>) {
    let cause = cause(error);
    let problem = match cause {
        None => "the connection to the PostgreSQL server broke: run the transaction again",
        Some(Cause::Deadlock) => "PostgreSQL ended a deadlock: run the transaction again",
        Some(Cause::ReadOnly) => "the transaction cannot write: begin it READ WRITE, on the primary",
        Some(Cause::FailedBefore) => "a statement of this transaction failed before: roll back",
        Some(Cause::PoolerSettings) => POOLER_SETTINGS,
        Some(Cause::NoMemory) => {
            "the PostgreSQL server has no room for another lock: raise max_locks_per_transaction there"
        }
        Some(Cause::DiskFull) => "the PostgreSQL server's disk is full: make room there, and run the transaction again",
        Some(Cause::NoRoom) => "the PostgreSQL server lacks a resource: see its log",
        Some(Cause::BadFile) => "the PostgreSQL server could not read or write its files: see its log",
        Some(Cause::Starting | Cause::Ended | Cause::Broken) => {
            "the PostgreSQL server ended the connection: run the transaction again"
        }
        Some(_) => {
            return (
                ErrorKind::Unexpected,
                "the PostgreSQL server refuses the statement".into(),
            );
        }
    };
    let kind = match cause {
        Some(Cause::ReadOnly | Cause::FailedBefore | Cause::PoolerSettings) => ErrorKind::Misconfigured,
        _ => ErrorKind::Unavailable,
    };
    (kind, problem.into())
}

/// What the server complains of; `None` if it is not the server that does.
pub(crate) fn cause(error: &tokio_postgres::Error) -> Option<Cause> {
    error.as_db_error().map(Cause::of_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::{broken, from_pgbouncer, said};

    #[tokio::test]
    async fn an_entry_that_fails_says_what_to_do() {
        use ErrorKind::{Denied, Misconfigured, Unavailable, Unexpected};
        for (code, kind, words) in [
            ("42P01", Misconfigured, "schema::fences"),
            ("3F000", Misconfigured, "schema::fences"),
            ("42703", Misconfigured, "other columns"),
            ("42501", Denied, "USAGE on its schema"),
            ("55P03", Unavailable, "did not end in time"),
            ("57014", Unavailable, "did not end in time"),
            ("40001", Unavailable, "another holder has entered since"),
            ("40P01", Unavailable, "ended a deadlock"),
            ("25006", Misconfigured, "begin it READ WRITE"),
            ("25P02", Misconfigured, "failed before: roll back"),
            ("53200", Unavailable, "max_locks_per_transaction"),
            ("53100", Unavailable, "disk is full"),
            ("53400", Unavailable, "lacks a resource"),
            ("58030", Unavailable, "could not read or write"),
            ("57P03", Unavailable, "ended the connection"),
            ("57P01", Unavailable, "ended the connection"),
            ("25P03", Unavailable, "run the transaction again"),
            ("25P04", Unavailable, "run the transaction again"),
            ("08006", Unavailable, "ended the connection"),
            ("XX000", Unexpected, "refuses the statement"),
        ] {
            let error = of_fence(said("ERROR", code).await, "shop_fences", "stock/42");
            assert_eq!(error.kind(), kind, "{error}");
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("stock/42"), "{code}: {text}");
        }
    }

    #[tokio::test]
    async fn a_pooler_that_lost_its_server_ended_the_transaction() {
        let (kind, problem) = meaning(&from_pgbouncer("server conn crashed?").await);
        assert_eq!(kind, ErrorKind::Unavailable);
        assert!(problem.contains("run the transaction again"), "{problem}");
    }

    #[tokio::test]
    async fn a_pooler_that_lets_no_statements_of_fences_pass_is_misconfigured() {
        let (kind, problem) = meaning(&from_pgbouncer("PQexec disallowed").await);
        assert_eq!(kind, ErrorKind::Misconfigured);
        assert!(problem.contains("disable_pqexec=0"), "{problem}");
    }

    #[tokio::test]
    async fn without_a_word_of_the_server_the_connection_broke() {
        let (kind, problem) = meaning(&broken().await);
        assert_eq!(kind, ErrorKind::Unavailable);
        assert!(problem.contains("broke"), "{problem}");
    }
}
