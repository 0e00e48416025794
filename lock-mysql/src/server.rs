//! One server: how its connections are made, and the one that looks after the others.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep, timeout};

use crate::config::MySqlConfig;
use crate::error::SqlError;
use crate::greeting;
use crate::session::{Answer, Commits, Identity, Session, column};

/// How long to wait before trying again to reach a server that was never reached.
const RETRY: Duration = Duration::from_millis(100);

pub(crate) struct Server {
    config: MySqlConfig,
    /// Whether it ever was reached: before, connecting is patient; after, failing fast lets core decide.
    reached: AtomicBool,
    /// For what cannot be done on the connection that it is about.
    control: tokio::sync::Mutex<Option<Arc<Session>>>,
}

impl Server {
    pub(crate) fn new(config: MySqlConfig) -> Self {
        Self {
            config,
            reached: AtomicBool::new(false),
            control: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn config(&self) -> &MySqlConfig {
        &self.config
    }

    /// A new connection. Until the server was reached for the first time it keeps trying until the connect timeout:
    /// the server may just be starting. Ends early when `given_up` does.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn open(&self, commits: Commits, given_up: impl Future<Output = ()>) -> Result<Arc<Session>> {
        let mut given_up = pin!(given_up);
        let limit = self.config.connect_timeout();
        let deadline = Instant::now() + limit;
        let mut failure = None;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let opened = tokio::select! {
                opened = self.open_once(commits, rest) => opened,
                () = &mut given_up => return Err(self.unreached(failure, "in the time given")),
            };
            let error = match opened {
                Ok(session) => {
                    self.reached.store(true, Ordering::Relaxed);
                    return Ok(session);
                }
                Err(error) => error,
            };
            if error.kind() != ErrorKind::Unavailable || self.reached.load(Ordering::Relaxed) {
                return Err(error);
            }
            // What an attempt says that had time enough tells more than that the last one had none.
            failure = failure.filter(|_| rest < RETRY).or(Some(error));
            if Instant::now() + RETRY >= deadline {
                return Err(self.unreached(failure, &format!("within {limit:?}")));
            }
            tokio::select! {
                () = sleep(RETRY) => {}
                () = &mut given_up => return Err(self.unreached(failure, "in the time given")),
            }
        }
    }

    /// Ends the connection of this identity at the server, if it is still there; whether it was. When this comes back,
    /// nothing of it is left: neither a transaction nor a place in a queue.
    ///
    /// # Errors
    /// When the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn end(&self, identity: Identity) -> Result<bool> {
        let deadline = Instant::now() + self.config.response_timeout();
        let mut pause = Duration::from_millis(1);
        let mut killed = false;
        loop {
            let Some(id) = self.find(identity).await? else {
                return Ok(killed);
            };
            if Instant::now() >= deadline {
                let message = "the MySQL server does not end one of its connections";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            if killed {
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
                continue;
            }
            killed = true;
            match self.control(format!("KILL CONNECTION {id}")).await {
                // 1094: it has ended meanwhile.
                Err(error) if error.code() != Some(1094) => return Err(error.into_error()),
                _ => {}
            }
        }
    }

    /// The number of the connection of this identity, if the server has it.
    async fn find(&self, identity: Identity) -> Result<Option<u64>> {
        let sql = format!("SELECT CAST(IS_USED_LOCK({identity}) AS UNSIGNED)");
        let answer = self.control(sql).await.map_err(SqlOrError::into_error)?;
        let shape = || SqlError::Shape("named lock").into_error();
        let row = answer.row(0).ok_or_else(shape)?;
        column(row, 0, "named lock").map_err(SqlError::into_error)
    }

    /// Runs statements that may be repeated on the connection that looks after the others. They must be idempotent:
    /// when that connection turns out to be gone, they run again on a new one.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn control(&self, sql: String) -> Result<Answer, SqlOrError> {
        let limit = self.config.response_timeout();
        let Ok(mut control) = timeout(limit, self.control.lock()).await else {
            return Err(SqlError::TimedOut(limit).into());
        };
        // Taken out: if this is dropped half-way, the connection is closed.
        let kept = control
            .take()
            .filter(|session| session.is_here() && !session.has_ended());
        if let Some(session) = kept {
            match session.run(sql.clone(), None, limit).await {
                Err(error) if error.is_end() => {}
                answer => {
                    drop(session.rest());
                    *control = Some(session);
                    return Ok(answer?);
                }
            }
        }
        let session = self.open(Commits::ByItself, std::future::pending()).await?;
        let answer = session.run(sql, None, limit).await;
        drop(session.rest());
        *control = Some(session);
        Ok(answer?)
    }

    async fn open_once(&self, commits: Commits, limit: Duration) -> Result<Arc<Session>> {
        let options = self.config.options();
        let foreign = async {
            if options.get_socket().is_some() || self.reached.load(Ordering::Relaxed) {
                std::future::pending().await
            }
            greeting::is_foreign(options.get_host(), options.get_port()).await;
        };
        tokio::select! {
            opened = Session::open(&self.config, commits, limit) => {
                opened.map_err(|error| match error {
                    // Without a socket's path, the only files are those for TLS.
                    SqlError::Driver(sqlx::Error::Io(error))
                        if error.kind() == io::ErrorKind::NotFound && options.get_socket().is_none() =>
                    {
                        let message = "a file that ssl-ca, ssl-cert or ssl-key names does not exist";
                        Error::new(ErrorKind::Misconfigured, message).with_source(error)
                    }
                    error => error.into_connect_error(),
                })
            }
            () = foreign => {
                let message = format!(
                    "what answers at {} does not speak MySQL's protocol: check host and port",
                    self.config.address()
                );
                Err(Error::new(ErrorKind::Misconfigured, message))
            }
        }
    }

    fn unreached(&self, failure: Option<Error>, when: &str) -> Error {
        let message = format!("the MySQL server at {} was not reached {when}", self.config.address());
        match failure {
            // It says what to do.
            Some(failure) => Error::new(ErrorKind::Unavailable, message).with_source(failure),
            None => {
                let message = format!("{message}: check that it runs and its address");
                Error::new(ErrorKind::Unavailable, message)
            }
        }
    }
}

/// Either the server's own words, for those who can make something of its number, or an error for the caller.
pub(crate) enum SqlOrError {
    Sql(SqlError),
    Error(Error),
}

impl SqlOrError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Sql(error) => error.code(),
            Self::Error(_) => None,
        }
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Sql(error) => error.into_error(),
            Self::Error(error) => error,
        }
    }
}

impl From<SqlError> for SqlOrError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for SqlOrError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
