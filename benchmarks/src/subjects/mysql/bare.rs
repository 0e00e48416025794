//! `bare`: polylock's own statements, each lock on a connection of its own. A test compares them.

use benchmarks_load::{Lock, Result};
use lock_mysql::sqlx::mysql::MySqlConnection;

use super::{Autocommit, NOW_MICROS, connect, execute, hex, is_busy, make_row};

pub(crate) struct BareLock {
    connection: MySqlConnection,
    take: String,
    wait: String,
    release: String,
}

impl BareLock {
    pub(super) async fn connect(url: &str, name: &str) -> Result<Self> {
        let mut connection = connect(url, Autocommit::Off).await?;
        make_row(&mut connection, name).await?;
        let name = hex(name);
        let now = NOW_MICROS;
        let lock = format!("SELECT 1 FROM `polylock` WHERE `name`={name} FOR UPDATE");
        // Its own token, and as many as it may pass the lock on within the process.
        let take = format!(
            "UPDATE `polylock` SET `token`=GREATEST(`token`+17,1,{now},\
             COALESCE((SELECT t.`token`+1 FROM `polylock_tokens` t WHERE t.`name`={name}),0)),\
             `connection`=CONNECTION_ID()+0*LAST_INSERT_ID(`token`|(`token`>{now})<<63),\
             `label`=x'{}',`expires`=0 WHERE `name`={name}",
            "00".repeat(64)
        );
        Ok(Self {
            connection,
            wait: format!("ROLLBACK;{lock};{take}"),
            take: format!("{lock} NOWAIT;{take}"),
            release: format!("UPDATE `polylock` SET `connection`=0 WHERE `name`={name};COMMIT"),
        })
    }
}

impl Lock for BareLock {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        match execute(&mut self.connection, self.take.clone()).await {
            Err(error) if is_busy(&error) => execute(&mut self.connection, self.wait.clone()).await?,
            done => done?,
        };
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        execute(&mut self.connection, self.release.clone()).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Locker;
    use lock_mysql::RowLockBackend;
    use lock_mysql::sqlx::{self, Row};

    use super::*;
    use crate::subjects::TTL;

    /// What the server was told by a pair, from all connections.
    async fn told<F: AsyncFnOnce()>(log: &mut MySqlConnection, pair: F) -> Vec<String> {
        execute(log, "TRUNCATE mysql.general_log;SET GLOBAL general_log=ON".into())
            .await
            .unwrap();
        pair().await;
        execute(log, "SET GLOBAL general_log=OFF".into()).await.unwrap();
        let ask = "SELECT CAST(`argument` AS CHAR) FROM mysql.general_log \
                   WHERE command_type='Query' AND thread_id<>CONNECTION_ID() ORDER BY event_time";
        let rows = sqlx::raw_sql(ask).fetch_all(log).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    #[testbed::test]
    async fn sends_what_polylock_sends() {
        let server = testbed::MariaDb::new().start().await.unwrap();
        let locker = Locker::new(RowLockBackend::from_url(&server.url()).unwrap()).without_label();
        let lock = locker.lock("same").ttl(TTL);
        // Makes tables, row and connection.
        lock.acquire().await.unwrap().release().await.map(drop).unwrap();
        let mut bare = BareLock::connect(&server.url(), "same").await.unwrap();
        let mut log = connect(&server.url(), Autocommit::Off).await.unwrap();
        execute(&mut log, "SET GLOBAL log_output='TABLE'".into()).await.unwrap();

        let (mut polylocks, mut bares) = (Vec::new(), Vec::new());
        // Polylock tells a connection that was idle for a moment to stay, and says so with the next acquire.
        for _ in 0..10 {
            lock.acquire().await.unwrap().release().await.map(drop).unwrap();
            polylocks = told(&mut log, async || {
                lock.acquire().await.unwrap().release().await.map(drop).unwrap()
            })
            .await;
            bares = told(&mut log, async || {
                bare.acquire().await.unwrap();
                bare.release(()).await.unwrap();
            })
            .await;
            if polylocks == bares {
                break;
            }
        }
        assert!(polylocks.len() >= 2, "{polylocks:#?}");
        assert_eq!(polylocks, bares);
    }
}
