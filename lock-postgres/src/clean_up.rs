//! Deletes dead rows, a few at a time.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};

use crate::connection::Connection;
use crate::error::SqlError;

/// The number of rows that one statement deletes.
pub(crate) const AT_ONCE: usize = 500;

/// Runs statements that delete at most [`AT_ONCE`] rows each and return them, until none is left. Returns how many there were.
///
/// # Errors
/// [`ErrorKind::Denied`] without the permission.
pub(crate) async fn delete_dead(connection: &Connection, statements: &[String], limit: Duration) -> Result<u64> {
    let mut deleted = 0;
    for statement in statements {
        loop {
            let rows = match connection.run(statement, Some(limit)).await {
                Err(error) if error.is_missing_table() => return Ok(deleted),
                Err(error) if error.is_denied() => {
                    let message = "the PostgreSQL user may not delete from the lock tables: grant it DELETE, or leave dead \
                                   rows there";
                    return Err(Error::new(ErrorKind::Denied, message).with_source(error));
                }
                rows => rows.map_err(SqlError::into_lock_error)?.len(),
            };
            deleted += rows as u64;
            if rows < AT_ONCE {
                break;
            }
        }
    }
    Ok(deleted)
}
