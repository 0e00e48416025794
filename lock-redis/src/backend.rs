//! The backend: acquires, abandons, and says who has a lock.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus};
use lock_core::{LockName, Result};

use crate::claims::Doubts;
use crate::client::{End, Server};
use crate::config::RedisConfig;
use crate::connection::Connection;
use crate::connection::inbox::Inbox;
use crate::names::Keys;
use crate::probe::Finding;
use crate::protocol::{self, millis, unexpected};

/// Locks in a Redis. A clone shares the connection.
#[derive(Clone)]
pub struct RedisBackend(Arc<Server>);

impl RedisBackend {
    /// A backend that connects when it is first used; does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) when the configuration cannot work.
    pub fn new(config: RedisConfig) -> Result<Self> {
        config.check()?;
        let inbox = Arc::new(Inbox::new(config.prefix()));
        Ok(Self(Arc::new(Server {
            connection: Connection::new(&config, inbox.clone())?,
            prefix: config.prefix().into(),
            inbox,
            doubts: Doubts::default(),
            grace: config.grace(),
            grace_ms: millis(config.grace()),
        })))
    }

    /// Short for [`RedisConfig::from_url`] and [`new`](Self::new).
    ///
    /// # Errors
    /// Those of [`RedisConfig::from_url`].
    pub fn from_url(url: &str) -> Result<Self> {
        Self::new(RedisConfig::from_url(url)?)
    }

    /// The settings of the server by which it can lose locks, as far as it tells them; empty before the first
    /// connection. See [`Checks`](crate::Checks).
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
        self.0.connection.findings()
    }

    async fn try_status(&self, name: &LockName) -> Result<LockStatus> {
        let (connection, keys) = (&self.0.connection, Keys::new(&self.0.prefix, name));
        let session = connection.session(pending()).await?;
        let answer = connection
            .run(&session, &protocol::STATUS, &[keys.lock(), keys.queue()], &[])
            .await;
        let answer = answer.map_err(|failed| connection.explain(failed))?;
        let status = protocol::status(&answer).ok_or_else(unexpected)?;
        let free_or_held = status
            .taken
            .map_or_else(LockStatus::free, |taken| LockStatus::held(taken.into()));
        Ok(free_or_held.with_waiting(status.waiting))
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
            .hand_over()
            .minimum_hold()
            .ordered()
            .durable_tokens()
            .ttl_between(SHORTEST, LONGEST)
    }

    async fn connect(&self) -> Result<()> {
        self.0.connection.check().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = self.0.acquire(request).await;
        attempt.map_err(|error| error.with_name(request.name()))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        // Nothing was ever sent, so there is nothing to undo; nor will it be, since a request that was given up is not.
        if self.0.connection.is_unused() {
            return Ok(());
        }
        let keys = Keys::new(&self.0.prefix, request.name());
        match self.0.end(&keys, request.holder(), End::Abandon).await {
            Ok(_had_it) => Ok(()),
            Err(error) => Err(error.with_name(request.name())),
        }
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.try_status(name).await.map_err(|error| error.with_name(name))
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("connection", &self.0.connection)
            .field("prefix", &self.0.prefix)
            .finish_non_exhaustive()
    }
}
