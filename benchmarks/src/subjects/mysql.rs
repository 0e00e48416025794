//! What MySQL is compared with.

use benchmarks_load::{Client, Lock, Result, Subject};
use futures_util::TryStreamExt;
use lock_mysql::sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlQueryResult};
use lock_mysql::sqlx::{self, AssertSqlSafe, ConnectOptions, Either, Row};
use testbed::{MariaDb, Server};
use tokio::time::sleep;

use super::POLL;

use self::bare::BareLock;

pub(crate) use self::idle::Idle;
pub(crate) use self::updates::TwoUpdates;

mod bare;
mod idle;
mod updates;

/// As a server for locks would be set up.
pub(crate) fn server() -> MariaDb {
    let options = [
        // In `handoff-128`, each of 128 clients of several subjects has some of its own.
        "--max-connections=1500",
        // With testbed's few megabytes everybody waits for checkpoints. A MariaDB knows the one, a MySQL the other.
        "--loose-innodb-log-file-size=256M",
        "--loose-innodb-redo-log-capacity=256M",
        // Both servers' default, and what a lease that outlasts a crash needs; testbed's tests do without.
        "--innodb-flush-log-at-trx-commit=1",
    ];
    options.into_iter().fold(MariaDb::new(), MariaDb::option)
}

/// The URL of a user of this server who needs no TLS.
pub(crate) async fn without_tls(server: &Server) -> Result<String> {
    let mut connection = connect(&server.url(), Autocommit::On).await?;
    let create = "CREATE USER IF NOT EXISTS 'plain'@'%' IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO 'plain'@'%'";
    sqlx::raw_sql(create).execute(&mut connection).await?;
    Ok(format!("mysql://plain:secret@{}/app?tls=false", server.address()))
}

/// `bare`. A hold is a connection: each lock makes its own.
pub(crate) struct Bare(String);

impl Bare {
    pub(crate) fn new(url: &str) -> Self {
        Self(url.into())
    }
}

impl Subject for Bare {
    type Client = Self;

    async fn connect(&self) -> Result<Self> {
        Ok(Self(self.0.clone()))
    }
}

impl Client for Bare {
    type Lock = BareLock;

    async fn lock(&self, name: &str) -> Result<BareLock> {
        BareLock::connect(&self.0, &format!("bare/{name}")).await
    }
}

/// `plain`, and `poll-10ms` where somebody competes: the row lock alone. No token, no queue.
pub(crate) struct Plain(String);

impl Plain {
    pub(crate) fn new(url: &str) -> Self {
        Self(url.into())
    }
}

pub(crate) struct PlainLock {
    connection: MySqlConnection,
    name: String,
}

impl Subject for Plain {
    type Client = Self;

    async fn connect(&self) -> Result<Self> {
        Ok(Self(self.0.clone()))
    }
}

impl Client for Plain {
    type Lock = PlainLock;

    async fn lock(&self, name: &str) -> Result<PlainLock> {
        let mut connection = connect(&self.0, Autocommit::Off).await?;
        let name = format!("plain/{name}");
        make_row(&mut connection, &name).await?;
        Ok(PlainLock { connection, name })
    }
}

impl Lock for PlainLock {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        let name = hex(&self.name);
        let lock = format!("SELECT 1 FROM `polylock` WHERE `name`={name} FOR UPDATE NOWAIT");
        while let Err(error) = execute(&mut self.connection, lock.clone()).await {
            if !is_busy(&error) {
                return Err(error.into());
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        execute(&mut self.connection, "COMMIT".into()).await?;
        Ok(())
    }
}

const NOW_MICROS: &str = "CAST(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6)) AS UNSIGNED)";

#[derive(Clone, Copy)]
enum Autocommit {
    Off = 0,
    On = 1,
}

/// As polylock connects.
async fn connect(url: &str, autocommit: Autocommit) -> Result<MySqlConnection> {
    let options: MySqlConnectOptions = url.parse()?;
    let options = options.timezone(Some("+00:00".to_owned())).disable_statement_logging();
    let mut connection = options.connect().await?;
    let autocommit = autocommit as u8;
    let sql = format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;\
         SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit={autocommit}, \
         innodb_lock_wait_timeout=600, wait_timeout=600;COMMIT"
    );
    execute(&mut connection, sql).await?;
    Ok(connection)
}

/// polylock has made the table, and would clean up a row without a token.
async fn make_row(connection: &mut MySqlConnection, name: &str) -> Result<()> {
    let insert = format!(
        "INSERT IGNORE INTO `polylock` (`name`,`token`) VALUES ({},{NOW_MICROS});COMMIT",
        hex(name)
    );
    execute(connection, insert).await?;
    Ok(())
}

/// As text of several statements, like polylock's.
async fn execute(connection: &mut MySqlConnection, sql: String) -> sqlx::Result<Vec<MySqlQueryResult>> {
    let mut answers = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(connection);
    let mut done = Vec::new();
    while let Some(answer) = answers.try_next().await? {
        if let Either::Left(result) = answer {
            done.push(result);
        }
    }
    Ok(done)
}

fn hex(name: &str) -> String {
    let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("x'{digits}'")
}

/// Somebody else has the row: as MariaDB says it, and as MySQL does.
fn is_busy(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>());
    error.is_some_and(|error| [1205, 3572].contains(&error.number()))
}

pub(crate) async fn version(url: &str) -> Result<String> {
    let options: MySqlConnectOptions = url.parse()?;
    let row = sqlx::query("SELECT VERSION()")
        .fetch_one(&mut options.connect().await?)
        .await?;
    Ok(row.try_get(0)?)
}
