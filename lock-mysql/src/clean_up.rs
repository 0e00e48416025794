//! Deletes dead rows. Each strategy says which rows are dead.

use lock_core::{Error, ErrorKind, Result};

use crate::error::SqlError;
use crate::protocol::{DeadRows, Job, JobDone};

/// The number of rows that one statement reads.
const AT_ONCE: usize = 1000;

/// Deletes the dead rows of these tables, and returns how many. `run` runs a job in one round trip.
///
/// # Errors
/// [`ErrorKind::Denied`] without the permission `DELETE`, and those of `run`.
pub(crate) async fn delete_dead<F>(tables: &[DeadRows<'_>], run: impl Fn(Job) -> F) -> Result<u64>
where
    F: Future<Output = Result<JobDone, SqlError>>,
{
    for table in tables {
        match run(table.check_delete()).await {
            Err(error) if error.is_missing_table() => return Ok(0),
            checked => drop(checked.map_err(denied)?),
        }
    }
    let mut deleted = 0;
    for table in tables {
        let mut last = table.first_key();
        loop {
            let found = run(table.after(&last, AT_ONCE)).await;
            let rows = found.map_err(SqlError::into_lock_error)?.result.rows;
            for row in &rows {
                let (key, is_dead) = table.read(row).map_err(SqlError::into_lock_error)?;
                if is_dead {
                    deleted += match run(table.delete(&key)).await {
                        // Somebody uses the row at this moment.
                        Err(error) if error.is_busy() || error.is_deadlock() => 0,
                        done => done.map_err(SqlError::into_lock_error)?.result.matched,
                    };
                }
                last = key;
            }
            if rows.len() < AT_ONCE {
                break;
            }
        }
    }
    Ok(deleted)
}

/// The error of a clean-up.
fn denied(error: SqlError) -> Error {
    if !error.is_denied() {
        return error.into_lock_error();
    }
    let message = "the MySQL user may not delete from the lock tables: grant it DELETE, or leave dead rows there";
    Error::new(ErrorKind::Denied, message).with_source(error)
}
