//! Deleting rows of names that nobody uses any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use sqlx::mysql::MySqlRow;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::Shared;
use crate::connection::Member;
use crate::error::SqlError;
use crate::protocol::lease_table::{dead_holder, row_after};

/// How many rows are looked at with one statement.
const AT_ONCE: usize = 1000;

/// The time between two clean-ups in the background, and so much more by chance, so that processes take turns.
const INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// When the next clean-up in the background is due.
#[derive(Debug)]
pub(super) struct Schedule {
    due: Mutex<Instant>,
    is_denied: AtomicBool,
}

impl Schedule {
    /// The first one comes within an hour.
    pub(super) fn new() -> Self {
        let first = Duration::from_secs(3600).mul_f64(rand::random());
        Self {
            due: Mutex::new(Instant::now() + first),
            is_denied: AtomicBool::new(false),
        }
    }

    /// Whether one is due now. The next one is then due after the interval.
    fn is_due(&self, now: Instant) -> bool {
        if self.is_denied.load(Ordering::Relaxed) {
            return false;
        }
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = *due <= now;
        if is_due {
            *due = now + INTERVAL + INTERVAL.mul_f64(rand::random());
        }
        is_due
    }
}

impl Shared {
    /// Begins a clean-up in the background from time to time, and none once the server has denied it.
    pub(super) fn clean_up_if_due(self: &Arc<Self>) {
        if let Ok(runtime) = Handle::try_current()
            && self.clean_ups.is_due(Instant::now())
        {
            let shared = self.clone();
            runtime.spawn(async move {
                let cleaned = shared.clean_up().await;
                if cleaned.is_err_and(|error| error.kind() == ErrorKind::Denied) {
                    shared.clean_ups.is_denied.store(true, Ordering::Relaxed);
                }
            });
        }
    }

    /// Deletes dead rows of both tables, and returns how many.
    pub(super) async fn clean_up(&self) -> Result<u64> {
        let member = self.asking.member(None).await?;
        for check in self.statements.check_delete() {
            match self.run(&self.asking, &member, check).await {
                Err(error) if error.is_missing_table() => return Ok(0),
                answer => drop(answer.map_err(denied)?),
            }
        }
        Ok(self.clean_leases(&member).await? + self.clean_holders(&member).await?)
    }

    async fn clean_leases(&self, member: &Member) -> Result<u64> {
        let retention = self.config.retention();
        let (mut last, mut deleted) = (Vec::new(), 0);
        loop {
            let sql = self.statements.rows_after(&last, AT_ONCE, retention);
            let rows = self.find_rows(member, sql).await?;
            for row in &rows {
                let (name, is_dead) = row_after(row).map_err(SqlError::into_lock_error)?;
                if is_dead {
                    deleted += self
                        .delete(member, self.statements.delete_dead(&name, retention))
                        .await?;
                }
                last = name;
            }
            if rows.len() < AT_ONCE {
                return Ok(deleted);
            }
        }
    }

    async fn clean_holders(&self, member: &Member) -> Result<u64> {
        let retention = self.config.retention();
        let (mut last, mut deleted) = ((Vec::new(), Vec::new()), 0);
        loop {
            let sql = self.statements.dead_holders_after(&last.0, &last.1, AT_ONCE, retention);
            let rows = self.find_rows(member, sql).await?;
            for row in &rows {
                last = dead_holder(row).map_err(SqlError::into_lock_error)?;
                let sql = self.statements.delete_dead_holder(&last.0, &last.1, retention);
                deleted += self.delete(member, sql).await?;
            }
            if rows.len() < AT_ONCE {
                return Ok(deleted);
            }
        }
    }

    async fn find_rows(&self, member: &Member, sql: String) -> Result<Vec<MySqlRow>> {
        let found = self.run(&self.asking, member, sql).await;
        Ok(found.map_err(SqlError::into_lock_error)?.result.rows)
    }

    /// Deletes a row, unless somebody uses it at this moment.
    async fn delete(&self, member: &Member, sql: String) -> Result<u64> {
        match self.run(&self.asking, member, sql).await {
            Err(error) if error.is_busy() || error.is_deadlock() => Ok(0),
            answer => Ok(answer.map_err(SqlError::into_lock_error)?.result.matched),
        }
    }
}

fn denied(error: SqlError) -> Error {
    if !error.is_denied() {
        return error.into_lock_error();
    }
    let message = "the MySQL user may not delete from the lease tables: grant it DELETE, or leave dead rows there";
    Error::new(ErrorKind::Denied, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_within_an_hour_and_then_a_few_times_a_day() {
        let (schedule, start) = (Schedule::new(), Instant::now());
        let hour = Duration::from_secs(3600);
        assert!(schedule.is_due(start + hour));
        assert!(!schedule.is_due(start + 6 * hour));
        assert!(schedule.is_due(start + 14 * hour));
        schedule.is_denied.store(true, Ordering::Relaxed);
        assert!(!schedule.is_due(start + 99 * hour));
    }
}
