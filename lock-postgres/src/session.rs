//! Sessions: a hold is an advisory lock of one of this process's sessions.
//!
//! One session carries all locks that were free when they were asked for. A name that is taken is waited for in a session of its own,
//! which carries that lock, and others, once it is granted. The server decides about every request: no session asks twice for one
//! name, since its own locks never conflict with each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use lock_kit::clean_up::Schedule;
use lock_kit::dial_limiter::DialLimiter;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use self::carrier::Session;
use self::claims::{ClaimGuard, Claims};
use crate::clean_up::{delete_dead, delete_dead_if_permitted};
use crate::config::{Pooler, PostgresConfig};
use crate::connection::{Dialer, Supervisor, TextRows};
use crate::error::{SqlError, shared_session};
use crate::names::quoted;
use crate::protocol::session::SessionStatements;
use crate::protocol::session_setup::set_up;
use crate::protocol::terms::as_micros;
use crate::schema::{prepare_tables, session_tables};

pub use self::backend::SessionBackend;

mod acquire;
mod backend;
mod carrier;
mod claims;
mod downgrade;
mod end;
mod heartbeat;
mod hold;
mod pool;
mod wait;

/// The state that the backend and all its holds share.
struct Shared {
    config: PostgresConfig,
    /// The connection of questions, and of what ends a session. It carries no lock.
    control: Supervisor,
    /// The connection of the session that carries most locks.
    carrier: Supervisor,
    /// Makes the connections of all sessions.
    dialer: Arc<Dialer>,
    /// How often it does.
    dials: DialLimiter<Error>,
    /// So many further ones there may be.
    further: Arc<Semaphore>,
    sessions: Mutex<Vec<Arc<Session>>>,
    claims: Claims,
    /// The most claims at a time; 0 before the server has said how many locks it has room for.
    most_holds: AtomicUsize,
    statements: OnceLock<SessionStatements>,
    clean_ups: Schedule,
    /// When the control connection last had an answer.
    answered: Mutex<Option<Instant>>,
}

impl Shared {
    fn new(config: PostgresConfig) -> Self {
        let dialer = Arc::new(Dialer::new(config.clone()).with_set_up(set_up));
        Self {
            control: Supervisor::new(Arc::new(Dialer::grants_nothing(config.clone()))),
            carrier: Supervisor::new(dialer.clone()),
            dialer,
            dials: DialLimiter::parallel(),
            further: Arc::new(Semaphore::new(config.sessions.max_connections - 1)),
            sessions: Mutex::default(),
            claims: Claims::default(),
            most_holds: AtomicUsize::new(config.sessions.max_holds.unwrap_or(0)),
            statements: OnceLock::new(),
            clean_ups: Schedule::new(),
            answered: Mutex::default(),
            config,
        }
    }

    /// Reaches the server, makes the tables and checks that all that a lock needs is permitted.
    async fn connect(self: &Arc<Self>) -> Result<()> {
        let (carrier, control) = tokio::join!(self.carrier.connection(), self.control.connection());
        self.session_of(carrier?, None)?;
        control?;
        let statements = self.prepare().await?;
        let asked = self.ask(&statements.check_permissions()).await;
        asked.map(drop).map_err(SqlError::into_lock_error)
    }

    /// Makes sure that the tables are there, and knows in which schema.
    async fn prepare(&self) -> Result<&SessionStatements> {
        let control = self.control.connection().await?;
        prepare_tables(session_tables, &self.config, &control).await?;
        if let Some(statements) = self.statements.get() {
            return Ok(statements);
        }
        self.check_sessions_are_own().await?;
        let table = quoted(self.config.schema.as_deref(), &format!("{}_tokens", self.config.table));
        let find = format!(
            "SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid=c.relnamespace WHERE c.oid=to_regclass('{table}')"
        );
        let found = self.ask(&find).await.map_err(SqlError::into_lock_error)?;
        let schema = found.into_iter().flatten().flatten().next().ok_or_else(|| {
            let message = "the lock tables were dropped while they were made: try again";
            Error::new(ErrorKind::Unavailable, message).not_executed()
        })?;
        Ok(self
            .statements
            .get_or_init(|| SessionStatements::new(&schema, &self.config.table)))
    }

    async fn statements(&self) -> Result<&SessionStatements> {
        match self.statements.get() {
            Some(statements) => Ok(statements),
            None => self.prepare().await,
        }
    }

    /// Runs a text over the control connection. Once more if the server had closed that while it was idle.
    async fn ask(&self, sql: &str) -> Result<TextRows, SqlError> {
        let mut is_repeated = false;
        loop {
            let control = self.control.connection().await?;
            let was_used = control.was_used();
            let asked = Instant::now();
            match control.run(sql, Some(self.limit())).await {
                Err(error) if error.is_disconnect() && was_used && !is_repeated => is_repeated = true,
                answer => {
                    if answer.is_ok() {
                        *self.answered.lock() = Some(asked);
                    }
                    return answer;
                }
            }
        }
    }

    /// Refuses a pooler that gives one session to two clients: those of one process that live at the same time must differ.
    async fn check_sessions_are_own(&self) -> Result<()> {
        if self.config.pooler != Pooler::Session {
            return Ok(());
        }
        let asked = self.ask("SELECT pg_backend_pid()").await;
        let rows = asked.map_err(SqlError::into_lock_error)?;
        let process = rows.into_iter().flatten().flatten().next();
        let is_shared = |session: &Arc<Session>| Some(session.identity.process.to_string()) == process;
        match self.sessions.lock().iter().any(is_shared) {
            true => Err(shared_session(&self.config.address()).not_executed()),
            false => Ok(()),
        }
    }

    /// The limit for an answer.
    fn limit(&self) -> Duration {
        self.config.response_timeout
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
        let statements = self.statements().await?;
        let dead = statements.dead_rows(as_micros(self.config.retention));
        delete_dead(&self.config, &dead).await
    }

    async fn clean_up_if_permitted(&self) -> Result<()> {
        let statements = self.statements().await?;
        let dead = statements.dead_rows(as_micros(self.config.retention));
        delete_dead_if_permitted(&self.config, &dead).await
    }

    /// A claim in a session that was reserved for it.
    fn enter(&self, request: &AcquireRequest, session: &Arc<Session>, waits: bool) -> Result<ClaimGuard<'_>> {
        let most = self.most_holds.load(Ordering::Relaxed);
        self.claims.enter(request, session.clone(), waits, most)
    }
}

/// Waits for an answer of a session. The session lives on if it is late.
async fn within<T>(limit: Duration, answer: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
    timeout(limit, answer).await.unwrap_or(Err(SqlError::TimedOut(limit)))
}
