//! The server's answers to the statements of the lease table.

use std::time::{Duration, SystemTime};

use lock_core::FencingToken;
use lock_core::backend::{HolderStatus, Mode, Permits, since_of_token};
use sqlx::mysql::MySqlRow;

use super::{Acquired, MARKED, TAKEN, Taken};
use crate::error::SqlError;
use crate::protocol::{StatementResult, column};

const TOKEN: &str = "token from 1 to 2^63 - 1";

/// The result of an acquire.
pub(crate) fn acquired(result: &StatementResult) -> Result<Acquired, SqlError> {
    let answer = result.last_insert_id;
    if answer & TAKEN != 0 {
        return Ok(Acquired::Taken(Taken {
            rest: Duration::from_micros(answer & !(TAKEN | MARKED)),
            is_marked: answer & MARKED != 0,
        }));
    }
    token(result).map(Acquired::Granted)
}

/// Returns whether a release ended a hold, and the connection to [wake](super::wake); 0 for none.
pub(crate) fn released(result: &StatementResult) -> (bool, u64) {
    match result.matched {
        0 => (false, 0),
        _ => (true, result.last_insert_id),
    }
}

/// The token that an `UPDATE` has granted; `None`: the name was not free, or the giver had nothing to pass on.
pub(crate) fn granted(result: &StatementResult) -> Result<Option<FencingToken>, SqlError> {
    match result.matched {
        0 => Ok(None),
        _ => token(result).map(Some),
    }
}

fn token(result: &StatementResult) -> Result<FencingToken, SqlError> {
    FencingToken::new(result.last_insert_id).ok_or(SqlError::UnexpectedAnswer(TOKEN))
}

/// The holder in a row of [`super::LeaseStatements::holders`].
pub(crate) fn holder(row: &MySqlRow) -> Result<HolderStatus, SqlError> {
    let label: Option<Vec<u8>> = column(row, 1, "label")?;
    let label = String::from_utf8_lossy(&label.unwrap_or_default()).into_owned();
    let rest: i64 = column(row, 2, "rest of the hold")?;
    let rest = Duration::from_micros(u64::try_from(rest).unwrap_or_default());
    let token: i64 = column(row, 0, TOKEN)?;
    let token = u64::try_from(token).ok().and_then(FencingToken::new);
    let holder: Option<Vec<u8>> = column(row, 3, "holder")?;
    let mut status = HolderStatus::new().with_expires_in(rest);
    // One that is kept for a minimum time belongs to nobody.
    if let Some(holder) = holder.filter(|holder| !holder.is_empty()) {
        let token = token.ok_or(SqlError::UnexpectedAnswer(TOKEN))?;
        status.since = since_of_token(token, SystemTime::now());
        status = status
            .with_id(String::from_utf8_lossy(&holder))
            .with_token(token)
            .with_mode(mode(column(row, 4, "permits")?, column(row, 5, "limit")?)?);
    }
    Ok(if label.is_empty() {
        status
    } else {
        status.with_label(label)
    })
}

/// The mode of a holder with so many permits, of so many. Without such columns it is alone.
fn mode(permits: Option<i64>, of: Option<i64>) -> Result<Mode, SqlError> {
    let (take, of) = match (permits, of) {
        (None, _) => return Ok(Mode::Exclusive),
        (Some(0), _) => return Ok(Mode::Shared),
        (Some(permits), of) => (u32::try_from(permits), u32::try_from(of.unwrap_or_default())),
    };
    let permits = Permits::new(take.unwrap_or_default(), of.unwrap_or_default());
    let permits = permits.map_err(|_| SqlError::UnexpectedAnswer("permits"))?;
    Ok(Mode::Permits(permits))
}

/// Reads a truth value that was selected as one number.
pub(crate) fn holds(result: &StatementResult) -> Result<bool, SqlError> {
    const WHAT: &str = "truth value";
    let row = result.rows.first().ok_or(SqlError::UnexpectedAnswer(WHAT))?;
    Ok(column::<i64>(row, 0, WHAT)? != 0)
}

