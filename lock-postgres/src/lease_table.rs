//! The lease table: a row of each name says who holds it until when, by the server's clock.
//!
//! Holds are rows and not connections, so two connections serve them all: one for acquires and questions, one for what keeps or ends
//! holds, which never waits behind an acquire. A release goes over the first one if that has nothing to do. A third one
//! listens while anybody waits, and one more deletes old rows from time to time.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockName, Result};
use lock_kit::claims::Claims;
use lock_kit::clean_up::Schedule;
use lock_kit::downgrades::Downgrades;
use lock_kit::locked_rows::LockedRows;
use tokio::time::timeout;

use self::listener::Listener;
use self::renewals::Renewals;
use self::waits::Waits;
use crate::clean_up::{delete_dead, delete_dead_if_permitted};
use crate::config::{Pooler, PostgresConfig};
use crate::connection::{Connection, Dialer, Supervisor};
use crate::error::SqlError;
use crate::names::{literal, name_bytes};
use crate::probe::{Probe, question};
use crate::protocol::lease::LeaseStatements;
use crate::protocol::terms::as_micros;
use crate::schema::{lease_tables, prepare_tables};

pub use self::backend::LeaseTableBackend;

mod acquire;
mod backend;
mod end;
mod hold;
mod listener;
mod renewals;
mod waits;

/// How long the end of a hold waits for the answer to its call.
const CALLED_WITHIN: Duration = Duration::from_millis(250);

/// The state that the backend and all its holds share.
struct Shared {
    config: PostgresConfig,
    statements: LeaseStatements,
    /// The connection of acquires.
    asking: Supervisor,
    /// The connection of renewals and releases.
    keeping: Supervisor,
    listener: Listener,
    /// Of acquires that were never answered, by the numbers of their connections.
    claims: Claims<u64>,
    waits: Arc<Waits>,
    renewals: Renewals,
    locked_rows: LockedRows,
    downgrades: Downgrades,
    clean_ups: Schedule,
    /// Makes the connections over which locks are acquired, and knows what their server said of itself.
    dialer: Arc<Dialer>,
}

impl Shared {
    fn new(config: PostgresConfig) -> Self {
        let dialer = Arc::new(Dialer::new(config.clone()));
        let listens_at = config
            .listens_at()
            .map(|listen| Arc::new(Dialer::grants_nothing(listen.clone())));
        Self {
            statements: LeaseStatements::new(config.schema.as_deref(), &config.table),
            asking: Supervisor::new(dialer.clone()),
            // Of its own: it may still lead to a server that nobody acquires from any more.
            keeping: Supervisor::new(Arc::new(Dialer::grants_nothing(config.clone()))),
            listener: Listener::new(listens_at),
            claims: Claims::default(),
            waits: Arc::default(),
            renewals: Renewals::default(),
            locked_rows: LockedRows::default(),
            downgrades: Downgrades::default(),
            clean_ups: Schedule::new(),
            dialer,
            config,
        }
    }

    /// Reaches the server, makes the tables, checks that all that a lock needs is permitted, and reads the settings anew: they may
    /// have changed since the connection was made.
    async fn connect(&self) -> Result<()> {
        let (keeping, asking) = tokio::join!(self.keeping.connection(), self.asking.connection());
        keeping?;
        let connection = asking?;
        self.prepare(&connection).await?;
        let checks = format!("{};{}", question(&self.config), self.statements.check_permissions());
        let answer = connection.run(&checks, self.limit()).await;
        let probe = answer
            .and_then(|answer| Probe::read(&answer))
            .map_err(SqlError::into_lock_error)?;
        self.dialer.check(probe, &self.config.address())
    }

    /// Makes sure that the tables are there.
    async fn prepare(&self, connection: &Connection) -> Result<()> {
        prepare_tables(lease_tables, &self.config, connection).await
    }

    /// The limit for an answer, unless its caller decides that.
    fn limit(&self) -> Option<Duration> {
        Some(self.config.response_timeout)
    }

    /// Whether statements are prepared.
    fn prepares(&self) -> bool {
        self.config.pooler != Pooler::Transaction
    }

    /// Sends a request that locks this name's row. If that is known to stay locked, it fails soon, and does not delay for a second all
    /// that follows over the connection.
    async fn with_row<T>(
        &self,
        connection: &Connection,
        name: &LockName,
        request: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        if self.locked_rows.contains(name) {
            let lock = self.statements.lock_soon(&literal(name_bytes(name)));
            match connection.run(&lock, self.limit()).await {
                Err(error) if !error.is_missing_table() => return Err(error),
                _ => self.locked_rows.remove(name),
            }
        }
        let answer = request.await;
        if answer.as_ref().is_err_and(SqlError::is_locked) {
            self.locked_rows.insert(name);
        }
        answer
    }

    /// Calls those whose turn it is, and waits until the server has done so: otherwise the call is lost if the process exits. Whoever
    /// loses a call asks a little later.
    async fn call(&self, connection: &Connection, name: &LockName) {
        let call = self.statements.call(&literal(name_bytes(name)));
        let called = connection.run(&call, None);
        drop(timeout(CALLED_WITHIN.min(self.config.response_timeout), called).await);
    }

    /// The same in the background, for one that stays.
    fn begin_call(&self, connection: &Connection, name: &LockName) {
        connection.send(&self.statements.call(&literal(name_bytes(name))));
    }

    /// Begins a clean-up in the background from time to time.
    fn clean_up_if_due(self: &Arc<Self>) {
        self.clean_ups.run_if_due(|| {
            let shared = self.clone();
            async move { shared.clean_up_if_permitted().await }
        });
    }

    /// Deletes rows that nobody needs any more, and returns how many.
    async fn clean_up(&self) -> Result<u64> {
        let dead = self.statements.dead_rows(as_micros(self.config.retention));
        delete_dead(&self.config, &dead).await
    }

    async fn clean_up_if_permitted(&self) -> Result<()> {
        let dead = self.statements.dead_rows(as_micros(self.config.retention));
        delete_dead_if_permitted(&self.config, &dead).await
    }
}
