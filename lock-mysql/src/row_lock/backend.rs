//! The backend that users name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus};
use lock_core::{LockName, Result};

use super::Shared;
use crate::config::{MySqlConfig, Strategy};
use crate::error::{RequestError, SqlError};
use crate::probe;
use crate::protocol::LONGEST_SECONDS;
use crate::protocol::row_lock::holder;

/// Locks that are rows, locked by a transaction on a connection of their own. See the [crate's page](crate).
///
/// Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct RowLockBackend(Arc<Shared>);

impl RowLockBackend {
    /// A backend for this server. Does no I/O: it connects when it is first used.
    ///
    /// ```
    /// use lock_core::Locker;
    /// use lock_mysql::{MySqlConfig, RowLockBackend};
    ///
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = MySqlConfig::new("127.0.0.1", 3306).with_user("app").with_database("shop");
    /// let locks = Locker::new(RowLockBackend::new(config)?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a configuration that cannot work.
    pub fn new(config: MySqlConfig) -> Result<Self> {
        config.check_for(Strategy::Row)?;
        Ok(Self(Arc::new(Shared::new(config))))
    }

    /// A backend for the server at this URL: see [`MySqlConfig::from_url`].
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a URL that cannot work.
    pub fn from_url(url: &str) -> Result<Self> {
        Self::new(MySqlConfig::from_url(url)?)
    }

    #[cfg(test)]
    pub(super) fn claims(&self) -> &super::claims::Claims {
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
            .hand_over()
            .pass()
            .shared()
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
    /// Reaches the server, makes the tables and checks that all that a lock needs is permitted.
    async fn connect(&self) -> Result<()> {
        let session = self.client.pool.open().await?;
        let limit = self.client.response_timeout();
        let prepared = self.prepare_tables(&session, limit).await;
        prepared.map_err(RequestError::into_lock_error)?;
        probe::check_permissions(&self.statements, &session, limit)
            .await
            .map_err(SqlError::into_lock_error)?;
        let checked = probe::check_session(&session, limit).await;
        checked.map_err(RequestError::into_lock_error)?;
        self.set_prepared(true);
        self.client.pool.offer(session);
        Ok(())
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let answer = match self.client.control.execute(self.statements.holders(name), None).await {
            Err(RequestError::Sql(error)) if error.is_missing_table() => return Ok(LockStatus::free()),
            answer => answer.map_err(RequestError::into_lock_error)?,
        };
        let rows = answer.results.first().map_or(&[][..], |select| &select.rows);
        let holders: Result<Vec<_>, _> = rows.iter().map(holder).collect();
        Ok(LockStatus::held_by(holders.map_err(SqlError::into_lock_error)?))
    }
}

impl fmt::Debug for RowLockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLockBackend")
            .field("client", &self.0.client)
            .finish_non_exhaustive()
    }
}
