//! The server's answers to the statements of the row lock.

use std::time::{Duration, SystemTime};

use lock_core::FencingToken;
use lock_core::backend::{Busy, HolderStatus, Mode, since_of_token};
use sqlx::mysql::MySqlRow;

use super::{AHEAD_OF_CLOCK, Acquired};
use crate::error::SqlError;
use crate::names::unpadded;
use crate::protocol::{Answer, column};

const TOKEN: &str = "token from 1 to 2^63 - 1";

/// The acquired row, from the effect of the UPDATE of that number; `None`: there is no such row yet.
pub(crate) fn acquired(answer: &Answer, statement: usize) -> Result<Option<Acquired>, SqlError> {
    let Some(update) = answer.results.get(statement).filter(|update| update.matched > 0) else {
        return Ok(None);
    };
    let token = FencingToken::new(update.last_insert_id & !AHEAD_OF_CLOCK).ok_or(SqlError::UnexpectedAnswer(TOKEN))?;
    let ahead = update.last_insert_id & AHEAD_OF_CLOCK != 0;
    Ok(Some(Acquired { token, ahead }))
}

/// The reader's token, from what [`Statements::reader_token`](super::Statements::reader_token) did.
pub(crate) fn reader_token(answer: &Answer) -> Result<FencingToken, SqlError> {
    let token = answer.results.first().map(|insert| insert.last_insert_id);
    token
        .and_then(FencingToken::new)
        .ok_or(SqlError::UnexpectedAnswer(TOKEN))
}

/// The holder in a row of [`Statements::holders`](super::Statements::holders).
pub(crate) fn holder(row: &MySqlRow) -> Result<HolderStatus, SqlError> {
    let label: Option<Vec<u8>> = column(row, 1, "label")?;
    let label = String::from_utf8_lossy(unpadded(&label.unwrap_or_default())).into_owned();
    let rest: Option<i64> = column(row, 2, "rest of the hold")?;
    let is_exclusive: i64 = column(row, 3, "mode")?;
    let mode = if is_exclusive == 1 {
        Mode::Exclusive
    } else {
        Mode::Shared
    };
    let token = token(row)?;
    let mut holder = HolderStatus::new().with_token(token).with_mode(mode);
    holder.since = since_of_token(token, SystemTime::now());
    if let Some(rest) = rest {
        holder = holder.with_expires_in(Duration::from_micros(u64::try_from(rest).unwrap_or_default()));
    }
    Ok(if label.is_empty() {
        holder
    } else {
        holder.with_label(label)
    })
}

/// The answer for somebody who finds the row locked by the holder in this row, if any.
pub(crate) fn busy(row: Option<&MySqlRow>) -> Result<Busy, SqlError> {
    let label = row.map(holder).transpose()?.and_then(|holder| holder.label);
    Ok(match label {
        Some(label) => Busy::new().with_holder(label),
        None => Busy::new(),
    })
}

fn token(row: &MySqlRow) -> Result<FencingToken, SqlError> {
    FencingToken::new(column(row, 0, TOKEN)?).ok_or(SqlError::UnexpectedAnswer(TOKEN))
}
