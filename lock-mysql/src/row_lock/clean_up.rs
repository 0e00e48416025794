//! Deleting rows of names that nobody uses any more.

use std::sync::Arc;

use lock_core::Result;

use super::Shared;
use crate::clean_up::{AT_ONCE, denied};
use crate::connection::Session;
use crate::error::SqlError;
use crate::protocol::Answer;
use crate::protocol::row_lock::clean_up::{DeadRows, row_after};

impl Shared {
    /// Begins a clean-up in the background from time to time.
    pub(super) fn clean_up_if_due(self: &Arc<Self>) {
        self.clean_ups.run_if_due(|| {
            let shared = self.clone();
            async move { shared.clean_up().await }
        });
    }

    /// Deletes dead rows of both tables, and returns how many.
    pub(super) async fn clean_up(&self) -> Result<u64> {
        // One of its own: locks wait for no clean-up, and none of their transactions may be open on it.
        let session = self.client.pool.open().await?;
        match self.run_on(&session, self.statements.check_delete()).await {
            Err(error) if error.is_missing_table() => return Ok(0),
            answer => drop(answer.map_err(denied)?),
        }
        let mut deleted = 0;
        for rows in self.statements.dead_rows(self.client.config().retention()) {
            deleted += self.clean_table(&session, rows).await?;
        }
        Ok(deleted)
    }

    async fn clean_table(&self, session: &Session, dead: DeadRows<'_>) -> Result<u64> {
        let (mut last, mut deleted) = (Vec::new(), 0);
        loop {
            let found = self.run_on(session, dead.after(&last, AT_ONCE)).await;
            let found = found.map_err(SqlError::into_lock_error)?;
            let rows = found.results.first().map_or(&[][..], |select| &select.rows);
            for row in rows {
                let (name, is_dead) = row_after(row).map_err(SqlError::into_lock_error)?;
                if is_dead {
                    deleted += self.delete(session, dead.delete(&name)).await?;
                }
                last = name;
            }
            if rows.len() < AT_ONCE {
                return Ok(deleted);
            }
        }
    }

    /// Deletes a row, unless somebody has locked it.
    async fn delete(&self, session: &Session, sql: String) -> Result<u64> {
        match self.run_on(session, sql).await {
            Ok(answer) => Ok(answer.results.get(1).map_or(0, |delete| delete.matched)),
            Err(error) if error.is_busy() || error.is_deadlock() => {
                // The failed statement has left a transaction open.
                let ended = self.run_on(session, "ROLLBACK".to_owned()).await;
                ended.map_err(SqlError::into_lock_error)?;
                Ok(0)
            }
            Err(error) => Err(error.into_lock_error()),
        }
    }

    async fn run_on(&self, session: &Session, sql: String) -> std::result::Result<Answer, SqlError> {
        session.run(sql, None, self.client.response_timeout()).await
    }
}
