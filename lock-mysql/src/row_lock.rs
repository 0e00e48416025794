//! The row lock: a transaction that keeps a row of the lock table locked, on a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{LockName, Result};
use lock_kit::clean_up::Schedule;
use tokio::time::timeout;

use self::claims::Claims;
use crate::clean_up::delete_dead;
use crate::client::Client;
use crate::config::MySqlConfig;
use crate::connection::Session;
use crate::error::{RequestError, SqlError};
use crate::probe;
use crate::protocol::column;
use crate::protocol::row_lock::{SESSION_SETTINGS, Statements};
use crate::tables::row_lock_tables;

pub use self::backend::RowLockBackend;

mod acquire;
mod backend;
mod claims;
mod hold;
mod readers;
mod wait;

/// The state that the backend and all its holds share.
struct Shared {
    client: Client,
    claims: Claims,
    statements: Statements,
    clean_ups: Schedule,
    /// True if the tables existed when they were last checked.
    prepared: AtomicBool,
}

impl Shared {
    fn new(config: MySqlConfig) -> Self {
        Self {
            statements: Statements::new(&config.table),
            claims: Claims::default(),
            clean_ups: Schedule::new(),
            prepared: AtomicBool::new(false),
            client: Client::new(config, SESSION_SETTINGS),
        }
    }

    /// Makes sure that the server can keep row locks, and has the tables.
    async fn prepare_tables(&self, session: &Session, limit: Duration) -> Result<(), RequestError> {
        let config = self.client.config();
        let tables = row_lock_tables(&config.table);
        probe::prepare_row_locks(&tables, config.single_writer, session, limit).await
    }

    /// The last token that a release has committed; 0 before the first.
    async fn committed_token(&self, name: &LockName) -> Result<Option<u64>> {
        let answer = self
            .client
            .control
            .execute(self.statements.committed_token(name), None)
            .await;
        let answer = answer.map_err(RequestError::into_lock_error)?;
        let token = answer.row(1).map(|row| column(row, 0, "token")).transpose();
        token.map_err(SqlError::into_lock_error)
    }

    /// The token of the request's hold, or of whoever else holds the name exclusively, whether that has committed anything or
    /// not.
    async fn held_token(&self, request: &AcquireRequest) -> Result<Option<u64>> {
        let sql = self
            .statements
            .held_token(request.name(), request.mode(), request.holder());
        let answer = self.client.control.execute(sql, None).await;
        let answer = answer.map_err(RequestError::into_lock_error)?;
        let token = answer.row(0).map(|row| column(row, 0, "token")).transpose();
        token.map_err(SqlError::into_lock_error)
    }

    /// Begins a clean-up in the background from time to time.
    fn clean_up_if_due(self: &Arc<Self>) {
        self.clean_ups.run_if_due(|| {
            let shared = self.clone();
            async move { shared.clean_up().await }
        });
    }

    /// Deletes dead rows of both tables, and returns how many.
    async fn clean_up(&self) -> Result<u64> {
        // One of its own: locks wait for no clean-up, and none of their transactions may be open on it.
        let (session, limit) = (self.client.pool.open().await?, self.client.response_timeout());
        let tables = self.statements.dead_rows(self.client.config().retention);
        let run = async |job| {
            let done = timeout(limit, session.gather(job)).await;
            done.unwrap_or(Err(SqlError::TimedOut(limit)))
        };
        delete_dead(&tables, run).await
    }

    fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Relaxed)
    }

    fn set_prepared(&self, prepared: bool) {
        self.prepared.store(prepared, Ordering::Relaxed);
    }
}
