//! What the server's answers say.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lock_core::FencingToken;
use lock_core::backend::{HolderStatus, LockStatus, Mode, Permits, WaiterStatus, since_of_token};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::terms::Kind;
use crate::connection::{self, TextRows};
use crate::error::SqlError;

/// The answer to an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted(FencingToken),
    Taken(Taken),
    /// The row of the name was made or deleted by somebody else meanwhile: ask again.
    Unknown,
}

/// The name was not granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) label: Option<Arc<str>>,
    /// For how long, if nothing renews it.
    pub(crate) rest: Duration,
    /// Whether somebody has it, and it is not only kept for those who wait.
    pub(crate) is_held: bool,
    /// Whether it lasts longer than its term: the clock was set back.
    pub(crate) is_too_long: bool,
    /// Whether the request's place in the queue is still there.
    pub(crate) is_queued: bool,
}

/// The value of a column.
pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, column: usize, what: &'static str) -> Result<T, SqlError> {
    row.try_get(column).map_err(|_| SqlError::UnexpectedAnswer(what))
}

/// The token of a row, if it has one.
fn token(row: &Row) -> Result<Option<FencingToken>, SqlError> {
    let token: Option<i64> = column(row, 0, "token")?;
    token.map(token_of).transpose()
}

pub(crate) fn token_of(number: i64) -> Result<FencingToken, SqlError> {
    let token = u64::try_from(number).ok().and_then(FencingToken::new);
    token.ok_or(SqlError::UnexpectedAnswer("token"))
}

/// The answer to [`take`](super::lease::LeaseStatements::take).
pub(crate) fn taken(rows: &[Row]) -> Result<Option<FencingToken>, SqlError> {
    rows.first().map(token).transpose().map(Option::flatten)
}

/// The answer to [`ask`](super::lease::LeaseStatements::ask) or [`turn`](super::lease::LeaseStatements::turn).
pub(crate) fn acquired(rows: &[Row]) -> Result<Acquired, SqlError> {
    let Some(row) = rows.first() else {
        return Ok(Acquired::Unknown);
    };
    if let Some(token) = token(row)? {
        return Ok(Acquired::Granted(token));
    }
    const WHAT: &str = "rest of a hold";
    let label: Option<&[u8]> = column(row, 1, WHAT)?;
    let rest: i64 = column(row, 2, WHAT)?;
    let is_queued = row.len() > 6 && column(row, 6, WHAT)?;
    Ok(Acquired::Taken(Taken {
        label: label.map(text),
        rest: duration(rest),
        is_held: column(row, 3, WHAT)?,
        is_too_long: column(row, 5, WHAT)?,
        is_queued,
    }))
}

/// A label that anybody may have written.
pub(crate) fn text(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).into()
}

pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// The moment that is so many microseconds after 1970; `None` where this system has no such time.
fn time(micros: i64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(duration(micros))
}

/// The first row's flag in this column; `None` without a row.
pub(crate) fn flag(rows: &[Row], number: usize) -> Result<Option<bool>, SqlError> {
    rows.first()
        .map(|row| column(row, number, "state of a hold"))
        .transpose()
}

/// The answer to the statement `status` of either strategy.
pub(crate) fn status(rows: &[Row]) -> Result<LockStatus, SqlError> {
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for row in rows {
        match column(row, 0, "state of a hold")? {
            true => holders.push(holder(row)?),
            false => waiters.push(waiter(row)?),
        }
    }
    Ok(LockStatus::held_by(holders).with_waiters(waiters))
}

fn holder(row: &Row) -> Result<HolderStatus, SqlError> {
    const WHAT: &str = "holder";
    let (id, label): (Option<Uuid>, Option<&[u8]>) = (column(row, 1, WHAT)?, column(row, 2, WHAT)?);
    let (rest, token): (Option<i64>, Option<i64>) = (column(row, 3, WHAT)?, column(row, 4, WHAT)?);
    let mut holder = HolderStatus::new();
    holder.id = id.map(|id| id.simple().to_string().into());
    holder.label = label.map(text);
    holder.expires_in = rest.map(duration);
    // A session has the lock a moment before its token is written.
    holder.token = token.map(token_of).transpose()?;
    holder.mode = mode(row)?;
    holder.since = holder.token.and_then(|token| since_of_token(token, SystemTime::now()));
    Ok(holder)
}

fn waiter(row: &Row) -> Result<WaiterStatus, SqlError> {
    const WHAT: &str = "waiter";
    let (label, since): (Option<&[u8]>, Option<i64>) = (column(row, 2, WHAT)?, column(row, 8, WHAT)?);
    let mut waiter = WaiterStatus::new();
    waiter.label = label.map(text);
    waiter.since = since.and_then(time);
    waiter.mode = mode(row)?;
    Ok(waiter)
}

fn mode(row: &Row) -> Result<Option<Mode>, SqlError> {
    const WHAT: &str = "mode";
    Ok(mode_of(
        column(row, 5, WHAT)?,
        column(row, 6, WHAT)?,
        column(row, 7, WHAT)?,
    ))
}

/// The mode that these columns stand for; `None` for what a later version has written.
fn mode_of(kind: i16, permits: i64, of: i64) -> Option<Mode> {
    let number = |number| u32::try_from(number).unwrap_or(0);
    match kind {
        Kind::EXCLUSIVE => Some(Mode::Exclusive),
        Kind::SHARED => Some(Mode::Shared),
        Kind::PERMITS => Permits::new(number(permits), number(of)).ok().map(Mode::Permits),
        _ => None,
    }
}

/// What a text of statements tells.
pub(crate) fn told(rows: &TextRows) -> Option<&[Option<String>]> {
    connection::told(rows, "polylock")
}

