//! What the server's codes mean.

use lock_core::ErrorKind;
use tokio_postgres::error::{DbError, Severity};

/// Why the server refused a statement or ended a connection, by its code. What a caller should do about it depends on whose statement it
/// was: [`lock_error`](super::SqlError::into_lock_error) says it of a lock, [`fence::error`](crate::fence::error) of a user's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Login,
    Denied,
    NoDatabase,
    NoSchema,
    NoTable,
    OtherColumns,
    /// A trigger or a constraint says no.
    Forbidden,
    TokensUsedUp,
    /// The connection is not the one that it was.
    Pooler,
    /// A pooler lets nobody in without TLS.
    TlsRequired,
    /// A pooler is set up in a way that it refuses everybody, or what locks send.
    PoolerSettings,
    NoConnectionLeft,
    ReadOnly,
    /// Somebody else has locked a row for longer than `lock_timeout`.
    Locked,
    /// `statement_timeout` was over, or somebody ended the statement.
    Cancelled,
    Deadlock,
    /// The row has changed since the snapshot of the transaction.
    OldSnapshot,
    /// An earlier statement of the transaction failed.
    FailedBefore,
    /// Shared memory, which also keeps the server's locks.
    NoMemory,
    DiskFull,
    /// Something else that the server has no more of.
    NoRoom,
    /// The server could not read or write one of its files.
    BadFile,
    Starting,
    /// The server ended the connection: somebody asked it to, it shuts down, or a transaction or a session was too long.
    Ended,
    Broken,
    Other,
}

/// What was said is against the protocol.
const VIOLATION: &str = "08P01";

impl Cause {
    /// PgBouncer ends connections with 08P01 for all reasons of its own: most are outages, such as a server that restarts, and some
    /// last until somebody changes a setting. Only a refused statement says that connections were mixed up.
    pub(crate) fn of_error(error: &DbError) -> Self {
        let code = error.code().code();
        if code != VIOLATION || error.parsed_severity() == Some(Severity::Error) {
            return Self::of(code);
        }
        let says = |words| error.message().contains(words);
        match () {
            () if says("authentication failed") || says("no such user") => Self::Login,
            () if says("login rejected") || says("empty password") => Self::Login,
            () if says("no such database") => Self::NoDatabase,
            () if says("SSL required") => Self::TlsRequired,
            () if says("config error") || says("disallowed") => Self::PoolerSettings,
            () => Self::Broken,
        }
    }

    /// Why a statement was refused with this code.
    fn of(code: &str) -> Self {
        match code {
            "28P01" | "28000" => Self::Login,
            "42501" => Self::Denied,
            "3D000" => Self::NoDatabase,
            "3F000" => Self::NoSchema,
            "42P01" => Self::NoTable,
            "42703" | "42804" | "42883" | "23502" | "42809" | "42P10" => Self::OtherColumns,
            "23514" | "P0001" => Self::Forbidden,
            "22003" => Self::TokensUsedUp,
            "0A000" | "26000" | "42P05" | VIOLATION => Self::Pooler,
            "53300" => Self::NoConnectionLeft,
            "25006" => Self::ReadOnly,
            "55P03" => Self::Locked,
            "57014" => Self::Cancelled,
            "40P01" => Self::Deadlock,
            "40001" => Self::OldSnapshot,
            "25P02" => Self::FailedBefore,
            "53100" => Self::DiskFull,
            "53200" => Self::NoMemory,
            "57P03" => Self::Starting,
            "25P03" | "25P04" => Self::Ended,
            code if code.starts_with("57P") => Self::Ended,
            code if code.starts_with("53") => Self::NoRoom,
            code if code.starts_with("58") => Self::BadFile,
            code if code.starts_with("08") => Self::Broken,
            _ => Self::Other,
        }
    }

