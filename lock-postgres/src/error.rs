//! Errors on a connection, and the errors of callers that follow from them.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use tokio_postgres::error::{DbError, Severity};

pub(crate) use self::cause::Cause;

mod cause;
#[cfg(test)]
mod fuzz;

/// What errors call the server.
pub(crate) const SERVER: &str = "PostgreSQL";

/// What is wrong with a pooler that refuses everybody, or what locks send.
pub(crate) const POOLER_SETTINGS: &str = "the settings of the pooler in front of the PostgreSQL server refuse this connection: see the \
     pooler's log, and set disable_pqexec=0 there";

/// Why a statement failed, or a connection.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum SqlError {
    /// The driver says so, mostly for the server.
    #[error("{}", text(.0))]
    Driver(Arc<tokio_postgres::Error>),
    /// There was no answer in time: the outcome is unknown.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
    /// The connection has ended: what was under way has an unknown outcome.
    #[error("the connection has ended{}", because(.0))]
    Disconnected(Option<Arc<tokio_postgres::Error>>),
    /// The connection had ended before: nothing was sent.
    #[error("the connection had ended")]
    NotConnected,
    /// Its turn did not come in time: nothing was sent.
    #[error("requests before this one kept the connection for {0:?}")]
    NotSent(Duration),
    /// The answer has another shape than the statement asks for.
    #[error("the server's answer has no {0}")]
    UnexpectedAnswer(&'static str),
    /// A parameter does not have the type that the statement names: nothing was sent.
    #[error("a parameter is no {0}")]
    UnexpectedParameter(String),
    /// Nobody drives the runtime that the connection runs on: the outcome is unknown.
    #[error("the tokio runtime that the connection runs on is not driven")]
    RuntimeNotDriven,
    /// No connection could be made, or it cannot be used.
    #[error(transparent)]
    Connect(Error),
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.is_closed() {
            true => Self::Disconnected(None),
            false => Self::Driver(Arc::new(error)),
        }
    }
}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        Self::Connect(error)
    }
}

