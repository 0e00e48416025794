//! Statements on the driver's own connection, and how it is made.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use lock_kit::panics::catch;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Either};
use tokio::sync::oneshot;

use crate::error::SqlError;
use crate::protocol::{Autocommit, Identity, StatementResult, TIME_ZONE, column, seconds_up};

/// The time after which the server closes an unused connection. It is longer than ours, so that this process closes it first.
pub(super) const IDLE_LIMIT_AT_SERVER: Duration = Duration::from_secs(90);

/// The result of one of several statements, counted from 0, for somebody who does not wait for the others.
pub(super) struct EarlyResult {
    pub(super) statement: usize,
    pub(super) reply: oneshot::Sender<StatementResult>,
}

/// Limits that only MariaDB has, and one that only MySQL has: the other takes them as a comment.
const OF_ONE_SERVER: &str = "/*M!100600 ,max_statement_time=0,idle_transaction_timeout=0,\
    idle_readonly_transaction_timeout=0,idle_write_transaction_timeout=0*//*!80000 ,max_execution_time=0*/";

/// The largest number: `DEFAULT` would be what the server's administrator has set.
const NO_LIMIT: u64 = u64::MAX;

/// Connects and marks the connection with its identity.
///
/// READ UNCOMMITTED, so that a plain SELECT shows who holds a row in a transaction that is still open; rows are locked
/// as under READ COMMITTED, without gaps. A statement that waits where none should does so for a second at most. All that
/// a server's defaults may change in the meaning of statements or in the life of a transaction is set here, with these `settings`
/// besides, each of which begins with a comma.
pub(super) async fn connect(
    options: &MySqlConnectOptions,
    autocommit: Autocommit,
    settings: &str,
    identity: Identity,
) -> Result<MySqlConnection, SqlError> {
    let mut connection = without_panic(async { Ok(options.connect().await?) }).await?;
    let autocommit = u8::from(autocommit == Autocommit::On);
    let idle = seconds_up(IDLE_LIMIT_AT_SERVER);
    let sql = format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ WRITE;\
         SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone='{TIME_ZONE}', \
         autocommit={autocommit}, completion_type=0, innodb_lock_wait_timeout=1, wait_timeout={idle}, \
         sql_select_limit={NO_LIMIT}, sql_big_selects=1{settings}{OF_ONE_SERVER};\
         SELECT CAST(GET_LOCK({identity},0) AS SIGNED);\
         COMMIT"
    );
    let results = execute(&mut connection, sql).await?;
    let marked = results.get(2).and_then(|select| select.rows.first());
    match column(marked.ok_or(SqlError::UnexpectedAnswer("named lock"))?, 0, "named lock")? {
        Some(1_i64) => Ok(connection),
        _ => Err(SqlError::UnexpectedAnswer("named lock")),
    }
}

/// Runs statements as one text and collects what each did.
///
/// As text, because a prepared statement takes a round trip of its own and, dropped half-way, leaves sqlx's connection
/// confused. Every literal in it comes from [`crate::protocol`].
pub(crate) async fn execute(connection: &mut MySqlConnection, sql: String) -> Result<Vec<StatementResult>, SqlError> {
    execute_early(connection, sql, None).await
}

/// The same. What `early` asks for is sent as soon as it arrives.
pub(super) async fn execute_early(
    connection: &mut MySqlConnection,
    sql: String,
    early: Option<EarlyResult>,
) -> Result<Vec<StatementResult>, SqlError> {
    let mut results = Vec::new();
    execute_into(connection, sql, early, &mut results).await?;
    Ok(results)
}

/// The same, and leaves in `results` what the statements before one that failed did.
pub(super) async fn execute_into(
    connection: &mut MySqlConnection,
    sql: String,
    mut early: Option<EarlyResult>,
    results: &mut Vec<StatementResult>,
) -> Result<(), SqlError> {
    let sql = Arc::<str>::from(sql);
    without_panic(async {
        let mut answers = sqlx::raw_sql(AssertSqlSafe(sql.clone())).fetch_many(connection);
        let mut rows = Vec::new();
        while let Some(answer) = answers
            .try_next()
            .await
            .map_err(|error| SqlError::of_statement(error, &sql, results.len()))?
        {
            match answer {
                Either::Left(result) => {
                    let mut result = StatementResult {
                        rows: std::mem::take(&mut rows),
                        matched: result.rows_affected(),
                        last_insert_id: result.last_insert_id(),
                    };
                    if let Some(early) = early.take_if(|early| early.statement == results.len()) {
                        // Nobody may wait for it any more.
                        drop(early.reply.send(std::mem::take(&mut result)));
                    }
                    results.push(result);
                }
                Either::Right(row) => rows.push(row),
            }
        }
        Ok(())
    })
    .await
}

/// A panic of the driver's, which garbage from a server can cause, is an error like any other that ends a connection.
async fn without_panic<T>(driver: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
    catch(driver)
        .await
        .unwrap_or_else(|panic| Err(SqlError::Panicked(panic)))
}
