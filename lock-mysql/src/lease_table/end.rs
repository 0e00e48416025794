//! Ending whatever a holder id has, or may still get by an acquire that is under way.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, HolderId};
use lock_core::{Error, ErrorKind, LockName, Result};
use tokio::time::{Instant, sleep};

use super::{Shared, lock_error};
use crate::connection::Session;
use crate::error::{RequestError, SqlError, unknown_outcome};
use crate::protocol::{Identity, column};

impl Shared {
    /// Retires the request's holder id.
    pub(super) async fn abandon(self: &Arc<Self>, request: &AcquireRequest) -> Result<()> {
        self.waits.remove(request.holder());
        // Nothing was ever sent, so there is nothing to undo.
        if self.asking.is_unused() && self.keeping.is_unused() {
            return Ok(());
        }
        let holder = request.holder();
        self.end_unanswered(holder).await?;
        match self.keep_on(self.statements.abandon(request.name(), holder)).await {
            Err(RequestError::Sql(error)) if error.is_missing_table() => {}
            answer => self.wake_waiter(request.name(), &answer.map_err(lock_error)?),
        }
        self.claims.remove(holder);
        Ok(())
    }

    /// Ends a hold and retires its holder id. Returns whether it was there.
    pub(super) async fn release(
        self: &Arc<Self>,
        name: &LockName,
        holder: HolderId,
        keep_for: Option<Duration>,
    ) -> Result<bool> {
        self.end_unanswered(holder).await?;
        let matched = match self.keep_job(self.statements.release(name, holder, keep_for)).await {
            Ok(released) => {
                self.wake_waiter(name, &released.result);
                released.result.matched
            }
            Err(RequestError::Sql(error)) if error.is_missing_table() => 0,
            Err(error) => return Err(lock_error(error)),
        };
        self.claims.remove(holder);
        Ok(matched > 0)
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
        let identity = session.identity();
        let deadline = Instant::now() + self.config.response_timeout();
        let mut pause = Duration::from_millis(1);
        while self.is_there(identity).await? {
            if Instant::now() >= deadline {
                let message = "the MySQL server does not end one of its connections";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            // In one statement: a number that was looked up before may be another connection's by then.
            self.kill(format!("KILL CONNECTION IS_USED_LOCK({identity})")).await?;
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok(())
    }

    async fn is_there(&self, identity: Identity) -> Result<bool> {
        let sql = format!("SELECT CAST(IS_USED_LOCK({identity}) AS UNSIGNED)");
        let found = self.keep_on(sql).await.map_err(lock_error)?;
        let missing = || SqlError::UnexpectedAnswer("named lock").into_lock_error();
        let row = found.rows.first().ok_or_else(missing)?;
        let id: Option<u64> = column(row, 0, "named lock").map_err(SqlError::into_lock_error)?;
        Ok(id.is_some())
    }

    async fn kill(&self, sql: String) -> Result<()> {
        match self.keep_on(sql).await {
            // 1094: it has ended meanwhile.
            Err(error) if error.code() != Some(1094) => Err(lock_error(error)),
            _ => Ok(()),
        }
    }
}
