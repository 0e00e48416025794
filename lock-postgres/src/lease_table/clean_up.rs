//! Deletes rows that nobody needs any more.

use std::sync::Arc;

use lock_core::{Error, ErrorKind, Result};

use super::Shared;
use crate::error::SqlError;
use crate::protocol::terms::as_micros;

/// The number of rows that one statement deletes.
const AT_ONCE: usize = 500;

impl Shared {
    /// Begins a clean-up in the background from time to time.
    pub(super) fn clean_up_if_due(self: &Arc<Self>) {
        self.clean_ups.run_if_due(|| {
            let shared = self.clone();
            async move { shared.clean_up().await }
        });
    }

    /// Deletes dead rows, and returns how many.
    pub(super) async fn clean_up(&self) -> Result<u64> {
        let connection = self.asking.connection().await?;
        let statements = self.statements.clean_up(as_micros(self.config.retention), AT_ONCE);
        let mut deleted = 0;
        for statement in statements {
            loop {
                let rows = match connection.run(&statement, self.limit()).await {
                    Err(error) if error.is_missing_table() => return Ok(deleted),
                    Err(error) if error.is_denied() => {
                        let message = "the PostgreSQL user may not delete from the lock tables: grant it DELETE, or leave dead \
                                       rows there";
                        return Err(Error::new(ErrorKind::Denied, message).with_source(error));
                    }
                    rows => rows.map_err(SqlError::into_lock_error)?.len(),
                };
                deleted += rows as u64;
                if rows < AT_ONCE {
                    break;
                }
            }
        }
        Ok(deleted)
    }
}
