//! A server for all tests of this binary, and what they do with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{
    AcquireRequest, Attempt, Busy, DistributedLock, Hold, HolderId, ReleaseOptions, ReleaseOutcome,
};
use lock_core::{ErrorKind, HoldState, LockName};
use lock_mysql::{MySqlConfig, RowLockBackend};
use sqlx::mysql::{MySqlConnection, MySqlDatabaseError};
use sqlx::{AssertSqlSafe, Connection, Row};
use testbed::{MariaDb, Server};
use tokio::sync::OnceCell;

pub(crate) mod proxy;
pub(crate) mod refusals;

/// What no healthy machine needs for what should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A lock table of one test's own.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) table: String,
}

impl Fixture {
    /// On the server that all tests share.
    pub(crate) async fn shared() -> Self {
        Self::on(shared_server().await)
    }

    /// On a server that the test may break.
    pub(crate) async fn own() -> Self {
        Self::own_with([]).await
    }

    /// The same with options of the server's command line.
    pub(crate) async fn own_with<const N: usize>(options: [&str; N]) -> Self {
        let server = start(&options).await;
        assert!(
            !server.is_external(),
            "this test needs a server of its own: unset POLYLOCK_MYSQL_URL"
        );
        Self::on(server)
    }

    /// On a server that the test made.
    pub(crate) fn on(server: Server) -> Self {
        static TABLES: AtomicU32 = AtomicU32::new(0);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        // The server may be one that ran before, with the tables of an earlier run.
        let table = format!("locks_{}_{number}", &HolderId::random().to_string()[..8]);
        Self { server, table }
    }

    pub(crate) fn config(&self) -> MySqlConfig {
        patient(&self.server.url()).with_table(&self.table)
    }

    /// A client with connections of its own.
    pub(crate) fn backend(&self) -> RowLockBackend {
        RowLockBackend::new(self.config()).unwrap()
    }

    pub(crate) async fn observer(&self) -> Observer {
        let connection = MySqlConnection::connect(&self.server.url()).await.unwrap();
        Observer {
            connection,
            table: self.table.clone(),
        }
    }
}

/// The configuration of a client that waits for a busy machine. The default timeouts are too short for one.
pub(crate) fn patient(url: &str) -> MySqlConfig {
    MySqlConfig::from_url(url)
        .unwrap()
        .with_connect_timeout(PATIENCE)
        .with_response_timeout(PATIENCE)
}

/// The server that all tests share.
pub(crate) async fn shared_server() -> Server {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    SERVER.get_or_init(|| start(&[])).await.clone()
}

/// The MySQL that all tests share; `None` where a test has to do without it.
pub(crate) async fn shared_mysql9() -> Option<Server> {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    let server = SERVER.get_or_try_init(|| testbed::Edition::MySql9.start()).await;
    testbed::skip_left_out(server.cloned())
}

/// Makes two tests of each of these functions, which take a server: on a MariaDB and on a MySQL.
macro_rules! on_both_servers {
    ($($case:ident),+ $(,)?) => {
        mod mariadb {
            $(#[testbed::test]
            async fn $case() {
                super::$case($crate::support::shared_server().await).await;
            })+
        }

        mod mysql9 {
            $(#[testbed::test]
            async fn $case() {
                if let Some(server) = $crate::support::shared_mysql9().await {
                    super::$case(server).await;
                }
            })+
        }
    };
}
pub(crate) use on_both_servers;

async fn start(options: &[&str]) -> Server {
    let server = options
        .iter()
        .fold(MariaDb::new(), |server, option| server.option(*option));
    server.start().await.unwrap()
}

/// The raw driver's view.
pub(crate) struct Observer {
    connection: MySqlConnection,
    table: String,
}

