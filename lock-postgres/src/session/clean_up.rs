//! Deletes rows that nobody needs any more.

use std::sync::Arc;

use lock_core::Result;

use super::Shared;
use crate::clean_up::{AT_ONCE, delete_dead};
use crate::protocol::terms::as_micros;

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
        let statements = self.statements().await?;
        let control = self.control.connection().await?;
        let dead = statements.clean_up(as_micros(self.config.retention), AT_ONCE);
        delete_dead(&control, &dead, self.limit()).await
    }
}
