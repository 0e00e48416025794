//! Ending whatever a holder id has, or may still get by an acquire that is under way.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, HolderId, Mode};
use lock_core::{LockName, Result};

use super::sleeper::woken;
use super::{Shared, lock_error};
use crate::connection::{Session, end_connection};
use crate::error::{RequestError, unknown_outcome};
use crate::protocol::lease_table::released;
use crate::protocol::lease_table::sharing::{Sharing, shared_released};
use crate::protocol::{Job, StatementResult};

impl Shared {
    /// Retires the request's holder id.
    pub(super) async fn abandon(self: &Arc<Self>, request: &AcquireRequest) -> Result<()> {
        let waited = self.waits.contains(request.holder());
        let had_mark = self.leave_queue(request.name(), request.holder());
        // Nothing was ever sent, so there is nothing to undo.
        if self.asking.is_unused() && self.keeping.is_unused() {
            return Ok(());
        }
        let holder = request.holder();
        self.end_unanswered(holder).await?;
        let is_exclusive = request.mode() == Mode::Exclusive && !self.downgrades.contains(holder);
        let job = match is_exclusive {
            true => Job::Statement(self.statements.abandon(request.name(), holder)),
            false => Job::Transaction(self.statements.end(request.name(), holder)),
        };
        let done = self
            .keep_on(self.without_waiting(request.name(), job), self.limit())
            .await;
        self.note_row(request.name(), &done);
        let ended = match done {
            Err(RequestError::Sql(error)) if error.is_missing_table() => None,
            answer => Some(answer.map_err(lock_error)?.result),
        };
        self.claims.remove(holder);
        let Some(ended) = ended else { return Ok(()) };
        let sleeper = match is_exclusive {
            true => released(&ended).1,
            false => shared_released(&ended).1,
        };
        let waking = self.wake_waiter(request.name(), sleeper);
        if let Some(sharing) = Sharing::of(request.mode())?.filter(|_| waited) {
            // If it stays, it keeps others from the name for a while.
            let unmark = self.statements.unmark_kind(request.name(), sharing);
            drop(self.keep_job(Job::Statement(unmark)).await);
        }
        let calls = had_mark || request.mode() != Mode::Exclusive;
        let calling = calls.then(|| self.call_next(request.name())).flatten();
        woken([waking, calling]).await;
        Ok(())
    }

    /// Ends a hold and retires its holder id. Returns whether it was there.
    pub(super) async fn release_exclusive(
        self: &Arc<Self>,
        name: &LockName,
        holder: HolderId,
        keep_for: Option<Duration>,
    ) -> Result<bool> {
        self.end_unanswered(holder).await?;
        let sql = self.statements.release(name, holder, keep_for);
        let (was_there, sleeper) = released(&self.end_hold(name, holder, Job::Statement(sql)).await?);
        woken([self.wake_waiter(name, sleeper), None]).await;
        Ok(was_there)
    }

    /// The same for a hold that shares the name, or is about to.
    pub(super) async fn release_shared(
        self: &Arc<Self>,
        name: &LockName,
        holder: HolderId,
        is_permit: bool,
    ) -> Result<bool> {
        self.end_unanswered(holder).await?;
        let statements = self.statements.end(name, holder);
        let ended = self.end_hold(name, holder, Job::Transaction(statements)).await?;
        let (was_there, sleeper) = shared_released(&ended);
        // Others that wait for permits have left no mark.
        let calling = is_permit.then(|| self.call_next(name)).flatten();
        woken([self.wake_waiter(name, sleeper), calling]).await;
        Ok(was_there)
    }

    /// The result of the job that ends a hold; an empty one if there is no table any more.
    async fn end_hold(&self, name: &LockName, holder: HolderId, job: Job) -> Result<StatementResult> {
        let done = self.end_job(self.without_waiting(name, job)).await;
        self.note_row(name, &done);
        let result = match done {
            Ok(done) => done.result,
            Err(RequestError::Sql(error)) if error.is_missing_table() => StatementResult::default(),
            Err(error) => return Err(lock_error(error)),
        };
        self.claims.remove(holder);
        Ok(result)
    }

    /// After this, no acquire of this id takes effect that was sent before.
    pub(super) async fn end_unanswered(&self, holder: HolderId) -> Result<()> {
        for session in self.claims.unanswered(holder) {
            self.end(&session).await.map_err(unknown_outcome)?;
        }
        Ok(())
    }

    /// Ends a connection, here and at the server. When this returns, the server executes nothing of it any more.
    async fn end(&self, session: &Session) -> Result<()> {
        session.abort();
        let run = async |sql| Ok(self.keep_on(Job::Statement(sql), self.limit()).await?.result);
        end_connection(session.identity(), self.config.response_timeout, run).await?;
        Ok(())
    }
}
