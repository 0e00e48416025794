//! The lock tables: made when they are missing, refused when they cannot lock.

use lock_core::{Error, ErrorKind, Result};

use crate::client::SqlOrError;
use crate::connection::{Session, column};
use crate::error::SqlError;
use crate::protocol::row_lock::Statements;

/// Makes sure that the tables are there and lock rows.
///
/// # Errors
/// [`ErrorKind::Denied`], with the statements for an administrator, when they are missing and may not be made;
/// [`ErrorKind::Misconfigured`] when they are of an engine without row locks.
pub(crate) async fn prepare(
    statements: &Statements,
    session: &Session,
    limit: std::time::Duration,
) -> Result<(), SqlOrError> {
    let answer = session.run(statements.engines(), None, limit).await?;
    let rows = &answer
        .done
        .first()
        .ok_or(SqlError::Shape("engines of the tables"))?
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
                "the lock tables are missing and the MySQL user may not create them: run this, and grant it SELECT, \
                 INSERT and UPDATE on both: {}",
                statements.create_tables()
            );
            Err(Error::new(ErrorKind::Denied, message).with_source(error).into())
        }
        Err(error) => Err(error.into()),
    }
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
