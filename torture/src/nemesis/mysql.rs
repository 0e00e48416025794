//! Faults of a MySQL.

use lock_mysql::sqlx::mysql::{MySqlConnection, MySqlDatabaseError};
use lock_mysql::sqlx::{self, AssertSqlSafe, Executor, Row};
use tokio::time::sleep;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::servers::LockServer;

use super::context::{Context, Struck};

pub(super) async fn client_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    repeat(context, server, "CONNECTION").await
}

pub(super) async fn query_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    repeat(context, server, "QUERY").await
}

async fn repeat(context: &mut Context, server: &LockServer, what: &str) -> Result<Struck> {
    let mut connection = server.mysql().await?;
    for _ in 0..context.number(1..=8) {
        kill_all(&mut connection, what).await?;
        sleep(context.time(0.0..0.1)).await;
    }
    Ok(Struck::AtOnce)
}

/// Of all connections but this one.
async fn kill_all(connection: &mut MySqlConnection, what: &str) -> Result<()> {
    let ask = "SELECT CAST(ID AS CHAR) FROM information_schema.PROCESSLIST WHERE USER='app' AND ID<>CONNECTION_ID()";
    for row in sqlx::raw_sql(ask).fetch_all(&mut *connection).await? {
        let kill = format!("KILL {what} {}", row.try_get::<String, _>(0)?);
        match connection.execute(sqlx::raw_sql(AssertSqlSafe(kill))).await {
            Err(error) if !is_gone(&error) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// There is no connection of this number any more.
fn is_gone(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    error.is_some_and(|error| error.number() == 1094)
}

/// As a backup does it.
pub(super) async fn read_lock(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let mut connection = server.mysql().await?;
    connection.execute("FLUSH TABLES WITH READ LOCK").await?;
    context.last(1.1..2.0).await;
    connection.execute("UNLOCK TABLES").await?;
    Ok(Struck::AtOnce)
}

/// Names that were used before have their rows, and the log is made in advance. What needs more room is refused.
pub(super) async fn disk_full(context: &mut Context, server: &LockServer) -> Result<Struck> {
    const MAKE: &str =
        "CREATE TABLE IF NOT EXISTS torture_filling (filling VARBINARY(2000)) ENGINE=InnoDB CHARSET=latin1";
    const FILL: &str = "INSERT INTO torture_filling VALUES (REPEAT('x',2000))";
    let mut connection = server.mysql().await?;
    let disk = server.disk()?;
    connection.execute(sqlx::raw_sql(MAKE)).await?;
    disk.fill(true)?;
    let mut is_full = false;
    for _ in 0..500 {
        is_full = connection.execute(sqlx::raw_sql(FILL)).await.is_err();
        if is_full {
            break;
        }
    }
    context.last(0.5..1.5).await;
    disk.fill(false)?;
    connection.execute("DELETE FROM torture_filling").await?;
    Ok(if is_full { Struck::AtOnce } else { Struck::Never })
}

/// So few are allowed that no more are let in: this connection is the one more that an administrator may have. Those whose
/// statements are ended need new ones; of the lease table, those whose connections are.
pub(super) async fn connections_full(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let mut connection = server.mysql().await?;
    let usual = number(&mut connection, "VARIABLES LIKE 'max_connections'").await?;
    let refused = "STATUS LIKE 'Connection_errors_max_connections'";
    let before = number(&mut connection, refused).await?;
    set_limit(&mut connection, 10).await?;
    let what = match context.targets.config.backend {
        Backend::MysqlLease => "CONNECTION",
        _ => "QUERY",
    };
    kill_all(&mut connection, what).await?;
    context.last(0.5..2.0).await;
    set_limit(&mut connection, usual).await?;
    Ok(match number(&mut connection, refused).await? > before {
        true => Struck::AtOnce,
        false => Struck::Never,
    })
}

async fn set_limit(connection: &mut MySqlConnection, connections: u64) -> Result<()> {
    let set = format!("SET GLOBAL max_connections={connections}");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(set))).await?;
    Ok(())
}

/// A figure that the server shows of itself.
async fn number(connection: &mut MySqlConnection, what: &str) -> Result<u64> {
    let show = format!("SHOW GLOBAL {what}");
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(show))).await?;
    let value: String = row.try_get(1)?;
    let number = value.parse();
    number.map_err(|_| Error::new(format!("SHOW GLOBAL {what} says {value}")))
}
