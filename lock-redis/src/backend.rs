//! The backend.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, Change, DistributedLock, ListFrom, ListPage, LockStatus, Revoke, Revoked,
};
use lock_core::{FencingToken, Guarantee, LockName, Result, Verdict};

use crate::acquire::acquire;
use crate::client::{Client, End};
use crate::config::RedisConfig;
use crate::names::Keys;
use crate::probe::Finding;
use crate::protocol::mode;

/// Locks in a Redis or Valkey. A clone shares the connection.
#[derive(Clone)]
pub struct RedisBackend(Arc<Client>);

impl RedisBackend {
    /// A backend that connects when it is first used; does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) if the configuration cannot work; the error names the
    /// setting.
    pub fn new(config: RedisConfig) -> Result<Self> {
        config.check()?;
        Ok(Self(Arc::new(Client::new(&config)?)))
    }

    /// Shortcut for [`RedisConfig::from_url`] and [`new`](Self::new).
    ///
    /// # Errors
    /// Those of [`RedisConfig::from_url`].
    pub fn from_url(url: &str) -> Result<Self> {
        Self::new(RedisConfig::from_url(url)?)
    }

    /// The settings of the server that can lose locks, as far as it reports them; empty before the first connection. See
    /// [`Checks`](crate::Checks).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::Error> {
    /// use lock_core::backend::DistributedLock;
    /// let redis = lock_redis::RedisBackend::from_url("redis://127.0.0.1")?;
    /// redis.connect().await?;
    /// for finding in redis.findings() {
    ///     eprintln!("{finding}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn findings(&self) -> Vec<Finding> {
        self.0.servers.findings()
    }
}

#[async_trait]
impl DistributedLock for RedisBackend {
    fn capabilities(&self) -> Capabilities {
        // Below, the tenth that a lease is shorter than the hold would be less than a tick of the server's clock.
        const SHORTEST: Duration = Duration::from_millis(10);
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
        Capabilities::default()
            .extend()
            .fixed_lease()
            .fifo()
            .pass()
            .minimum_hold()
            .ordered()
            .durable_tokens()
            .any_floor()
            .follow()
            .shared()
            .upgradable()
            .downgrade()
            .list()
            .revoke()
            .revoke_now()
            // The server adds them up without loss.
            .permits(u32::MAX)
            // A hold that lasts longer than the delay could be forgotten, and live on.
            .ttl_between(SHORTEST, self.0.restart_delay.unwrap_or(LONGEST))
    }

    fn address(&self) -> Option<String> {
        Some(self.0.address.clone())
    }

    async fn server_id(&self) -> Result<Option<String>> {
        let run = self.0.servers.run_id().await?;
        Ok(run.map(|run| format!("redis {run}")))
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        self.0.servers.keeps(guarantee)
    }

    async fn connect(&self) -> Result<()> {
        self.0.servers.check().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = acquire(&self.0, request).await;
        attempt.map_err(|error| error.with_name(request.name()))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        // Nothing was ever sent, so there is nothing to undo. Nothing will be sent, since the request was given up.
        if self.0.servers.is_unused() {
            return Ok(());
        }
        let keys = Keys::new(&self.0.prefix, request.name());
        let abandoned = async {
            let mode = mode::of(request)?;
            // Boxed: thousands may wait for a server that is away.
            let ended = Box::pin(self.0.end(&keys, request.holder(), End::Abandon(&mode))).await;
            ended.map(drop)
        };
        abandoned.await.map_err(|error| error.with_name(request.name()))
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await.map_err(|error| error.with_name(name))
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        self.0.follow(name).await.map_err(|error| error.with_name(name))
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        self.0.list(from, at_most).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let revoked = self.0.revoke(name, token, how).await;
        revoked.map_err(|error| error.with_name(name))
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("servers", &self.0.servers)
            .field("prefix", &self.0.prefix)
            .finish_non_exhaustive()
    }
}
