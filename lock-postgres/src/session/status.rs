//! Who has a name, who waits for it, and which names are used.

use std::time::{Duration, SystemTime};

use lock_core::backend::{HolderStatus, ListFrom, ListPage, LockStatus, Mode, WaiterStatus, since_of_token};
use lock_core::{LockName, Result};
use tokio_postgres::Row;

use super::{Shared, name_of};
use crate::error::SqlError;
use crate::names::Id;
use crate::protocol::answers::{column, page, text, token_of};

impl Shared {
    pub(super) async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let statements = self.statements().await?;
        let control = self.control.connection().await?;
        let found = control
            .query(&statements.status, &[&name_of(name)], Some(self.limit()))
            .await;
        read_status(&without_table(found)?).map_err(SqlError::into_lock_error)
    }

    pub(super) async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        /// Greater than all bytes of a name, which is UTF-8.
        const PAST_UTF8: u8 = 0xff;
        let prefix = from.name_prefix().as_bytes();
        let after = from.after().unwrap_or_default().as_bytes();
        let end = [prefix, &[PAST_UTF8]].concat();
        let limit = i64::try_from(at_most).unwrap_or(i64::MAX);
        let statements = self.statements().await?;
        let control = self.control.connection().await?;
        let found = control
            .query(&statements.list, &[&prefix, &after, &end, &limit], Some(self.limit()))
            .await;
        page(&without_table(found)?, from, at_most).map_err(SqlError::into_lock_error)
    }
}

/// Without a table there is nothing.
fn without_table(found: Result<Vec<Row>, SqlError>) -> Result<Vec<Row>> {
    match found {
        Err(error) if error.is_missing_table() => Ok(Vec::new()),
        found => found.map_err(SqlError::into_lock_error),
    }
}

fn read_status(rows: &[Row]) -> Result<LockStatus, SqlError> {
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for row in rows {
        const WHAT: &str = "state of a lock";
        let mode = match column(row, 1, WHAT)? {
            true => Mode::Exclusive,
            false => Mode::Shared,
        };
        match column(row, 0, WHAT)? {
            true => holders.push(holder(row, mode)?),
            false => {
                let since: Option<i64> = column(row, 5, WHAT)?;
                let waiter = WaiterStatus::new().with_mode(mode);
                waiters.push(match since.and_then(|since| u64::try_from(since).ok()) {
                    Some(since) => waiter.with_since(SystemTime::UNIX_EPOCH + Duration::from_micros(since)),
                    None => waiter,
                });
            }
        }
    }
    Ok(LockStatus::held_by(holders).with_waiters(waiters))
}

/// A grant whose token is not written yet is known by its lock alone.
fn holder(row: &Row, mode: Mode) -> Result<HolderStatus, SqlError> {
    const WHAT: &str = "holder";
    let mut holder = HolderStatus::new().with_mode(mode);
    let (id, label): (Option<Id>, Option<&[u8]>) = (column(row, 2, WHAT)?, column(row, 3, WHAT)?);
    let token: Option<i64> = column(row, 4, WHAT)?;
    if let Some(id) = id {
        holder = holder.with_id(id.to_string());
    }
    if let Some(label) = label {
        holder = holder.with_label(text(label));
    }
    if let Some(token) = token {
        let token = token_of(token)?;
        holder = holder.with_token(token);
        if let Some(since) = since_of_token(token, SystemTime::now()) {
            holder = holder.with_since(since);
        }
    }
    Ok(holder)
}
