//! The backend: acquires, abandons, and says who has a lock.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Busy, Capabilities, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, LockName, Result};
use redis::Value;

use crate::backoff;
use crate::checks::Finding;
use crate::config::RedisConfig;
use crate::connection::Connection;
use crate::doubts::Doubts;
use crate::error::is_answer;
use crate::hold::{RedisHold, Server, millis, unexpected};
use crate::keys::Keys;
use crate::reply::{self, Acquired, Taken};
use crate::script;

/// Locks in a Redis. A clone shares the connection.
#[derive(Clone)]
pub struct RedisBackend(Arc<Server>);

impl RedisBackend {
    /// A backend that connects when it is first used; does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] when the configuration cannot work.
    pub fn new(config: RedisConfig) -> Result<Self> {
        config.check()?;
        Ok(Self(Arc::new(Server {
            connection: Connection::new(&config)?,
            prefix: config.prefix().into(),
            doubts: Doubts::default(),
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

    fn keys(&self, name: &LockName) -> Keys {
        Keys::new(&self.0.prefix, name)
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let connection = &self.0.connection;
        let session = connection.session(request.given_up()).await?;
        if request.is_given_up() {
            return Err(given_up());
        }
        let keys = self.keys(request.name());
        let both = [&*keys.lock, &*keys.fence];
        let ttl = request.ttl();
        let label = request.label().map_or_else(String::new, |label| format!(" {label}"));
        let floor = request.token_floor().map_or(0, u64::from).to_string();
        let arguments = [&*request.holder().to_string(), &*millis(ttl), &*label, &*floor];

        let unanswered = self.0.doubts.sending(request.holder(), session.generation);
        let sent = request.sending();
        let answer = tokio::select! {
            biased;
            answer = connection.run(&session, &script::ACQUIRE, &both, &arguments) => answer,
            () = request.given_up() => return Err(given_up()),
        };
        if answer.as_ref().err().is_none_or(is_answer) {
            unanswered.answered();
        }
        let answer = answer.map_err(|error| connection.explain(error))?;
        match reply::acquired(&answer).ok_or_else(unexpected)? {
            Acquired::Granted(token) => {
                let armed = request.lease().arm(sent, ttl)?;
                let hold = RedisHold {
                    server: self.0.clone(),
                    name: request.name().clone(),
                    keys,
                    holder: request.holder(),
                    token,
                    lease: request.lease().clone(),
                    _watched: connection.watch_over(request.holder(), request.lease(), &session),
                };
                Ok(Attempt::Granted(Arc::new(hold), armed))
            }
            Acquired::Taken(taken) => Ok(Attempt::Busy(busy(request, taken))),
            Acquired::Dead => Err(Error::new(
                ErrorKind::Unexpected,
                "this holder id was abandoned or released before",
            )),
        }
    }

    async fn try_status(&self, name: &LockName) -> Result<LockStatus> {
        let connection = &self.0.connection;
        let session = connection.session(pending()).await?;
        let answer = connection
            .run(&session, &script::STATUS, &[&self.keys(name).lock], &[])
            .await;
        match answer.map_err(|error| connection.explain(error))? {
            Value::Nil => Ok(LockStatus::free()),
            answer => Ok(LockStatus::held(reply::taken(&answer).ok_or_else(unexpected)?.into())),
        }
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
            .ordered()
            .durable_tokens()
            .ttl_between(SHORTEST, LONGEST)
    }

    async fn connect(&self) -> Result<()> {
        self.0.connection.check().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = self.try_acquire(request).await;
        attempt.map_err(|error| error.with_name(request.name()))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        match self.0.end(&self.keys(request.name()), request.holder()).await {
            Ok(_) => Ok(()),
            // Nothing was ever sent, so there is nothing to undo.
            Err(_) if self.0.connection.is_unused() => Ok(()),
            Err(error) => Err(error.with_name(request.name())),
        }
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.try_status(name).await.map_err(|error| error.with_name(name))
    }
}

fn busy(request: &AcquireRequest, taken: Taken) -> Busy {
    let previous = request.last_busy().and_then(|busy| busy.ask_again);
    let after = backoff::ask_again(previous, taken.rest, rand::random());
    let busy = Busy::new().with_ask_again(after);
    let busy = match taken.holder.label {
        Some(label) => busy.with_holder(label),
        None => busy,
    };
    // So that the next step is larger.
    request.note_busy(busy.clone());
    busy
}

fn given_up() -> Error {
    Error::new(ErrorKind::Unavailable, "given up before Redis had answered")
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("connection", &self.0.connection)
            .field("prefix", &self.0.prefix)
            .finish_non_exhaustive()
    }
}
