//! The backend that users name.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus};
use lock_core::{LockName, Result};

use super::claims::Claims;
use crate::client::{Server, SqlOrError};
use crate::config::MySqlConfig;
use crate::connection::Pool;
use crate::connection::{Commits, column};
use crate::probe::prepare;
use crate::protocol::LONGEST_SECONDS;
use crate::protocol::row_lock::{Statements, holder};

/// Locks that are rows, locked by a transaction on a connection of their own. See the [crate's page](crate).
///
/// Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct RowLockBackend(Arc<Shared>);

pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) pool: Pool,
    pub(super) claims: Claims,
    pub(super) statements: Statements,
    /// Whether the tables were there when last looked at.
    prepared: AtomicBool,
}

impl RowLockBackend {
    /// A backend for this server. Does no I/O: it connects when it is first used.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a configuration that cannot work.
    pub fn new(config: MySqlConfig) -> Result<Self> {
        config.check()?;
        Ok(Self(Arc::new(Shared {
            pool: Pool::new(config.max_connections()),
            statements: Statements::new(config.table()),
            claims: Claims::default(),
            prepared: AtomicBool::new(false),
            server: Server::new(config),
        })))
    }

    #[cfg(test)]
    pub(super) fn claims(&self) -> &Claims {
        &self.0.claims
    }
}

#[async_trait]
impl DistributedLock for RowLockBackend {
    fn capabilities(&self) -> Capabilities {
        // wait_timeout counts whole seconds.
        let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(LONGEST_SECONDS));
        Capabilities::default()
            .extend()
            .fixed_lease()
            .durable_tokens()
            .ttl_between(shortest, longest)
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.0.acquire(request).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0
            .abandon(request)
            .await
            .map_err(|error| error.with_name(request.name()))
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await.map_err(|error| error.with_name(name))
    }
}

impl Shared {
    /// Reaches the server, makes the tables and sees whether all that a lock needs is permitted.
    async fn connect(&self) -> Result<()> {
        let session = self.server.open(Commits::WhenTold).await?;
        let limit = self.response_timeout();
        prepare(&self.statements, &session, limit)
            .await
            .map_err(SqlOrError::into_error)?;
        session
            .run(self.statements.rehearse(), None, limit)
            .await
            .map_err(|error| error.into_error())?;
        self.set_prepared(true);
        self.pool.offer(session);
        Ok(())
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let answer = match self.server.control(self.statements.holder(name), None).await {
            Err(SqlOrError::Sql(error)) if error.is_missing_table() => return Ok(LockStatus::free()),
            answer => answer.map_err(SqlOrError::into_error)?,
        };
        match answer.row(0) {
            None => Ok(LockStatus::free()),
            Some(row) => Ok(LockStatus::held(holder(row).map_err(|error| error.into_error())?)),
        }
    }

    /// The last token that a release has committed; 0 before the first.
    pub(super) async fn committed_token(&self, name: &LockName) -> Result<Option<u64>> {
        let answer = self.server.control(self.statements.committed_token(name), None).await;
        let answer = answer.map_err(SqlOrError::into_error)?;
        let token = answer.row(1).map(|row| column(row, 0, "token")).transpose();
        token.map_err(|error| error.into_error())
    }

    pub(super) fn response_timeout(&self) -> Duration {
        self.server.config().response_timeout()
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Relaxed)
    }

    pub(super) fn set_prepared(&self, prepared: bool) {
        self.prepared.store(prepared, Ordering::Relaxed);
    }
}

impl fmt::Debug for RowLockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLockBackend")
            .field("server", &self.0.server)
            .finish_non_exhaustive()
    }
}
