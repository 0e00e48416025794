//! sqlx's `PgAdvisoryLock` as a client of the conformance suite.

use std::time::Duration;

use peers::conformance::{Hold, Locks, Result, Wait, arguments, failed, serve, within};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard, PgPool, PgPoolOptions};
use sqlx::{Error, Postgres};

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (_, url, _) = arguments();
    let pool = PgPoolOptions::new().max_connections(100).connect_lazy(&url)?;
    serve(Advisory(pool), "0.9.0").await
}

struct Advisory(PgPool);

struct AdvisoryHold(PgAdvisoryLockGuard<PoolConnection<Postgres>>);

fn told(error: Error) -> (&'static str, String) {
    match error {
        Error::Io(_) | Error::Protocol(_) | Error::PoolTimedOut => failed("unavailable", error),
        error => failed("other", error),
    }
}

impl Locks for Advisory {
    type Hold = AdvisoryHold;

    async fn acquire(&self, name: &str, _: Duration, wait: Wait) -> Result<Option<AdvisoryHold>> {
        let connection = self.0.acquire().await.map_err(told)?;
        let lock = PgAdvisoryLock::new(name);
        let guard = match wait {
            Wait::Try => lock.try_acquire(connection).await.map_err(told)?.left(),
            Wait::Within(limit) => within(limit, async { lock.acquire(connection).await.map_err(told) }).await?,
            Wait::Forever => Some(lock.acquire(connection).await.map_err(told)?),
        };
        Ok(guard.map(AdvisoryHold))
    }
}

impl Hold for AdvisoryHold {
    /// An error says that the connection has ended, and the lock with it.
    async fn release(self) -> Result<()> {
        let released = self.0.release_now().await;
        released.map(drop).map_err(|error| failed("lost", error))
    }
}