/// The driver's error, with what the server said.
fn text(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => format!("{} ({})", said.message(), said.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

fn because(reason: &Option<Arc<tokio_postgres::Error>>) -> String {
    reason
        .as_ref()
        .map_or_else(String::new, |reason| format!(": {}", text(reason)))
}

impl SqlError {
    fn said(&self) -> Option<&DbError> {
        match self {
            Self::Driver(error) => error.as_db_error(),
            _ => None,
        }
    }

    /// The server's code for what went wrong; `None` if it is not the server that complains.
    pub(crate) fn code(&self) -> Option<&str> {
        self.said().map(|said| said.code().code())
    }

    fn cause(&self) -> Option<Cause> {
        self.said().map(Cause::of_error)
    }

    /// The server refused the statement, and nothing else: it was not executed.
    pub(crate) fn is_refusal(&self) -> bool {
        let severity = self.said().and_then(DbError::parsed_severity);
        severity == Some(Severity::Error)
    }

    /// The server has certainly not executed it: it refused it, or nothing was sent.
    pub(crate) fn is_not_executed(&self) -> bool {
        self.is_refusal()
            || matches!(
                self,
                Self::NotConnected | Self::NotSent(_) | Self::UnexpectedParameter(_)
            )
    }

    /// The connection broke or has to be given up, so that a new one may do better.
    pub(crate) fn is_disconnect(&self) -> bool {
        match self {
            Self::Driver(_) => !self.is_refusal(),
            Self::Disconnected(_) | Self::NotConnected => true,
            _ => false,
        }
    }

    pub(crate) fn is_missing_table(&self) -> bool {
        self.cause() == Some(Cause::NoTable)
    }

    /// The server does not show this: some services forbid or lack functions that a PostgreSQL has.
    pub(crate) fn is_hidden(&self) -> bool {
        matches!(self.code(), Some("42501" | "42883" | "0A000"))
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.cause() == Some(Cause::Denied)
    }

    /// Somebody else has the row locked for too long.
    pub(crate) fn is_locked(&self) -> bool {
        matches!(self.cause(), Some(Cause::Locked | Cause::Cancelled))
    }

    /// A repetition may succeed at once: a deadlock, or a snapshot that is too old.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.code(), Some("40001" | "40P01" | "23505"))
    }

    /// The connection has no such prepared statement: a pooler gave it another one.
    pub(crate) fn is_unprepared(&self) -> bool {
        self.cause() == Some(Cause::Pooler) && self.code() != Some("0A000")
    }

    /// The server takes no writes: it is a standby, or reads only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.cause() == Some(Cause::ReadOnly)
    }

    /// The error for a caller on a connection that had been made.
    pub(crate) fn into_lock_error(self) -> Error {
        let (kind, message) = match (&self, self.said()) {
            (Self::Connect(error), _) => return error.clone(),
            (_, Some(said)) => meaning_of(said),
            (Self::Driver(_) | Self::Disconnected(_) | Self::NotConnected, None) => (
                ErrorKind::Unavailable,
                "the connection to the PostgreSQL server broke".into(),
            ),
            (Self::TimedOut(_), None) => (ErrorKind::Unavailable, "the PostgreSQL server does not answer".into()),
            (Self::NotSent(_), None) => (
                ErrorKind::Unavailable,
                "the PostgreSQL server is too slow for so many requests: they wait for each other with pooler=transaction".into(),
            ),
            (Self::RuntimeNotDriven, None) => (
                ErrorKind::Unavailable,
                "the lock's connection cannot be used: drive the runtime that acquired the lock".into(),
            ),
            (Self::UnexpectedAnswer(_), None) => (
                ErrorKind::Unexpected,
                "the PostgreSQL server answered something unexpected: please report it".into(),
            ),
            (Self::UnexpectedParameter(_), None) => (
                ErrorKind::Unexpected,
                "a statement for the PostgreSQL server was not made as it should be: please report it".into(),
            ),
        };
        let is_not_executed = self.is_not_executed();
        let error = Error::new(kind, message).with_source(self);
        match is_not_executed {
            true => error.not_executed(),
            false => error,
        }
    }
}

/// What a statement has brought; nothing where the table is missing, and so all that was in it.
pub(crate) fn unless_missing<T: Default>(answer: Result<T, SqlError>) -> lock_core::Result<T> {
    match answer {
        Err(error) if error.is_missing_table() => Ok(T::default()),
        answer => answer.map_err(SqlError::into_lock_error),
    }
}

/// The error for a caller that waits while the server is silent.
pub(crate) fn silent(after: Duration) -> Error {
    SqlError::TimedOut(after).into_lock_error()
}

/// Whether this may be because something else than a PostgreSQL answers: it hung up, or its words make no sense.
pub(crate) fn may_be_foreign(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    ["parsing", "unexpected", "closed", "communicating"]
        .iter()
        .any(|word| text.contains(word))
}

/// The error for a caller if no connection could be made to the server at `address`.
pub(crate) fn connect_error(error: tokio_postgres::Error, address: &str) -> Error {
    if let Some(said) = error.as_db_error() {
        let (kind, message) = meaning_of(said);
        return Error::new(kind, message)
            .with_source(SqlError::from(error))
            .not_executed();
    }
    // Ours, of a handshake.
    if let Some(fault) = error.source().and_then(|source| source.downcast_ref::<Error>()) {
        return fault.clone().not_executed();
    }
    let text = error.to_string();
    let (kind, message) = match () {
        () if text.contains("TLS") => (
            ErrorKind::Misconfigured,
            format!("the PostgreSQL server at {address} has no TLS: set ssl=on there, or leave tls=true out"),
        ),
        () if text.contains("configuration") || text.contains("authentication") => (
            ErrorKind::Denied,
            format!("the PostgreSQL server at {address} wants a login that is not there: give a password"),
        ),
        () if text.contains("parsing") || text.contains("unexpected message") => (
            ErrorKind::Misconfigured,
            format!("what answers at {address} does not speak PostgreSQL's protocol: check host and port"),
        ),
        () => return unreachable(address).with_source(SqlError::from(error)).not_executed(),
    };
    Error::new(kind, message)
        .with_source(SqlError::from(error))
        .not_executed()
}

