//! The checks of the server before the first lock: its tables, which are made when they are missing and refused when they
//! cannot lock rows, and the permissions.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};

use crate::connection::Session;
use crate::error::{RequestError, SqlError};
use crate::protocol::column;
use crate::protocol::row_lock::Statements;

/// Makes sure that the tables are there and lock rows.
///
/// # Errors
/// [`ErrorKind::Denied`], with the statements for an administrator, when they are missing and may not be made;
/// [`ErrorKind::Misconfigured`] when they are of an engine without row locks.
pub(crate) async fn prepare_tables(
    statements: &Statements,
    session: &Session,
    limit: Duration,
) -> Result<(), RequestError> {
    let answer = session.run(statements.engines(), None, limit).await?;
    let rows = &answer
        .results
        .first()
        .ok_or(SqlError::UnexpectedAnswer("engines of the tables"))?
        .rows;
    for row in rows {
        let engine: Option<Vec<u8>> = column(row, 1, "engine of a table")?;
        if !engine
            .as_deref()
            .is_some_and(|engine| engine.eq_ignore_ascii_case(b"InnoDB"))
        {
            return Err(wrong_engine(statements).into());
        }
    }
    if rows.len() == statements.tables().len() {
        return Ok(());
    }
    let mut created = session.run(statements.create_tables(), None, limit).await;
    for _ in 0..DEADLOCKS {
        if !created.as_ref().is_err_and(SqlError::is_deadlock) {
            break;
        }
        created = session.run(statements.create_tables(), None, limit).await;
    }
    match created {
        Ok(_) => Ok(()),
        Err(error) if error.is_denied() => {
            let message = format!(
                "the lock tables are missing and the MySQL user may not create them: run \"{};\" and grant the user \
                 SELECT, INSERT and UPDATE on both",
                statements.create_tables()
            );
            Err(Error::new(ErrorKind::Denied, message).with_source(error).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs statements that do nothing, but need every permission that a lock needs.
pub(crate) async fn check_permissions(
    statements: &Statements,
    session: &Session,
    limit: Duration,
) -> Result<(), SqlError> {
    session.run(statements.check_permissions(), None, limit).await.map(drop)
}

/// How often MySQL may say that those who make the same tables at the same time are in each other's way.
const DEADLOCKS: usize = 20;

/// Only InnoDB locks rows: on another engine everybody would have the lock.
fn wrong_engine(statements: &Statements) -> Error {
    let [locks, tokens] = statements.tables();
    let message =
        format!("tables `{locks}` and `{tokens}` must be of the engine InnoDB: run ALTER TABLE … ENGINE=InnoDB");
    Error::new(ErrorKind::Misconfigured, message)
}
