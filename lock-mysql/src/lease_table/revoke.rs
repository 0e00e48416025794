//! Forced release.

use std::sync::Arc;

use lock_core::backend::{Revoke, Revoked};
use lock_core::{FencingToken, LockName, Result};

use super::sleeper::woken;
use super::{Shared, lock_error};
use crate::error::{RequestError, SqlError};
use crate::protocol::Job;
use crate::protocol::lease_table::revoke::revoked;

impl Shared {
    /// Ends the hold with this token, whoever has it.
    pub(super) async fn revoke(self: &Arc<Self>, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let job = Job::Transaction(self.statements.revoke(name, token, how));
        // Not twice: if the first one had ended the hold, the second one would find none.
        let done = self.keep_job(self.without_waiting(name, job)).await;
        self.note_row(name, &done);
        let done = match done {
            Err(RequestError::Sql(error)) if error.is_missing_table() => return Ok(Revoked::NotHeld),
            done => done.map_err(lock_error)?,
        };
        let Some(hold) = revoked(&done.result).map_err(SqlError::into_lock_error)? else {
            return Ok(Revoked::NotHeld);
        };
        if how != Revoke::AtLeaseEnd {
            // Others that wait for permits have left no mark.
            woken([self.wake_waiter(name, hold.sleeper), self.call_next(name)]).await;
        }
        Ok(Revoked::done(hold.lease_left))
    }
}