    /// The kind of the error for the caller of a lock.
    pub(crate) fn kind(self) -> ErrorKind {
        match self {
            Self::Login | Self::Denied => ErrorKind::Denied,
            Self::NoDatabase
            | Self::NoSchema
            | Self::NoTable
            | Self::OtherColumns
            | Self::Forbidden
            | Self::Pooler
            | Self::TlsRequired
            | Self::PoolerSettings => ErrorKind::Misconfigured,
            Self::TokensUsedUp | Self::FailedBefore | Self::Other => ErrorKind::Unexpected,
            Self::NoConnectionLeft
            | Self::ReadOnly
            | Self::Locked
            | Self::Cancelled
            | Self::Deadlock
            | Self::OldSnapshot
            | Self::NoMemory
            | Self::DiskFull
            | Self::NoRoom
            | Self::BadFile
            | Self::Starting
            | Self::Ended
            | Self::Broken => ErrorKind::Unavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::{from_pgbouncer, said};

    #[tokio::test]
    async fn only_a_refused_statement_says_that_a_pooler_mixes_up_connections() {
        for (error, cause) in [
            (said("ERROR", "08P01").await, Cause::Pooler),
            (said("FATAL", "08P01").await, Cause::Broken),
            (said("FATAL", "57P01").await, Cause::Ended),
        ] {
            let said = error.as_db_error().expect("the server said it");
            assert_eq!(Cause::of_error(said), cause, "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_pooler_refuses_for_good_by_its_settings_and_else_for_a_while() {
        use ErrorKind::{Denied, Misconfigured, Unavailable};
        for (messages, cause, kind) in [
            (
                &[
                    "SASL authentication failed",
                    "no such user: app",
                    "login rejected",
                    "unix socket login rejected",
                    "empty password returned by client",
                ][..],
                Cause::Login,
                Denied,
            ),
            (&["no such database: app"], Cause::NoDatabase, Misconfigured),
            (&["SSL required"], Cause::TlsRequired, Misconfigured),
            (
                &["bouncer config error", "PQexec disallowed"],
                Cause::PoolerSettings,
                Misconfigured,
            ),
            (
                &[
                    "server conn crashed?",
                    "server login has been failing, try again later (server_login_retry)",
                    "query_wait_timeout",
                    "client_login_timeout",
                    "no more connections allowed (max_client_conn)",
                    "the database system is shutting down",
                    "pgbouncer is shutting down",
                ],
                Cause::Broken,
                Unavailable,
            ),
        ] {
            for words in messages {
                let error = from_pgbouncer(words).await;
                let said = error.as_db_error().expect("the pooler said it");
                assert_eq!(Cause::of_error(said), cause, "{words}");
            }
            assert_eq!(cause.kind(), kind, "{cause:?}");
        }
    }

    #[test]
    fn each_code_has_its_cause_and_kind() {
        use ErrorKind::{Denied, Misconfigured, Unavailable, Unexpected};
        for (codes, cause, kind) in [
            (&["28P01", "28000"][..], Cause::Login, Denied),
            (&["42501"], Cause::Denied, Denied),
            (&["3D000"], Cause::NoDatabase, Misconfigured),
            (&["3F000"], Cause::NoSchema, Misconfigured),
            (&["42P01"], Cause::NoTable, Misconfigured),
            (
                &["42703", "42804", "42883", "23502", "42809", "42P10"],
                Cause::OtherColumns,
                Misconfigured,
            ),
            (&["23514", "P0001"], Cause::Forbidden, Misconfigured),
            (&["22003"], Cause::TokensUsedUp, Unexpected),
            (&["0A000", "26000", "42P05", "08P01"], Cause::Pooler, Misconfigured),
            (&["53300"], Cause::NoConnectionLeft, Unavailable),
            (&["25006"], Cause::ReadOnly, Unavailable),
            (&["55P03"], Cause::Locked, Unavailable),
            (&["57014"], Cause::Cancelled, Unavailable),
            (&["40P01"], Cause::Deadlock, Unavailable),
            (&["40001"], Cause::OldSnapshot, Unavailable),
            (&["25P02"], Cause::FailedBefore, Unexpected),
            (&["53100"], Cause::DiskFull, Unavailable),
            (&["53200"], Cause::NoMemory, Unavailable),
            (&["53000", "53400"], Cause::NoRoom, Unavailable),
            (&["58000", "58030", "58P01"], Cause::BadFile, Unavailable),
            (&["57P03"], Cause::Starting, Unavailable),
            (
                &["57P01", "57P02", "57P05", "25P03", "25P04"],
                Cause::Ended,
                Unavailable,
            ),
            (&["08006"], Cause::Broken, Unavailable),
            (&["XX000", "57000", ""], Cause::Other, Unexpected),
        ] {
            for code in codes {
                assert_eq!(Cause::of(code), cause, "{code}");
                assert_eq!(cause.kind(), kind, "{code}");
            }
        }
    }
}
