//! One server: how its connections are made, and those that look after the others.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Wait};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use crate::config::MySqlConfig;
use crate::connection::LastAnswer;
use crate::connection::{Answer, Commits, Identity, Session, column};
use crate::error::SqlError;

use crate::connection::{Controls, Dialer, Failure};

pub(crate) struct Server {
    dialer: Dialer,
    controls: Controls,
    last_answer: Arc<LastAnswer>,
}

impl Server {
    pub(crate) fn new(config: MySqlConfig) -> Self {
        let last_answer = Arc::new(LastAnswer::new());
        Self {
            dialer: Dialer::new(config, last_answer.clone()),
            controls: Controls::default(),
            last_answer,
        }
    }

    pub(crate) fn config(&self) -> &MySqlConfig {
        self.dialer.config()
    }

    /// When it answered last, over any connection.
    pub(crate) fn last_answer(&self) -> Instant {
        self.last_answer.at()
    }

    /// A new connection.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn open(&self, commits: Commits) -> Result<Arc<Session>, Failure> {
        self.dialer.open(commits).await
    }

    /// A connection broke, perhaps with all others.
    pub(crate) fn doubt(&self) {
        self.dialer.doubt();
    }

    /// Calls `open` on behalf of a request: again and again while the request waits and the server, which was there once,
    /// cannot be reached. Ends early when nobody waits for the request any more.
    ///
    /// # Cancel safety
    /// May be dropped where `open` may.
    pub(crate) async fn patiently<T, F>(&self, behalf: Option<&AcquireRequest>, open: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let Some(request) = behalf else {
            return Ok(open().await?);
        };
        loop {
            let opened = tokio::select! {
                biased;
                opened = open() => opened,
                () = request.given_up() => return Err(self.dialer.unreached("in the time given")),
            };
            match opened {
                // A dial that failed is followed by a pause.
                Err(Failure::Passing(error)) if request.wait() != Wait::No && self.dialer.has_reached() => {
                    request.note_unreachable(error);
                }
                opened => return Ok(opened?),
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
    pub(crate) async fn end(&self, identity: Identity, behalf: Option<&AcquireRequest>) -> Result<bool> {
        let deadline = Instant::now() + self.config().response_timeout();
        let mut pause = Duration::from_millis(1);
        let mut killed = false;
        loop {
            let Some(id) = self.find(identity, behalf).await? else {
                return Ok(killed);
            };
            if killed {
                if Instant::now() >= deadline {
                    let message = "the MySQL server does not end one of its connections";
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
                continue;
            }
            killed = true;
            match self.control(format!("KILL CONNECTION {id}"), behalf).await {
                // 1094: it has ended meanwhile.
                Err(error) if error.code() != Some(1094) => return Err(error.into_error()),
                _ => {}
            }
        }
    }

    /// The number of the connection of this identity, if the server has it.
    pub(crate) async fn find(&self, identity: Identity, behalf: Option<&AcquireRequest>) -> Result<Option<u64>> {
        let sql = format!("SELECT CAST(IS_USED_LOCK({identity}) AS UNSIGNED)");
        let answer = self.control(sql, behalf).await.map_err(SqlOrError::into_error)?;
        let shape = || SqlError::Shape("named lock").into_error();
        let row = answer.row(0).ok_or_else(shape)?;
        column(row, 0, "named lock").map_err(SqlError::into_error)
    }

    /// Runs statements that may be repeated on the connection that looks after the others. They must be idempotent:
    /// when that connection turns out to be gone, they run again on a new one.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn control(&self, sql: String, behalf: Option<&AcquireRequest>) -> Result<Answer, SqlOrError> {
        let limit = self.config().response_timeout();
        let run = |session: Arc<Session>| {
            let sql = sql.clone();
            async move { session.run(sql, None, limit).await }
        };
        self.over_control(behalf, run).await
    }

    /// Waits until the server answers, in one round trip for all who ask at the same time.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn ping(&self) -> Result<()> {
        let limit = self.config().response_timeout();
        let ping = |session: Arc<Session>| async move { session.ping(limit).await };
        self.over_control(None, ping).await.map_err(SqlOrError::into_error)
    }

    async fn over_control<T, F>(
        &self,
        behalf: Option<&AcquireRequest>,
        ask: impl Fn(Arc<Session>) -> F,
    ) -> Result<T, SqlOrError>
    where
        F: Future<Output = Result<T, SqlError>>,
    {
        let control = self.controls.here().ok_or(SqlError::NoRuntime)?;
        if let Some(session) = control.live() {
            match ask(session.clone()).await {
                Err(error) if error.is_break() => {
                    control.forget(&session);
                    self.doubt();
                }
                answer => {
                    drop(session.rest());
                    return Ok(answer?);
                }
            }
        }
        let session = self.patiently(behalf, || control.session(&self.dialer)).await?;
        let answer = ask(session.clone()).await;
        drop(session.rest());
        Ok(answer?)
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
            .field("config", self.config())
            .finish_non_exhaustive()
    }
}
