//! rslock and distributed-lock-redis as clients of the conformance suite.

use std::time::{Duration, Instant};

use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use peers::conformance::{Hold, Locks, Result, Wait, arguments, failed, serve, within};
use rslock::{Lock, LockManager};
use tokio::sync::OnceCell;

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (library, url, ttl) = arguments();
    match library.as_str() {
        "rslock" => serve(Rslock(LockManager::new(vec![url])), "0.10.0").await,
        _ => {
            let provider = OnceCell::new();
            serve(Distributed { url, ttl, provider }, "0.2.0").await
        }
    }
}

struct Rslock(LockManager);

struct RslockHold {
    lock: Lock,
    until: Instant,
}

impl RslockHold {
    fn new(lock: Lock) -> Self {
        let until = Instant::now() + Duration::from_millis(lock.validity_time as u64);
        Self { lock, until }
    }
}

impl Locks for Rslock {
    type Hold = RslockHold;

    async fn acquire(&self, name: &str, ttl: Duration, wait: Wait) -> Result<Option<RslockHold>> {
        let waiting = async {
            let acquired = self.0.acquire_no_guard(name.as_bytes(), ttl).await;
            acquired.map_err(|error| failed("other", error))
        };
        let lock = match wait {
            Wait::Forever => Some(waiting.await?),
            Wait::Within(limit) => within(limit, waiting).await?,
            Wait::Try => match self.0.lock(name.as_bytes(), ttl).await {
                Ok(lock) => Some(lock),
                Err(rslock::LockError::Unavailable) => None,
                Err(error) => return Err(failed("other", error)),
            },
        };
        Ok(lock.map(RslockHold::new))
    }
}

impl Hold for RslockHold {
    async fn release(self) -> Result<()> {
        self.lock.release().await;
        Ok(())
    }

    async fn extend(&mut self, ttl: Duration) -> Result<()> {
        let extended = self.lock.lock_manager.extend(&self.lock, ttl).await;
        *self = Self::new(extended.map_err(|error| failed("lost", error))?);
        Ok(())
    }

    fn state(&self) -> (bool, Option<Duration>) {
        let valid = self.until.saturating_duration_since(Instant::now());
        (!valid.is_zero(), Some(valid))
    }
}

struct Distributed {
    url: String,
    ttl: Duration,
    provider: OnceCell<RedisLockProvider>,
}

struct DistributedHold(RedisLockHandle);

fn told(error: LockError) -> (&'static str, String) {
    match error {
        LockError::Timeout(_) => failed("timeout", error),
        LockError::Connection(_) | LockError::Backend(_) => failed("unavailable", error),
        LockError::LockLost(_) => failed("lost", error),
        _ => failed("other", error),
    }
}

impl Locks for Distributed {
    type Hold = DistributedHold;

    async fn acquire(&self, name: &str, _: Duration, wait: Wait) -> Result<Option<DistributedHold>> {
        let connecting = || async {
            let builder = RedisLockProvider::builder().url(&self.url).expiry(self.ttl);
            builder.extension_cadence(self.ttl / 3).min_validity(self.ttl * 9 / 10).build().await
        };
        let provider = self.provider.get_or_try_init(connecting).await.map_err(told)?;
        let lock = provider.create_lock(name);
        let handle = match wait {
            Wait::Try => lock.try_acquire().await.map_err(told)?,
            Wait::Within(limit) => Some(lock.acquire(Some(limit)).await.map_err(told)?),
            Wait::Forever => Some(lock.acquire(None).await.map_err(told)?),
        };
        Ok(handle.map(DistributedHold))
    }
}

impl Hold for DistributedHold {
    async fn release(self) -> Result<()> {
        self.0.release().await.map_err(told)
    }

    fn state(&self) -> (bool, Option<Duration>) {
        (!*self.0.lost_token().borrow(), None)
    }
}
