//! Errors on a connection, and the errors of callers that follow from them.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

use self::meaning::meaning_of;
use self::rule::table_whose_rule_refused;
use crate::names::NO_ROW;

mod meaning;
mod rule;

/// Why statements failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqlError {
    /// The driver says so, mostly for the server.
    #[error(transparent)]
    Driver(#[from] sqlx::Error),
    /// There was no answer in time: the outcome is unknown.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
    /// The connection has ended: what was under way has an unknown outcome.
    #[error("the connection has ended")]
    Disconnected,
    /// The connection had ended before: nothing was sent.
    #[error("the connection had ended")]
    NotConnected,
    /// The connection carries another's hold by now, or none.
    #[error("the connection does not carry this hold any more")]
    HoldEnded,
    /// The answer has another shape than the statements ask for.
    #[error("the server's answer has no {0}")]
    UnexpectedAnswer(&'static str),
    /// Nobody drives the runtime that the connection runs on: the outcome is unknown.
    #[error("the tokio runtime that the connection runs on is not driven")]
    RuntimeNotDriven,
    /// There is nothing that connections could run on.
    #[error("there is no tokio runtime here")]
    NoRuntime,
    /// The runtime refused the connection's task.
    #[error("the tokio runtime is shutting down")]
    RuntimeShutDown,
    /// The server is no MySQL: this is what it sent first.
    #[error("the server does not speak MySQL's protocol")]
    NotMySql(Vec<u8>),
    /// The server refused a statement that served others as well.
    #[error("{message}")]
    Refused { code: u16, message: String },
    /// A trigger or a constraint of this table refused a statement.
    #[error("{message}")]
    RefusedByRule { table: String, message: String },
    /// Nobody may lock or write any row of a lock table at the moment.
    #[error("{0}")]
    TableLocked(String),
    /// The credentials or the files for TLS cannot be read.
    #[error(transparent)]
    Setup(Error),
    /// The driver panicked with this message.
    #[error("{0}")]
    Panicked(String),
}

impl SqlError {
    /// The driver's error for this statement of a text, counted from 0. No literal of ours has a semicolon.
    pub(crate) fn of_statement(error: sqlx::Error, text: &str, statement: usize) -> Self {
        let statement = text.split(';').nth(statement).unwrap_or_default();
        let table = table_whose_rule_refused(&error, statement);
        let error = Self::Driver(error);
        match table {
            _ if error.code() == Some(TIMED_OUT) && statement.contains(NO_ROW) => Self::TableLocked(error.to_string()),
            Some(table) => Self::RefusedByRule {
                table,
                message: error.to_string(),
            },
            None => error,
        }
    }

    /// The server's number for what went wrong; `None` when it is not the server who complains.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Driver(sqlx::Error::Database(error)) => {
                Some(error.try_downcast_ref::<MySqlDatabaseError>()?.number())
            }
            Self::Refused { code, .. } => Some(*code),
            Self::TableLocked(_) => Some(TIMED_OUT),
            // Whatever the trigger met: none of the numbers that mean something for a lock.
            Self::RefusedByRule { .. } => Some(SIGNALLED),
            _ => None,
        }
    }

    /// The same for another caller whom the statement served: the driver's errors cannot be cloned.
    pub(crate) fn for_another(&self) -> Self {
        let message = self.to_string();
        match self {
            Self::RefusedByRule { table, .. } => Self::RefusedByRule {
                table: table.clone(),
                message,
            },
            Self::TableLocked(_) => Self::TableLocked(message),
            _ => match self.code() {
                Some(code) => Self::Refused { code, message },
                None => Self::Disconnected,
            },
        }
    }

    /// Another holder has the row: found at once (MariaDB 1205, MySQL 3572) or after waiting (1205; 1969 and 3024 where
    /// an administrator bounds statements).
    pub(crate) fn is_busy(&self) -> bool {
        !matches!(self, Self::TableLocked(_)) && matches!(self.code(), Some(TIMED_OUT | 3572 | 1969 | 3024))
    }

    /// The server rolled back this transaction because of others: to end a deadlock, or because another member of a cluster has
    /// changed the same rows. Galera reports that as a deadlock, too.
    pub(crate) fn is_deadlock(&self) -> bool {
        matches!(self.code(), Some(1213 | ROLLED_BACK_BY_GROUP))
    }

    /// True if the server has, or may have, rolled back the transaction: after a deadlock, or, with
    /// `innodb_rollback_on_timeout`, after a wait for a row. A cluster reports the end of a transaction by the first of
    /// these at the next statement, whatever that is.
    pub(crate) fn may_end_transaction(&self) -> bool {
        self.is_deadlock() || self.is_busy()
    }

    pub(crate) fn is_missing_table(&self) -> bool {
        self.code() == Some(1146)
    }

    /// The server is read-only: this statement writes.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.code(), Some(1290 | 1836))
    }

    /// A statement was not permitted.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.code(), Some(1044 | 1142 | 1143 | 1227))
    }

    /// Somebody interrupted the statement, by `KILL QUERY`.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.code() == Some(1317)
    }

    /// True if the connection still serves: the server refused a statement and nothing else.
    pub(crate) fn is_refusal(&self) -> bool {
        // But not those: shutting down, interrupted, killed, idle too long, gone offline.
        const ENDS: [u16; 8] = [
            1053,
            1317,
            1927,
            3169,
            4031,
            OFFLINE,
            OFFLINE_FOR_REASON,
            OFFLINE_BY_USER,
        ];
        self.code().is_some_and(|code| !ENDS.contains(&code))
    }

    /// True if all that the connection carried has ended.
    pub(crate) fn ends_connection(&self) -> bool {
        !self.is_refusal() && !self.is_unanswered()
    }

    /// True if the connection broke, so that a new one may do better.
    pub(crate) fn is_disconnect(&self) -> bool {
        self.ends_connection() && !matches!(self, Self::Panicked(_))
    }

    /// True if there was no answer, from a connection that may still be there.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::RuntimeNotDriven)
    }

    /// True if nothing was sent.
    fn is_unsent(&self) -> bool {
        matches!(
            self,
            Self::NotConnected | Self::HoldEnded | Self::NoRuntime | Self::RuntimeShutDown
        )
    }

    /// The error for a caller on a connection that had been made.
    pub(crate) fn into_lock_error(self) -> Error {
        self.convert(false)
    }

    /// The same where the error itself goes to somebody else: why the connection's hold is lost.
    pub(crate) fn why_lost(&self) -> Error {
        let (kind, message) = self.kind_and_message(false);
        Error::new(kind, message).with_source(self.to_string())
    }

    /// The error for a caller when no connection could be made.
    pub(crate) fn into_connect_lock_error(self) -> Error {
        self.convert(true)
    }

    fn convert(self, connecting: bool) -> Error {
        let (kind, message) = self.kind_and_message(connecting);
        let mut error = Error::new(kind, message);
        if connecting || self.is_unsent() {
            error = error.not_executed();
        }
        match self {
            Self::Driver(source) => error.with_source(source),
            own => error.with_source(own),
        }
    }

    fn kind_and_message(&self, connecting: bool) -> (ErrorKind, Cow<'static, str>) {
        use ErrorKind::{Misconfigured, Unavailable, Unexpected};
        match self {
            Self::Driver(sqlx::Error::Database(_)) | Self::Refused { .. } => {
                meaning_of(self.code().unwrap_or_default())
            }
            Self::TableLocked(_) => (Unavailable, TABLE_LOCKED.into()),
            Self::RefusedByRule { table, .. } => (
                Misconfigured,
                format!("a trigger or a constraint of table `{table}` refuses what a lock writes: drop or correct it")
                    .into(),
            ),
            // This is how rustls reports a certificate that it does not accept.
            Self::Driver(sqlx::Error::Io(error)) if connecting && error.kind() == io::ErrorKind::InvalidData => {
                (Misconfigured, TLS_FAILS.into())
            }
            Self::Driver(sqlx::Error::Io(_)) if connecting => (
                Unavailable,
                "the MySQL server cannot be reached: check that it runs and its address".into(),
            ),
            Self::Driver(sqlx::Error::Io(_)) | Self::Disconnected | Self::NotConnected => {
                (Unavailable, "the connection to the MySQL server broke".into())
            }
            Self::TimedOut(_) => (Unavailable, "the MySQL server does not answer".into()),
            Self::RuntimeNotDriven => (
                Unavailable,
                "the lock's connection cannot be used: drive the runtime that acquired the lock".into(),
            ),
            Self::RuntimeShutDown => (
                Unavailable,
                "there can be no new connection to the MySQL server: the runtime is shutting down".into(),
            ),
            Self::Panicked(_) => (Unexpected, "the MySQL driver panicked: please report it".into()),
            Self::HoldEnded => (ErrorKind::Lost, "the hold has ended".into()),
            Self::Driver(sqlx::Error::Tls(_)) => (Misconfigured, TLS_FAILS.into()),
            Self::Driver(sqlx::Error::Configuration(_)) => (
                Misconfigured,
                "the MySQL driver cannot use these settings; a password that needs RSA needs TLS: set tls=true".into(),
            ),
            Self::NotMySql(_) => (Misconfigured, NOT_MYSQL.into()),
            Self::Driver(sqlx::Error::Protocol(_)) if connecting => (Misconfigured, NOT_MYSQL.into()),
            Self::Setup(error) => (error.kind(), error.to_string().into()),
            Self::NoRuntime => (Misconfigured, "call this within a tokio runtime".into()),
            Self::Driver(_) | Self::UnexpectedAnswer(_) => (
                Unexpected,
                "the MySQL server answered something unexpected: please report it".into(),
            ),
        }
    }
}

