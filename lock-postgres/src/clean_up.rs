//! Deletes dead rows, a few at a time.

use std::slice;

use lock_core::{Error, ErrorKind, Result};

use crate::config::PostgresConfig;
use crate::connection::{Connection, Dialer};
use crate::error::SqlError;
use crate::protocol::dead_rows::DeadRows;

/// The number of rows that one statement looks at.
const AT_ONCE: usize = 500;

/// Deletes the dead rows of these tables, over a connection of its own, behind which no request of a lock waits. Returns how many there
/// were.
///
/// # Errors
/// [`ErrorKind::Denied`] without the permission; those of the [`Dialer`].
pub(crate) async fn delete_dead(config: &PostgresConfig, tables: &[DeadRows]) -> Result<u64> {
    let connection = Dialer::grants_nothing(config.clone()).dial().await?;
    delete_over(&connection, config, tables).await
}

/// The same in the background. Without the permission for the last of the tables, it deletes from the others: users need not grant it.
pub(crate) async fn delete_dead_if_permitted(config: &PostgresConfig, tables: &[DeadRows]) -> Result<()> {
    let connection = Dialer::grants_nothing(config.clone()).dial().await?;
    let Some((last, others)) = tables.split_last() else {
        return Ok(());
    };
    delete_over(&connection, config, others).await?;
    match delete_over(&connection, config, slice::from_ref(last)).await {
        Err(error) if error.kind() == ErrorKind::Denied => Ok(()),
        deleted => deleted.map(drop),
    }
}

async fn delete_over(connection: &Connection, config: &PostgresConfig, tables: &[DeadRows]) -> Result<u64> {
    let mut deleted = 0;
    for dead in tables {
        let mut last = None;
        loop {
            let statement = dead.delete(last.as_ref(), AT_ONCE);
            let rows = match connection.run(&statement, Some(config.response_timeout)).await {
                Err(error) if error.is_missing_table() => return Ok(deleted),
                Err(error) if error.is_denied() => {
                    let message = "the PostgreSQL user may not delete from the lock tables: grant it DELETE, or leave dead \
                                   rows there";
                    return Err(Error::new(ErrorKind::Denied, message).with_source(error));
                }
                rows => rows.map_err(SqlError::into_lock_error)?,
            };
            let Some(page) = dead.page(&rows).map_err(SqlError::into_lock_error)? else {
                break;
            };
            deleted += page.deleted;
            if page.rows < AT_ONCE {
                break;
            }
            last = Some(page.last);
        }
    }
    Ok(deleted)
}
