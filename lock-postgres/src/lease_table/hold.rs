//! The statements of a hold: renew, release, downgrade, raise.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::SentAt;
use lock_core::{FencingToken, Result};
use lock_kit::downgrades::Downgrades;
use lock_kit::lease_rows::{Held, LeaseRows, Renewed};
use lock_kit::locked_rows::LockedRows;

use super::Shared;
use crate::connection::Parameters;
use crate::error::SqlError;
use crate::names::{id_of, name_bytes};
use crate::protocol::answers::flags;
use crate::protocol::terms::signed;

impl LeaseRows for Shared {
    fn locked_rows(&self) -> &LockedRows {
        &self.locked_rows
    }

    fn downgrades(&self) -> &Downgrades {
        &self.downgrades
    }

    async fn renew(self: &Arc<Self>, held: &Held, ttl: Duration, is_shared: bool) -> Result<Renewed> {
        let renewed = self.renew_with_others(held, ttl, is_shared).await;
        renewed.map_err(SqlError::into_lock_error)
    }

    async fn release(self: &Arc<Self>, held: &Held, may_share: bool, keep_for: Option<Duration>) -> Result<bool> {
        if !may_share {
            return self.release_exclusive(&held.name, held.holder, keep_for).await;
        }
        let connection = self.keeping.connection().await?;
        self.end_any(&connection, &held.name, held.holder, keep_for).await
    }

    async fn downgrade(self: &Arc<Self>, held: &Held, ttl: Duration) -> Result<Option<SentAt>> {
        let sql = self.statements.downgrade(&held.name, held.holder, held.token, ttl);
        let (sent, rows) = self.keep(&held.name, &sql).await?;
        let (was_there, is_wanted) = flags(&rows);
        if was_there
            && is_wanted
            && let Ok(connection) = self.keeping.connection().await
        {
            self.begin_call(&connection, &held.name);
        }
        Ok(was_there.then_some(sent))
    }

    async fn raise(self: &Arc<Self>, held: &Held, token: FencingToken, is_shared: bool) -> Result<bool> {
        if is_shared {
            let sql = self.statements.raise_shared(&held.name, held.holder, token);
            let (_, rows) = self.keep(&held.name, &sql).await?;
            return Ok(flags(&rows).0);
        }
        let connection = self.keeping.connection().await?;
        let (name, holder) = (&held.name, id_of(held.holder));
        let parameters: Parameters<'_> = &[&name_bytes(name), &holder, &signed(token.as_u64())];
        let raised = self
            .query_row(&connection, name, &self.statements.raise, parameters)
            .await?;
        Ok(!raised.is_empty())
    }
}