/// The error for a caller that waits while the server is silent.
pub(crate) fn silent(after: Duration) -> Error {
    SqlError::TimedOut(after).into_lock_error()
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(crate) enum ConnectError {
    /// The server cannot be reached or cannot serve at the moment.
    Transient(Error),
    /// Dialling again would fail in the same way.
    Permanent(Error),
}

impl From<Error> for ConnectError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Unavailable => Self::Transient(error),
            _ => Self::Permanent(error),
        }
    }
}

impl From<ConnectError> for Error {
    fn from(failure: ConnectError) -> Self {
        match failure {
            ConnectError::Transient(error) | ConnectError::Permanent(error) => error,
        }
    }
}

/// Either the server's own words, for those who can make something of its number, or an error for the caller.
pub(crate) enum RequestError {
    Sql(SqlError),
    Lock(Error),
}

impl RequestError {
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Sql(error) => error.code(),
            Self::Lock(_) => None,
        }
    }

    pub(crate) fn into_lock_error(self) -> Error {
        match self {
            Self::Sql(error) => error.into_lock_error(),
            Self::Lock(error) => error,
        }
    }
}

impl From<SqlError> for RequestError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

/// The error of a step after which nobody knows what the server has executed of the request, although the step itself
/// was not.
pub(crate) fn unknown_outcome(step: Error) -> Error {
    Error::new(step.kind(), "nobody knows what the MySQL server has executed")
        .retryable(step.is_retryable())
        .with_source(step)
}

/// The number of an error that `SIGNAL` raises.
const SIGNALLED: u16 = 1644;

/// The number of the error of a wait for a row or a table that took too long.
const TIMED_OUT: u16 = 1205;

/// The number of the error of a commit that group replication's certification refuses. The transaction is rolled back.
const ROLLED_BACK_BY_GROUP: u16 = 3101;

/// The numbers of the error of a MySQL in offline mode, of which the later two come with a reason or a user since MySQL 9.0. It ends
/// connections of all but administrators, and refuses new ones.
const OFFLINE: u16 = 3032;
const OFFLINE_FOR_REASON: u16 = 6142;
const OFFLINE_BY_USER: u16 = 6143;

const TABLE_LOCKED: &str = "the MySQL server lets nobody write to the lock tables: a backup or an administrator keeps them \
     locked, or an ALTER TABLE waits for the locks that are held; see SHOW PROCESSLIST there";

const NOT_MYSQL: &str = "what answers there does not speak MySQL's protocol: check host and port";

const TLS_FAILS: &str = "TLS with the MySQL server fails: check that it has TLS, and ca=, cert= and key=";

#[cfg(test)]
mod tests;
