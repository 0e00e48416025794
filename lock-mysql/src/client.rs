//! The state that a backend and all its holds share: how the server is reached, and the connections to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Result;
use lock_core::backend::AcquireRequest;
use tokio::time::Instant;

use crate::config::MySqlConfig;
use crate::connection::{ControlConnections, Dialer, LastAnswer, Pool, Session, end_connection, find_connection};
use crate::error::RequestError;
use crate::protocol::{Identity, StatementResult};

pub(crate) struct Client {
    dialer: Arc<Dialer>,
    /// The connections for holds and waiters.
    pub(crate) pool: Pool,
    /// The connections for what cannot be done on the connection that it is about.
    pub(crate) control: Arc<ControlConnections>,
    last_answer: Arc<LastAnswer>,
}

impl Client {
    /// `settings`: variables that are set in each session besides, each after a comma.
    pub(crate) fn new(config: MySqlConfig, settings: &'static str) -> Self {
        let last_answer = Arc::new(LastAnswer::new());
        let connections = config.max_connections;
        let dialer = Arc::new(Dialer::new(config, settings, last_answer.clone()));
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
        self.config().response_timeout
    }

    /// The moment of the server's last answer over any connection.
    pub(crate) fn last_answer(&self) -> Instant {
        self.last_answer.at()
    }

    /// Ends a connection, here and at the server, and returns whether the server still had it. When this returns,
    /// nothing of the connection is left: neither a transaction nor a place in a queue.
    ///
    /// # Errors
    /// If the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn end(&self, session: &Session, request: Option<&AcquireRequest>) -> Result<bool> {
        session.abort();
        let run = |sql| self.run(sql, request);
        let was_there = end_connection(session.identity(), self.response_timeout(), run).await?;
        // Its task may live on: on a runtime that nobody drives, nothing ends.
        session.return_permit();
        Ok(was_there)
    }

    /// Another server may have taken this one's place: connections for what comes from now on are made anew.
    pub(crate) fn leave_server(&self) {
        self.pool.suspect_outage();
        self.control.leave();
    }

    /// The server's number for the connection of this identity, if the server has it.
    pub(crate) async fn find(&self, identity: Identity) -> Result<Option<u64>> {
        find_connection(identity, |sql| self.run(sql, None)).await
    }

    async fn run(&self, sql: String, request: Option<&AcquireRequest>) -> Result<StatementResult, RequestError> {
        let answer = self.control.execute(sql, request).await?;
        Ok(answer.results.into_iter().next().unwrap_or_default())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("config", self.config())
            .finish_non_exhaustive()
    }
}