/// A row of [`super::LeaseStatements::free_for`]: the name, and its waiter if it is one alone.
pub(crate) fn free_for(row: &MySqlRow) -> Result<(Vec<u8>, Option<Vec<u8>>), SqlError> {
    Ok((column(row, 0, "name")?, column(row, 1, "waiter")?))
}

/// The holder ids in the rows of [`super::LeaseStatements::held`].
pub(crate) fn held(result: &StatementResult) -> Result<Vec<Vec<u8>>, SqlError> {
    result.rows.iter().map(|row| column(row, 0, "holder")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::rows::{Value, row};

    #[test]
    fn a_row_of_holders_says_who_it_is_and_until_when() {
        let read = |token, label: Value<'_>, rest, id: Value<'_>, permits, of| {
            holder(&row(&[
                Value::Signed(token),
                label,
                Value::Signed(rest),
                id,
                permits,
                of,
            ]))
        };
        let id = Value::Bytes(b"00ff");
        let token = 1_700_000_000_000_000;
        let writer = read(token, Value::Bytes(b"me"), 1_500_000, id, Value::Null, Value::Null).unwrap();
        assert_eq!(
            (writer.label.as_deref(), writer.id.as_deref()),
            (Some("me"), Some("00ff"))
        );
        assert_eq!(writer.expires_in, Some(Duration::from_millis(1500)));
        let token = FencingToken::new(token.unsigned_abs());
        assert_eq!((writer.token, writer.mode), (token, Some(Mode::Exclusive)));
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(writer.since, Some(since));
        let reader = read(7, Value::Null, -1, id, Value::Signed(0), Value::Signed(0)).unwrap();
        assert_eq!((reader.label, reader.since), (None, None));
        assert_eq!(
            (reader.expires_in, reader.mode),
            (Some(Duration::ZERO), Some(Mode::Shared))
        );
        for no_token in [0, -1] {
            assert!(read(no_token, Value::Null, 1, id, Value::Null, Value::Null).is_err());
        }
        // Nobody has what is kept for a minimum time.
        for nobody in [Value::Bytes(b""), Value::Null] {
            let kept = read(7, Value::Null, 1, nobody, Value::Null, Value::Null).unwrap();
            assert_eq!((kept.token, kept.id, kept.mode), (None, None, None));
        }
    }

    #[test]
    fn rows_say_truths_waiters_and_holders() {
        let result = |rows| StatementResult {
            rows,
            ..StatementResult::default()
        };
        let truth = |number| holds(&result(vec![row(&[Value::Signed(number)])])).unwrap();
        assert_eq!((truth(0), truth(1)), (false, true));
        assert!(holds(&result(Vec::new())).is_err());
        let free = |waiter: Value<'_>| free_for(&row(&[Value::Bytes(b"a"), waiter])).unwrap();
        assert_eq!(free(Value::Null), (b"a".to_vec(), None));
        assert_eq!(free(Value::Bytes(b"00ff")), (b"a".to_vec(), Some(b"00ff".to_vec())));
        let two = [&b"00ff"[..], b"ff00"].map(|id| row(&[Value::Bytes(id)]));
        assert_eq!(held(&result(two.into())).unwrap(), [b"00ff", b"ff00"]);
    }

    #[test]
    fn a_holder_without_permits_is_alone_and_a_reader_has_none() {
        let permits = Mode::Permits(Permits::new(2, 5).unwrap());
        assert_eq!(mode(None, None).unwrap(), Mode::Exclusive);
        assert_eq!(mode(Some(0), Some(0)).unwrap(), Mode::Shared);
        assert_eq!(mode(Some(2), Some(5)).unwrap(), permits);
        for (take, of) in [(6, Some(5)), (2, None), (-1, Some(5)), (1, Some(1 << 40))] {
            assert!(mode(Some(take), of).is_err(), "{take} {of:?}");
        }
    }
}
