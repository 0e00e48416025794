//! distributed-lock-mysql as a client of the conformance suite.

use std::time::Duration;

use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_mysql::{MySqlLockHandle, MySqlLockProvider};
use peers::conformance::{Hold, Locks, Result, Wait, arguments, failed, serve};
use tokio::sync::OnceCell;

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (_, url, _) = arguments();
    let provider = OnceCell::new();
    serve(Distributed { url, provider }, "0.2.0").await
}

struct Distributed {
    url: String,
    provider: OnceCell<MySqlLockProvider>,
}

struct DistributedHold(MySqlLockHandle);

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
        let connecting = || {
            let builder = MySqlLockProvider::builder().connection_string(&self.url);
            builder.keepalive_cadence(Duration::from_secs(1)).build()
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
