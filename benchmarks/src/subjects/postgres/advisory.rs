//! `advisory`: an advisory lock of the session, as `PgAdvisoryLock` of sqlx and DistributedLock of madelson take it. No lease, no token.

use async_trait::async_trait;
use benchmarks_load::{Lock, Result};
use lock_postgres::tokio_postgres::{Client as Session, Statement};

use super::{Alone, OnSession};

pub(crate) type Advisory = Alone<AdvisoryLock>;

pub(crate) struct AdvisoryLock {
    session: Session,
    key: i64,
    take: Statement,
    release: Statement,
}

#[async_trait]
impl OnSession for AdvisoryLock {
    async fn make(session: Session, name: &str) -> Result<Self> {
        let key = session
            .query_one("SELECT hashtextextended($1,0)", &[&name])
            .await?
            .try_get(0)?;
        Ok(Self {
            take: session.prepare("SELECT pg_advisory_lock($1)").await?,
            release: session.prepare("SELECT pg_advisory_unlock($1)").await?,
            session,
            key,
        })
    }
}

impl Lock for AdvisoryLock {
    type Held = ();

    /// Waits at the server.
    async fn acquire(&mut self) -> Result<()> {
        self.session.query_one(&self.take, &[&self.key]).await?;
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        match self.session.query_one(&self.release, &[&self.key]).await?.try_get(0)? {
            true => Ok(()),
            false => Err("it was not held".into()),
        }
    }
}
