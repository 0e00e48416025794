//! The subjects that are compared with the rules, and the ways in which their holds end early.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{DistributedLock, HolderId};
use lock_core::{LockName, MemoryBackend};
use lock_mysql::sqlx::mysql::{MySqlConnection, MySqlPool};
use lock_mysql::sqlx::{self, AssertSqlSafe, Connection};
use lock_mysql::{MySqlConfig, RowLockBackend};
use lock_postgres::{LeaseTableBackend, PostgresConfig, tokio_postgres};
use lock_redis::redis::{self, aio::MultiplexedConnection};
use lock_redis::{RedisBackend, RedisConfig};
use tokio::time::{advance, sleep};

pub(crate) trait Subject {
    /// For one sequence.
    fn backend(&self) -> Arc<dyn DistributedLock>;

    /// The clock that tokens follow, in microseconds; 0: none.
    async fn clock(&self) -> u64;

    /// The number of tokens after its own that a grant reserves, whether it was asked to or not.
    fn reserved(&self) -> u64 {
        0
    }

    /// Ends the hold as its end would, and returns when it has ended.
    async fn expire(&self, name: &LockName);

    /// Lets some time pass where it is the test's own.
    async fn pass(&self) {}
}

#[derive(Default)]
pub(crate) struct Memory(RefCell<MemoryBackend>);

impl Subject for Memory {
    /// A server of its own, since its tokens go on from name to name.
    fn backend(&self) -> Arc<dyn DistributedLock> {
        self.0.replace(MemoryBackend::new());
        Arc::new(self.0.borrow().clone())
    }

    async fn clock(&self) -> u64 {
        0
    }

    /// To the moment itself.
    async fn expire(&self, name: &LockName) {
        let server = self.0.borrow().clone();
        let status = server.status(name).await.expect("an answer");
        advance(status.holders[0].expires_in.expect("an end")).await;
    }

    async fn pass(&self) {
        advance(Duration::from_secs(50)).await;
    }
}

pub(crate) struct Redis {
    _server: testbed::Server,
    backend: RedisBackend,
    prefix: String,
    raw: MultiplexedConnection,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        let server = testbed::Redis::new().start().await.expect("a Redis");
        let prefix = format!("differential-{}:", HolderId::random());
        let config = RedisConfig::from_url(&server.url()).expect("a good URL");
        let config = config.with_prefix(&prefix).with_response_timeout(super::PATIENCE);
        let backend = RedisBackend::new(config).expect("a good configuration");
        let client = redis::Client::open(server.url()).expect("a good URL");
        let raw = client
            .get_multiplexed_async_connection_with_config(&super::patient())
            .await
            .expect("a connection");
        Self {
            _server: server,
            backend,
            prefix,
            raw,
        }
    }
}

impl Subject for Redis {
    fn reserved(&self) -> u64 {
        16
    }

    fn backend(&self) -> Arc<dyn DistributedLock> {
        Arc::new(self.backend.clone())
    }

    async fn clock(&self) -> u64 {
        let time = redis::cmd("TIME").query_async(&mut self.raw.clone()).await;
        let (seconds, micros): (u64, u64) = time.expect("the time");
        seconds * 1_000_000 + micros
    }

    async fn expire(&self, name: &LockName) {
        let key = format!("{}{name}", self.prefix);
        let mut command = redis::cmd("PEXPIRE");
        let ended = command.arg(key).arg(0).query_async(&mut self.raw.clone()).await;
        let ended: u8 = ended.expect("an answer");
        assert_eq!(ended, 1, "there was no hold to end");
    }
}

pub(crate) struct MySqlRow {
    _server: testbed::Server,
    backend: RowLockBackend,
    table: String,
    raw: MySqlPool,
}

impl MySqlRow {
    pub(crate) async fn start() -> Self {
        let server = testbed::MariaDb::new().start().await.expect("a MariaDB");
        let table = format!("differential_{}", &HolderId::random().to_string()[..8]);
        let config = MySqlConfig::from_url(&server.url()).expect("a good URL");
        let config = config.with_table(&table).with_response_timeout(super::PATIENCE);
        let backend = RowLockBackend::new(config).expect("a good configuration");
        let raw = MySqlPool::connect(&server.url()).await.expect("a connection");
        Self {
            _server: server,
            backend,
            table,
            raw,
        }
    }
}

impl Subject for MySqlRow {
    fn reserved(&self) -> u64 {
        16
    }

    fn backend(&self) -> Arc<dyn DistributedLock> {
        Arc::new(self.backend.clone())
    }

    async fn clock(&self) -> u64 {
        // Of no time zone, however the session is set.
        let now = "SELECT CAST(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)) AS UNSIGNED)";
        sqlx::query_scalar(now).fetch_one(&self.raw).await.expect("the time")
    }

    /// As `wait_timeout` does: the server ends the connection.
    async fn expire(&self, name: &LockName) {
        let mut session: MySqlConnection = self.raw.acquire().await.expect("a connection").detach();
        let uncommitted = "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED";
        sqlx::query(uncommitted)
            .execute(&mut session)
            .await
            .expect("permission");
        // 0: nobody, after a release.
        let holder = format!("SELECT NULLIF(`connection`,0) FROM `{}` WHERE `name`=?", self.table);
        let query = sqlx::query_scalar(AssertSqlSafe(holder)).bind(name.as_str().as_bytes());
        let id: Option<u64> = query.fetch_one(&mut session).await.expect("a row");
        let id = id.expect("a holder");
        let kill = AssertSqlSafe(format!("KILL {id}"));
        sqlx::raw_sql(kill).execute(&mut session).await.expect("permission");
        // Its transaction is rolled back a little later.
        while self.backend.status(name).await.expect("an answer").is_held() {
            sleep(Duration::from_millis(1)).await;
        }
        session.close().await.expect("an end");
    }
}

pub(crate) struct PostgresLease {
    _server: testbed::Server,
    backend: LeaseTableBackend,
    table: String,
    raw: tokio_postgres::Client,
}

impl PostgresLease {
    pub(crate) async fn start() -> Self {
        let server = testbed::Postgres::new().start().await.expect("a PostgreSQL");
        let table = format!("differential_{}", &HolderId::random().to_string()[..8]);
        let config = PostgresConfig::from_url(&server.url()).expect("a good URL");
        let config = config.with_table(&table).with_response_timeout(super::PATIENCE);
        let backend = LeaseTableBackend::new(config).expect("a good configuration");
        let connected = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await;
        let (raw, connection) = connected.expect("a connection");
        tokio::spawn(connection);
        Self {
            _server: server,
            backend,
            table,
            raw,
        }
    }
}

impl Subject for PostgresLease {
    fn backend(&self) -> Arc<dyn DistributedLock> {
        Arc::new(self.backend.clone())
    }

    async fn clock(&self) -> u64 {
        let now = "SELECT (extract(epoch from clock_timestamp())*1000000)::bigint";
        let row = self.raw.query_one(now, &[]).await.expect("the time");
        u64::try_from(row.get::<_, i64>(0)).expect("a time after 1970")
    }

    async fn expire(&self, name: &LockName) {
        let end = format!(
            "UPDATE {}_leases SET expires=clock_timestamp() WHERE name=$1 AND holder IS NOT NULL",
            self.table
        );
        let ended = self.raw.execute(&end, &[&name.as_str().as_bytes()]).await;
        assert_eq!(ended.expect("an answer"), 1, "there was no hold to end");
    }
}
