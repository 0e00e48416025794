//! The statements of a hold: renew, release, downgrade, raise.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{Mode, SentAt};
use lock_core::{FencingToken, Result};
use lock_kit::downgrades::Downgrades;
use lock_kit::lease_rows::{Held, LeaseRows, Renewed};
use lock_kit::locked_rows::LockedRows;

use super::{Shared, lock_error};
use crate::error::RequestError;
use crate::protocol::lease_table::sharing::{downgraded, raised};
use crate::protocol::{HoldRenewal, Job};

impl LeaseRows for Shared {
    fn locked_rows(&self) -> &LockedRows {
        &self.locked_rows
    }

    fn downgrades(&self) -> &Downgrades {
        &self.downgrades
    }

    /// Never waits at the server: what is sent over the same connection would wait behind it, for a second at least.
    async fn renew(self: &Arc<Self>, held: &Held, ttl: Duration, is_shared: bool) -> Result<Renewed> {
        self.keeping.open_in_background();
        let renewal = HoldRenewal {
            name: held.name.clone(),
            holder: held.holder,
            ttl,
            is_shared,
            is_alone: self.locked_rows.contains(&held.name),
        };
        match self.keep_on(Job::Renew(self.statements.clone(), renewal), None).await {
            Ok(done) if done.result.matched > 0 => Ok(Renewed::At(done.sent)),
            Ok(_) => Ok(Renewed::Lost),
            Err(RequestError::Sql(error)) if error.is_busy() => Ok(Renewed::Locked(error.into_lock_error())),
            // The hold went with its table, which the next acquire makes anew.
            Err(RequestError::Sql(error)) if error.is_missing_table() => Ok(Renewed::Lost),
            Err(error) => Err(error.into_lock_error()),
        }
    }

    async fn release(self: &Arc<Self>, held: &Held, may_share: bool, keep_for: Option<Duration>) -> Result<bool> {
        let is_permit = matches!(held.mode, Mode::Permits(_));
        match may_share {
            true => self.release_shared(&held.name, held.holder, is_permit).await,
            false => self.release_exclusive(&held.name, held.holder, keep_for).await,
        }
    }

    async fn downgrade(self: &Arc<Self>, held: &Held, ttl: Duration) -> Result<Option<SentAt>> {
        let statements = self.statements.downgrade(&held.name, held.holder, held.token, ttl);
        let done = self.keep_on(Job::Transaction(statements), self.limit()).await;
        let done = done.map_err(lock_error)?;
        Ok(downgraded(&done.result).then_some(done.sent))
    }

    async fn raise(self: &Arc<Self>, held: &Held, token: FencingToken, is_shared: bool) -> Result<bool> {
        let statements = &self.statements;
        let job = match is_shared {
            true => Job::Transaction(statements.raise_shared(&held.name, held.holder, token).into()),
            false => Job::Statement(statements.raise(&held.name, held.holder, token)),
        };
        match self.keep_on(job, self.limit()).await {
            Ok(done) if is_shared => Ok(raised(&done.result)),
            Ok(done) => Ok(done.result.matched > 0),
            // The hold went with its table.
            Err(RequestError::Sql(error)) if error.is_missing_table() => Ok(false),
            Err(error) => Err(lock_error(error)),
        }
    }
}
