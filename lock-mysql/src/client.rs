//! The state that a backend and all its holds share: how the server is reached, and the connections to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use crate::config::MySqlConfig;
use crate::connection::{ControlConnections, Dialer, LastAnswer, Pool, Session};
use crate::error::{RequestError, SqlError};
use crate::protocol::{Identity, NO_SUCH_CONNECTION, column, kill};

pub(crate) struct Client {
    dialer: Arc<Dialer>,
    /// The connections for holds and waiters.
    pub(crate) pool: Pool,
    /// The connections for what cannot be done on the connection that it is about.
    pub(crate) control: Arc<ControlConnections>,
    last_answer: Arc<LastAnswer>,
}

impl Client {
    pub(crate) fn new(config: MySqlConfig) -> Self {
        let last_answer = Arc::new(LastAnswer::new());
        let connections = config.max_connections();
        let dialer = Arc::new(Dialer::new(config, last_answer.clone()));
        let control = Arc::new(ControlConnections::new(dialer.clone()));
        Self {
            pool: Pool::new(connections, dialer.clone(), control.clone()),
            control,
            dialer,
            last_answer,
        }
    }

    pub(crate) fn config(&self) -> &MySqlConfig {
        self.dialer.config()
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.config().response_timeout()
    }

    /// When the server answered last, over any connection.
    pub(crate) fn last_answer(&self) -> Instant {
        self.last_answer.at()
    }

    /// Ends a connection, here and at the server, and returns whether the server still had it. When this returns,
    /// nothing of the connection is left: neither a transaction nor a place in a queue.
    ///
    /// # Errors
    /// When the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn end(&self, session: &Session, request: Option<&AcquireRequest>) -> Result<bool> {
        session.abort();
        let was_there = self.kill(session.identity(), request).await?;
        // Its task may live on: on a runtime that nobody drives, nothing ends.
        session.return_permit();
        Ok(was_there)
    }

    /// One statement finds the connection and ends it: by the time a number that was read before comes back to the server,
    /// a restarted one may have given it to a stranger.
    async fn kill(&self, identity: Identity, request: Option<&AcquireRequest>) -> Result<bool> {
        let deadline = Instant::now() + self.response_timeout();
        let mut pause = Duration::from_millis(1);
        let mut was_there = false;
        // The named lock decides, which the connection has until its transaction is rolled back. MySQL was seen to refuse a
        // KILL before that.
        while self.find(identity, request).await?.is_some() {
            if !was_there {
                was_there = true;
                match self.control.execute(kill(identity), request).await {
                    Err(error) if error.code() != Some(NO_SUCH_CONNECTION) => return Err(error.into_lock_error()),
                    _ => continue,
                }
            }
            if Instant::now() >= deadline {
                let message = "the MySQL server does not end one of its connections";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok(was_there)
    }

    /// The server's number for the connection of this identity, if the server has it.
    pub(crate) async fn find(&self, identity: Identity, request: Option<&AcquireRequest>) -> Result<Option<u64>> {
        let sql = format!("SELECT CAST(IS_USED_LOCK({identity}) AS UNSIGNED)");
        let answer = self.control.execute(sql, request).await;
        let answer = answer.map_err(RequestError::into_lock_error)?;
        let missing = || SqlError::UnexpectedAnswer("named lock").into_lock_error();
        let row = answer.row(0).ok_or_else(missing)?;
        column(row, 0, "named lock").map_err(SqlError::into_lock_error)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("config", self.config())
            .finish_non_exhaustive()
    }
}
