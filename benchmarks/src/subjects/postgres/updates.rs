//! `two-updates`: what a lease in a row costs at the least, if it is to outlast a crash.

use async_trait::async_trait;
use benchmarks_load::{Lock, Result};
use lock_postgres::tokio_postgres::{Client as Session, Statement};

use super::super::TTL;
use super::{Alone, OnSession};

const MAKE_TABLE: &str = "CREATE TABLE IF NOT EXISTS two_updates (name bytea PRIMARY KEY, holder uuid, \
                          expires timestamptz NOT NULL DEFAULT '-infinity', token bigint NOT NULL DEFAULT 0) WITH (fillfactor=40)";
const HOLDER: &str = "'00000000-0000-0000-0000-000000000001'";

/// Each statement is a transaction of its own.
pub(crate) type TwoUpdates = Alone<TwoUpdatesLock>;

pub(crate) struct TwoUpdatesLock {
    session: Session,
    name: Vec<u8>,
    acquire: Statement,
    release: Statement,
}

#[async_trait]
impl OnSession for TwoUpdatesLock {
    async fn make(session: Session, name: &str) -> Result<Self> {
        // Two clients that make the table at once may fail: then it is there.
        if session.batch_execute(MAKE_TABLE).await.is_err() {
            session.batch_execute(MAKE_TABLE).await?;
        }
        let name = name.as_bytes().to_vec();
        let make_row = "INSERT INTO two_updates (name) VALUES ($1) ON CONFLICT DO NOTHING";
        session.execute(make_row, &[&name]).await?;
        let acquire = format!(
            "UPDATE two_updates SET holder={HOLDER},token=token+1,expires=statement_timestamp()+interval '{} s' \
             WHERE name=$1 AND (holder IS NULL OR expires<=statement_timestamp()) RETURNING token",
            TTL.as_secs()
        );
        let release = format!(
            "UPDATE two_updates SET holder=NULL WHERE name=$1 AND holder={HOLDER} AND expires>statement_timestamp() RETURNING token"
        );
        Ok(Self {
            acquire: session.prepare(&acquire).await?,
            release: session.prepare(&release).await?,
            session,
            name,
        })
    }
}

impl Lock for TwoUpdatesLock {
    type Held = ();

    /// Nobody else wants it.
    async fn acquire(&mut self) -> Result<()> {
        self.session.query_one(&self.acquire, &[&self.name]).await?;
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        self.session.query_one(&self.release, &[&self.name]).await?;
        Ok(())
    }
}
