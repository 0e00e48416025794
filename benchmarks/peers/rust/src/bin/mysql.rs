//! distributed-lock-mysql. The first argument is the server's URL.

use std::time::Duration;

use benchmarks_load::{Client, Lock, Result, Subject, offer, serve};
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_mysql::lock::MySqlDistributedLock;
use distributed_lock_mysql::{MySqlLockHandle, MySqlLockProvider};

/// It cannot wait for ever on MariaDB.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("the server's URL is missing")?;
    serve([("distributed-lock-mysql", ("0.2.0", offer(Distributed(url))))].into()).await
}

struct Distributed(String);

struct DistributedClient(MySqlLockProvider);

impl Subject for Distributed {
    type Client = DistributedClient;

    async fn connect(&self) -> Result<DistributedClient> {
        Ok(DistributedClient(MySqlLockProvider::new(&self.0).await?))
    }
}

impl Client for DistributedClient {
    type Lock = TaskLock;

    async fn lock(&self, name: &str) -> Result<TaskLock> {
        Ok(TaskLock(self.0.create_lock(name)))
    }
}

struct TaskLock(MySqlDistributedLock);

impl Lock for TaskLock {
    type Held = MySqlLockHandle;

    async fn acquire(&mut self) -> Result<MySqlLockHandle> {
        Ok(self.0.acquire(Some(PATIENCE)).await?)
    }

    async fn release(&mut self, handle: MySqlLockHandle) -> Result<()> {
        Ok(handle.release().await?)
    }
}