fn number(row: &[Option<String>], column: usize) -> Result<Option<i64>, SqlError> {
    let text = row.get(column).and_then(Option::as_deref);
    let number = text.map(str::parse).transpose();
    number.map_err(|_| SqlError::UnexpectedAnswer("number"))
}

fn is_true(row: &[Option<String>], column: usize) -> bool {
    row.get(column).is_some_and(|value| value.as_deref() == Some("t"))
}

/// The answer to a request that shares its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) acquired: Acquired,
    /// Its place in the queue, if it has one.
    pub(crate) place: Option<i64>,
    /// Whether somebody waits.
    pub(crate) is_wanted: bool,
}

/// The answer to [`share`](super::lease::LeaseStatements::share). It tells nothing if somebody deleted the name's row while this waited
/// for it.
pub(crate) fn shared(rows: &TextRows) -> Result<Shared, SqlError> {
    let Some(row) = told(rows) else {
        return Ok(Shared {
            acquired: Acquired::Unknown,
            place: None,
            is_wanted: false,
        });
    };
    let place = number(row, 1)?;
    let acquired = match number(row, 0)? {
        Some(token) => Acquired::Granted(token_of(token)?),
        None => Acquired::Taken(Taken {
            label: row.get(4).cloned().flatten().and_then(|digits| unhexed(&digits)),
            rest: duration(number(row, 2)?.unwrap_or_default()),
            is_held: true,
            is_too_long: false,
            is_queued: place.is_some(),
        }),
    };
    Ok(Shared {
        acquired,
        place,
        is_wanted: is_true(row, 3),
    })
}

fn unhexed(digits: &str) -> Option<Arc<str>> {
    let byte = |at| {
        let pair = digits.get(at..at + 2)?;
        // A number may have a sign.
        let is_byte = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_byte.then(|| u8::from_str_radix(pair, 16).ok())?
    };
    let bytes: Option<Vec<_>> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map(|bytes| text(&bytes))
}

/// The flags that a text tells of a hold: whether it was there, and whether somebody waits.
pub(crate) fn flags(rows: &TextRows) -> (bool, bool) {
    told(rows).map_or((false, false), |row| (is_true(row, 0), is_true(row, 1)))
}

/// The answer to [`revoke_shared`](super::lease::LeaseStatements::revoke_shared): how long the hold would have lasted, and whether
/// somebody waits.
pub(crate) fn revoked(rows: &TextRows) -> Result<Option<(Duration, bool)>, SqlError> {
    let Some(row) = told(rows) else {
        return Ok(None);
    };
    let rest = number(row, 0)?.ok_or(SqlError::UnexpectedAnswer("rest of a hold"))?;
    Ok(Some((duration(rest), is_true(row, 1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[&str]) -> TextRows {
        let value = |value: &&str| (!value.is_empty()).then(|| (*value).to_owned());
        vec![Vec::new(), values.iter().map(value).collect()]
    }

    #[test]
    fn a_sharer_is_granted_or_learns_who_refuses_it() {
        let granted = shared(&row(&["polylock", "7", "", "5", "t", ""])).unwrap();
        let token = FencingToken::new(7).unwrap();
        assert_eq!(
            (granted.acquired, granted.place, granted.is_wanted),
            (Acquired::Granted(token), None, true)
        );
        let refused = shared(&row(&["polylock", "", "3", "1500", "f", "c3b6"])).unwrap();
        let Acquired::Taken(taken) = refused.acquired else {
            panic!("it is granted");
        };
        assert_eq!(
            (taken.label.as_deref(), taken.rest),
            (Some("ö"), Duration::from_micros(1500))
        );
        assert!(taken.is_queued && refused.place == Some(3));
        // The row of the name went while the request waited for it.
        assert_eq!(shared(&row(&["1"])).unwrap().acquired, Acquired::Unknown);
    }

    #[test]
    fn flags_are_those_of_the_marked_row() {
        assert_eq!(flags(&row(&["polylock", "t", "f"])), (true, false));
        assert_eq!(flags(&row(&["x", "t", "t"])), (false, false));
        assert_eq!(
            revoked(&row(&["polylock", "9", "t"])).unwrap(),
            Some((Duration::from_micros(9), true))
        );
        assert_eq!(revoked(&row(&["x"])).unwrap(), None);
    }

    #[test]
    fn an_answer_without_a_row_is_no_grant() {
        assert_eq!(taken(&[]).unwrap(), None);
        assert_eq!(acquired(&[]).unwrap(), Acquired::Unknown);
        assert_eq!(flag(&[], 0).unwrap(), None);
        assert_eq!(
            status(&[]).unwrap(),
            LockStatus::held_by(Vec::new()).with_waiters(Vec::new())
        );
    }

    /// Every kind that this version writes is read as the mode that it was written for.
    #[test]
    fn columns_stand_for_the_mode_that_wrote_them() {
        let permits = Mode::Permits(Permits::new(3, 7).unwrap());
        for written in [Mode::Exclusive, Mode::Shared, permits] {
            let Kind { kind, permits, of } = Kind::of(written).unwrap();
            assert_eq!(mode_of(kind, permits, of), Some(written));
        }
        for (kind, permits, of) in [
            (3, 1, 1),
            (-1, 1, 1),
            (Kind::PERMITS, 8, 7),
            (Kind::PERMITS, 0, 7),
            (Kind::PERMITS, -1, 7),
            (Kind::PERMITS, 1, 1 << 40),
        ] {
            assert_eq!(mode_of(kind, permits, of), None, "{kind} {permits} {of}");
        }
    }

    #[test]
    fn a_moment_is_counted_from_1970() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001);
        assert_eq!(time(1_700_000_000_000_001), Some(moment));
    }
}
