//! rslock and distributed-lock-redis. The first argument is the server's URL.

use std::time::Duration;

use benchmarks_load::{Client, Lock, Result, Subject, offer, serve};
use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisDistributedLock, RedisLockHandle, RedisLockProvider};
use rslock::{LockGuard, LockManager};
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("the server's URL is missing")?;
    let rslock = offer(Rslock(url.clone()));
    let distributed = offer(Distributed(url));
    serve(
        [
            ("rslock", ("0.10.0", rslock)),
            ("distributed-lock-redis", ("0.2.0", distributed)),
        ]
        .into(),
    )
    .await
}

struct Rslock(String);

struct RslockClient(LockManager);

struct RslockLock {
    manager: LockManager,
    name: String,
}

impl Subject for Rslock {
    type Client = RslockClient;

    async fn connect(&self) -> Result<RslockClient> {
        let mut manager = LockManager::new(vec![self.0.clone()]);
        manager.set_retry(3, POLL);
        Ok(RslockClient(manager))
    }
}

impl Client for RslockClient {
    type Lock = RslockLock;

    async fn lock(&self, name: &str) -> Result<RslockLock> {
        Ok(RslockLock {
            manager: self.0.clone(),
            name: format!("rslock:{name}"),
        })
    }
}

impl Lock for RslockLock {
    type Held = LockGuard;

    async fn acquire(&mut self) -> Result<LockGuard> {
        Ok(self.manager.acquire(self.name.as_bytes(), TTL).await?)
    }

    async fn release(&mut self, guard: LockGuard) -> Result<()> {
        guard.release().await;
        Ok(())
    }
}

struct Distributed(String);

struct DistributedClient(RedisLockProvider);

impl Subject for Distributed {
    type Client = DistributedClient;

    async fn connect(&self) -> Result<DistributedClient> {
        Ok(DistributedClient(RedisLockProvider::new(&self.0).await?))
    }
}

impl Client for DistributedClient {
    type Lock = DistributedTaskLock;

    async fn lock(&self, name: &str) -> Result<DistributedTaskLock> {
        Ok(DistributedTaskLock(self.0.create_lock(name)))
    }
}

struct DistributedTaskLock(RedisDistributedLock);

impl Lock for DistributedTaskLock {
    type Held = RedisLockHandle;

    /// Its own `acquire` does not wait for a lock that is taken, whatever its time limit.
    async fn acquire(&mut self) -> Result<RedisLockHandle> {
        loop {
            match self.0.acquire(None).await {
                Err(LockError::Timeout(_)) => sleep(POLL).await,
                held => return Ok(held?),
            }
        }
    }

    async fn release(&mut self, handle: RedisLockHandle) -> Result<()> {
        Ok(handle.release().await?)
    }
}
