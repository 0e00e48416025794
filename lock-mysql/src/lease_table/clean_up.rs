//! Deleting rows of names that nobody uses any more.

use std::sync::Arc;

use lock_core::Result;
use sqlx::mysql::MySqlRow;

use super::Shared;
use crate::clean_up::{AT_ONCE, denied};
use crate::connection::Member;
use crate::error::SqlError;
use crate::protocol::lease_table::{dead_holder, row_after};

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
