//! Proxies between client and server that keep statements to themselves, or spread them over several connections.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use sqlx::mysql::MySqlRow;

use crate::connection::Session;
use crate::error::{RequestError, SqlError};
use crate::protocol::{Identity, TIME_ZONE, column, seconds_up};

/// A `wait_timeout` that nobody sets but this check.
const TRIED: Duration = Duration::from_secs(61);

/// Sets the session's `wait_timeout`, as a renewal does, and reads it back in another round trip, with the session's
/// identity.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] if either did not reach the connection that answers.
pub(crate) async fn check_session(session: &Session, limit: Duration) -> Result<(), RequestError> {
    let tried = seconds_up(TRIED);
    let set = format!("SET SESSION wait_timeout={tried}");
    session.run(set, None, limit).await?;
    let answer = session.run(read_back(session.identity()), None, limit).await?;
    let row = answer.row(0).ok_or(SqlError::UnexpectedAnswer("wait_timeout"))?;
    let wait_timeout = column(row, 0, "wait_timeout")?;
    Ok(check(tried, wait_timeout, is_marked(row, 1)?)?)
}

fn read_back(identity: Identity) -> String {
    format!(
        "SELECT CAST(@@SESSION.wait_timeout AS UNSIGNED),{};COMMIT",
        asks_for_mark(identity)
    )
}

/// The column of a question whether the connection that answers has the session's named lock.
fn asks_for_mark(identity: Identity) -> String {
    format!("CAST(IS_USED_LOCK({identity})=CONNECTION_ID() AS SIGNED)")
}

fn is_marked(row: &MySqlRow, index: usize) -> Result<bool, SqlError> {
    let is_marked: Option<i64> = column(row, index, "named lock")?;
    Ok(is_marked == Some(1))
}

/// The two columns of a question whether the session is as it was set up. Asked in another round trip than that.
pub(super) fn asks_for_set_up(identity: Identity) -> String {
    format!("CAST(@@SESSION.time_zone AS BINARY),{}", asks_for_mark(identity))
}

/// Reads the answer to [`asks_for_set_up`], whose first column is this one.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] if the set-up did not reach the connection that answers.
pub(super) fn check_set_up(row: &MySqlRow, index: usize) -> Result<(), RequestError> {
    let time_zone: Vec<u8> = column(row, index, "time zone")?;
    check_mark(is_marked(row, index + 1)?)?;
    Ok(check_time_zone(&time_zone)?)
}

/// `is_marked`: whether the connection that answered is the one that has the session's named lock.
fn check_mark(is_marked: bool) -> Result<()> {
    if is_marked {
        return Ok(());
    }
    let message = "a proxy gives the statements of one connection to several of the MySQL server's: connect to the \
                   server itself, or have the proxy keep one connection for each of this user's";
    Err(Error::new(ErrorKind::Misconfigured, message))
}

/// The clock by which leases end is that of UTC.
fn check_time_zone(time_zone: &[u8]) -> Result<()> {
    if time_zone == TIME_ZONE.as_bytes() {
        return Ok(());
    }
    let message = format!(
        "something between here and the MySQL server ignores SET time_zone='{TIME_ZONE}', and leaves it at '{}': clients whose zones \
         differ would end each other's leases; connect to the server itself, or have the proxy pass it on",
        String::from_utf8_lossy(time_zone)
    );
    Err(Error::new(ErrorKind::Misconfigured, message))
}

fn check(set: u64, read: u64, is_marked: bool) -> Result<()> {
    check_mark(is_marked)?;
    if set != read {
        let message = format!(
            "something between here and the MySQL server ignores SET wait_timeout, as ProxySQL does: a client that falls \
             silent would keep its locks for {read} s, whatever their ttl; connect to the server itself, or have the proxy \
             pass it on"
        );
        return Err(Error::new(ErrorKind::Misconfigured, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_read_on_the_same_connection() {
        check(61, 61, true).unwrap();
        for (read, is_marked, says) in [
            (28_800, true, "28800 s"),
            (28_800, false, "one connection for each"),
            (61, false, "one connection for each"),
        ] {
            let error = check(61, read, is_marked).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_time_zone_that_stayed_as_it_was_is_named() {
        check_time_zone(b"+00:00").unwrap();
        let error = check_time_zone(b"SYSTEM").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("at 'SYSTEM'"), "{error}");
    }
}
