//! Ending a connection at the server, by way of another one.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use crate::error::{RequestError, SqlError};
use crate::protocol::{Identity, NO_SUCH_CONNECTION, StatementResult, column, kill};

/// Ends the connection of this identity and waits, for at most `limit`, until nothing of it is left. Returns whether the server
/// still had it. `run` runs one statement on another connection.
///
/// One statement finds the connection and ends it: by the time a number that was read before comes back to the server, a
/// restarted one may have given it to a stranger.
pub(crate) async fn end_connection<F>(identity: Identity, limit: Duration, run: impl Fn(String) -> F) -> Result<bool>
where
    F: Future<Output = Result<StatementResult, RequestError>>,
{
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    let mut was_there = false;
    // The named lock decides, which the connection has until its transaction is rolled back. MySQL was seen to refuse a KILL
    // before that.
    while find_connection(identity, &run).await?.is_some() {
        if !was_there {
            was_there = true;
            match run(kill(identity)).await {
                Err(error) if error.code() != Some(NO_SUCH_CONNECTION) => return Err(error.into_lock_error()),
                _ => continue,
            }
        }
        if Instant::now() >= deadline {
            let message = "the MySQL server does not end one of its connections";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    Ok(was_there)
}

/// The server's number for the connection of this identity, if the server has it.
pub(crate) async fn find_connection<F>(identity: Identity, run: impl Fn(String) -> F) -> Result<Option<u64>>
where
    F: Future<Output = Result<StatementResult, RequestError>>,
{
    let sql = format!("SELECT CAST(IS_USED_LOCK({identity}) AS UNSIGNED)");
    let found = run(sql).await.map_err(RequestError::into_lock_error)?;
    let missing = || SqlError::UnexpectedAnswer("named lock").into_lock_error();
    let row = found.rows.first().ok_or_else(missing)?;
    column(row, 0, "named lock").map_err(SqlError::into_lock_error)
}