impl Observer {
    /// Whether somebody keeps the row locked.
    pub(crate) async fn is_locked(&mut self, name: &str) -> bool {
        let sql = format!("SELECT 1 FROM {} WHERE name=? FOR UPDATE NOWAIT", self.table);
        let answer = sqlx::query(AssertSqlSafe(sql))
            .bind(name.as_bytes())
            .fetch_optional(&mut self.connection)
            .await;
        match answer {
            Ok(_) => false,
            Err(sqlx::Error::Database(error)) => {
                // MariaDB's, MySQL's.
                let number = error.downcast_ref::<MySqlDatabaseError>().number();
                assert!([1205, 3572].contains(&number), "{error}");
                true
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The number of the connection that holds this name, as the row says that is not committed yet.
    pub(crate) async fn holder(&mut self, name: &str) -> Option<u64> {
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
            .await;
        let sql = format!("SELECT NULLIF(connection,0) FROM {} WHERE name=?", self.table);
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(name.as_bytes())
            .fetch_optional(&mut self.connection)
            .await;
        row.unwrap().and_then(|row| row.get(0))
    }

    pub(crate) async fn kill_holder(&mut self, name: &str) {
        let id = self.holder(name).await.expect("somebody holds it");
        self.run(&format!("KILL CONNECTION {id}")).await;
    }

    /// The connections of other clients, by what they are executing.
    pub(crate) async fn statements(&mut self) -> Vec<String> {
        let sql =
            "SELECT COALESCE(CAST(INFO AS BINARY),'') FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID()";
        let rows = sqlx::query(sql).fetch_all(&mut self.connection).await.unwrap();
        rows.iter()
            .map(|row| String::from_utf8_lossy(row.get(0)).into_owned())
            .collect()
    }

    /// How many statements wait for a row of this table.
    pub(crate) async fn waiters(&mut self) -> usize {
        let table = self.table.clone();
        let waits = |statement: &String| statement.contains(&table) && statement.ends_with("FOR UPDATE");
        self.statements()
            .await
            .iter()
            .filter(|statement| waits(statement))
            .count()
    }

    /// The number of a connection that waits for a row of this table.
    pub(crate) async fn waiting_connection(&mut self) -> u64 {
        self.number(&format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE '%{}%FOR UPDATE'",
            self.table
        ))
        .await
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut self.connection)
            .await
            .unwrap();
    }

    /// One of the server's counters, like "Com_update".
    pub(crate) async fn counter(&mut self, name: &str) -> u64 {
        let sql = format!("SHOW GLOBAL STATUS LIKE '{name}'");
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut self.connection).await;
        row.unwrap().get::<String, _>(1).parse().unwrap()
    }

    /// The same, where it may fail.
    pub(crate) async fn try_run(&mut self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        drop(sqlx::raw_sql(sql).execute(&mut self.connection).await);
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    pub(crate) async fn text(&mut self, sql: &str) -> String {
        let row = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&mut self.connection)
            .await;
        row.unwrap().get(0)
    }

    pub(crate) async fn number(&mut self, sql: &str) -> u64 {
        sqlx::query(AssertSqlSafe(format!("SELECT CAST(({sql}) AS UNSIGNED)")))
            .fetch_one(&mut self.connection)
            .await
            .unwrap()
            .get(0)
    }
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

/// An acquisition and what came of it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) hold: Arc<dyn Hold>,
    pub(crate) request: AcquireRequest,
    _control: RequestControl,
}

impl Granted {
    pub(crate) fn new(hold: Arc<dyn Hold>, request: AcquireRequest, control: RequestControl) -> Self {
        Self {
            hold,
            request,
            _control: control,
        }
    }

    pub(crate) fn token(&self) -> u64 {
        self.hold.token().as_u64()
    }

    pub(crate) fn state(&self) -> HoldState {
        self.request.lease().state()
    }

    pub(crate) async fn release(&self) -> ReleaseOutcome {
        self.hold.release(ReleaseOptions::default()).await.unwrap()
    }
}

pub(crate) fn options(name_: &str, ttl: Duration) -> RequestOptions {
    RequestOptions::new(name(name_), Terms::new(ttl).label("tester"))
}

pub(crate) async fn ask(backend: &impl DistributedLock, options: RequestOptions) -> Result<Granted, Busy> {
    let (request, control) = options.start();
    loop {
        match backend.acquire(&request).await {
            Ok(Attempt::Granted(hold, _armed)) => {
                return Ok(Granted {
                    hold,
                    request,
                    _control: control,
                });
            }
            Ok(Attempt::Busy(busy)) => return Err(busy),
            // On a busy machine, a short lease may be over before its answer is there. Then the request may be repeated.
            Err(error) if error.is_retryable() && error.to_string().contains("took longer than the lease") => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A grant of a free name.
pub(crate) async fn grant(backend: &impl DistributedLock, name: &str, ttl: Duration) -> Granted {
    ask(backend, options(name, ttl).waits(false)).await.expect("it is free")
}

/// The same, however often it takes an answer.
pub(crate) async fn grant_in_the_end(backend: &impl DistributedLock, name: &str, ttl: Duration) -> Granted {
    let (request, control) = options(name, ttl).waits(false).start();
    match insist("granted", async || backend.acquire(&request).await).await {
        Attempt::Granted(hold, _armed) => Granted::new(hold, request, control),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn try_once(backend: &impl DistributedLock, name: &str) -> Result<Granted, Busy> {
    ask(backend, options(name, secs(10)).waits(false)).await
}

/// Looks again and again until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(2 * PATIENCE, looking)
        .await
        .unwrap_or_else(|_| panic!("never {what}"));
}

/// The same for many at once, which a loaded machine serves slowly.
pub(crate) async fn all_soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(10 * PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("never {what}"))
}

/// Calls again for as long as the answer takes longer than the client waits, as on a busy machine.
pub(crate) async fn insist<T>(what: &str, mut call: impl AsyncFnMut() -> lock_core::Result<T>) -> T {
    let calling = async {
        loop {
            match call().await {
                Err(error) if error.is_retryable() && error.kind() == ErrorKind::Unavailable => {}
                answer => return answer.unwrap_or_else(|error| panic!("{what}: {error:?}")),
            }
        }
    };
    soon(what, calling).await
}

/// A grant within a time in which anything else would have to have ended.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("never {what}"))
}
