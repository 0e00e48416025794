//! The checks of the server before the first lock: its tables, which are made when they are missing and refused when they
//! cannot lock rows, and the permissions.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use lock_kit::tables::Table;

use crate::connection::Session;
use crate::error::{RequestError, SqlError};
use crate::protocol::row_lock::Statements;
use crate::protocol::{Answer, column};

use self::cluster::variables;
use self::guarantees::leases_keep;
pub(crate) use self::guarantees::row_locks_keep;
pub(crate) use self::lease_server::LeaseServer;
pub(crate) use self::proxy::check_session;
pub(crate) use self::server_id::{FACTS, STARTED, server_id};

mod cluster;
mod durability;
mod guarantees;
mod lease_server;
mod proxy;
mod server_id;

/// Makes sure that the tables are there and lock rows.
///
/// # Errors
/// [`ErrorKind::Denied`], with the statements for an administrator, when some are missing and may not be made;
/// [`ErrorKind::Misconfigured`] when one is of an engine without row locks.
pub(crate) async fn prepare_tables(tables: &[Table], session: &Session, limit: Duration) -> Result<(), RequestError> {
    let answer = session.run(engines(tables), None, limit).await?;
    make_missing(tables, &answer, session, limit).await
}

/// The same for row locks, and makes sure that all clients write to one node unless the configuration says so.
///
/// # Errors
/// Those of [`prepare_tables`], and [`ErrorKind::Misconfigured`] in a cluster in which several nodes take writes.
pub(crate) async fn prepare_row_locks(
    tables: &[Table],
    single_writer: bool,
    session: &Session,
    limit: Duration,
) -> Result<(), RequestError> {
    if single_writer {
        return prepare_tables(tables, session, limit).await;
    }
    let sql = format!("{};{}", cluster::VARIABLES, engines(tables));
    let mut answer = session.run(sql, None, limit).await?;
    if answer.results.is_empty() {
        return Err(SqlError::UnexpectedAnswer("variables").into());
    }
    let rows = answer.results.remove(0);
    cluster::check(&variables(&rows.rows)?)?;
    make_missing(tables, &answer, session, limit).await
}

/// `answer`: to [`engines`].
async fn make_missing(
    tables: &[Table],
    answer: &Answer,
    session: &Session,
    limit: Duration,
) -> Result<(), RequestError> {
    let rows = &answer
        .results
        .first()
        .ok_or(SqlError::UnexpectedAnswer("engines of the tables"))?
        .rows;
    for row in rows {
        let engine: Option<Vec<u8>> = column(row, 1, "engine of a table")?;
        let engine = engine.unwrap_or_default();
        if !engine.eq_ignore_ascii_case(b"InnoDB") {
            let name: Vec<u8> = column(row, 0, "name of a table")?;
            return Err(wrong_engine(&String::from_utf8_lossy(&name)).into());
        }
    }
    // Without the permission to create, the server refuses the statement for a table that exists, too.
    if rows.len() == tables.len() {
        return Ok(());
    }
    let create: Vec<_> = tables.iter().map(|table| table.create.as_str()).collect();
    let create = create.join(";");
    let mut created = session.run(create.clone(), None, limit).await;
    for _ in 0..DEADLOCKS {
        if !created.as_ref().is_err_and(SqlError::is_deadlock) {
            break;
        }
        created = session.run(create.clone(), None, limit).await;
    }
    match created {
        Ok(_) => Ok(()),
        Err(error) if error.is_denied() => {
            let message = format!(
                "tables of polylock are missing and the MySQL user may not create them: run \"{create};\" and grant the \
                 user SELECT, INSERT and UPDATE on them"
            );
            Err(Error::new(ErrorKind::Denied, message).with_source(error).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Selects the tables that exist, and their engines.
fn engines(tables: &[Table]) -> String {
    let names: Vec<_> = tables.iter().map(|table| format!("'{}'", table.name)).collect();
    let names = names.join(",");
    // MariaDB compares these names without case, also where its tables differ by it.
    format!(
        "SELECT CAST(TABLE_NAME AS BINARY), CAST(ENGINE AS BINARY) FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME IN ({names}) \
         AND (@@lower_case_table_names>0 OR CAST(TABLE_NAME AS BINARY) IN ({names}));COMMIT"
    )
}

/// Runs statements that do nothing, but need every permission that a lock needs.
pub(crate) async fn check_permissions(
    statements: &Statements,
    session: &Session,
    limit: Duration,
) -> Result<(), SqlError> {
    session.run(statements.check_permissions(), None, limit).await.map(drop)
}

/// The most deadlocks that clients report which make the same tables at the same time.
const DEADLOCKS: usize = 20;

/// Only InnoDB locks rows: on another engine everybody would have the lock.
fn wrong_engine(table: &str) -> Error {
    let message = format!("table `{table}` must be of the engine InnoDB: run ALTER TABLE … ENGINE=InnoDB");
    Error::new(ErrorKind::Misconfigured, message)
}