/// No server answers there.
pub(crate) fn unreachable(address: &str) -> Error {
    let message = format!("the PostgreSQL server at {address} cannot be reached: check that it runs and its address");
    Error::new(ErrorKind::Unavailable, message)
}

/// A session would not be the client's alone.
pub(crate) fn pooler_between(address: &str) -> Error {
    let message = format!(
        "a pooler is between this process and the PostgreSQL server at {address}, and strategy=session needs a session of its \
         own: connect to the server itself, use strategy=lease, or set pooler=session if the pooler gives each client its own \
         connection"
    );
    Error::new(ErrorKind::Misconfigured, message)
}

/// A session is not the client's alone, though a pooler was declared that gives each client its own.
pub(crate) fn shared_session(address: &str) -> Error {
    let message = format!(
        "the pooler at {address} gives one session of the PostgreSQL server to several clients: set pool_mode=session there, or \
         use strategy=lease with pooler=transaction"
    );
    Error::new(ErrorKind::Misconfigured, message)
}

/// The kind and the message of the error for a caller, by what the server said.
fn meaning_of(said: &DbError) -> (ErrorKind, Cow<'static, str>) {
    let cause = Cause::of_error(said);
    let message = match cause {
        Cause::Login => {
            "the PostgreSQL server refuses the login: check user and password, and whether pg_hba.conf there allows \
             this host, without TLS or with tls=true"
        }
        Cause::Denied => {
            "the PostgreSQL user lacks a permission: it needs SELECT, INSERT, UPDATE and DELETE on the tables of its strategy, and \
             USAGE on their schema (see 'Permissions needed' in the documentation of lock-postgres)"
        }
        Cause::NoDatabase => "the database does not exist: create it, or name another in the URL",
        Cause::NoSchema => "the schema does not exist: create it, or name another with schema=",
        Cause::NoTable | Cause::OtherColumns => {
            "the lock tables are missing, or have other columns than they should: drop them, or name others with table="
        }
        Cause::Forbidden => "a trigger or a constraint of a lock table refuses what a lock writes: drop or correct it",
        Cause::TokensUsedUp => "the fencing tokens of this name are used up: choose another name",
        Cause::Pooler => {
            "something between this process and the PostgreSQL server changes connections: set pooler=transaction"
        }
        Cause::TlsRequired => "the pooler in front of the PostgreSQL server requires TLS: set tls=true",
        Cause::PoolerSettings => POOLER_SETTINGS,
        Cause::NoConnectionLeft => "the PostgreSQL server has no free connection: raise its max_connections",
        Cause::ReadOnly => {
            "the PostgreSQL server takes no writes: connect to the primary, and see default_transaction_read_only"
        }
        Cause::Locked | Cause::Cancelled => {
            "the PostgreSQL server could not lock a row of the lock tables in time: end the transaction that locks rows of these \
             tables"
        }
        Cause::OldSnapshot | Cause::Deadlock => "the lock's row is being changed elsewhere",
        Cause::Starting => "the PostgreSQL server starts, or shuts down",
        Cause::Ended => "the PostgreSQL server ended the connection",
        Cause::NoMemory => {
            "the PostgreSQL server's table of locks or its memory is full: raise max_locks_per_transaction there, or lower \
             max_holds"
        }
        Cause::DiskFull => "the PostgreSQL server's disk is full: make room there",
        Cause::NoRoom => "the PostgreSQL server lacks a resource: see its log",
        Cause::BadFile => "the PostgreSQL server could not read or write its files: see its log",
        Cause::Broken => "the connection to the PostgreSQL server broke",
        Cause::FailedBefore | Cause::Other => {
            let message = format!(
                "the PostgreSQL server refuses a statement with error {}",
                said.code().code()
            );
            return (cause.kind(), message.into());
        }
    };
    (cause.kind(), message.into())
}

#[cfg(test)]
pub(crate) mod tests;
