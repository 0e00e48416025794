//! From an exclusive lock to a shared one, in one step.

use std::time::Duration;

use lock_core::Result;
use lock_core::backend::Renewal;
use tokio_postgres::types::ToSql;

use super::carrier::Moment;
use super::claims::Form;
use super::hold::SessionHold;
use super::name_of;
use crate::error::SqlError;
use crate::names::Id;
use crate::protocol::answers::column;

impl SessionHold {
    /// The session has the lock, so it gets the shared one at once, whoever waits. Only then it gives up the exclusive one.
    pub(super) async fn try_downgrade(&self, ttl: Duration) -> Result<Renewal> {
        if self.has_ended() {
            return Ok(Renewal::Lost);
        }
        let claim = &self.claim;
        let connection = &claim.session.connection;
        let statements = self.shared.statements().await?;
        let (mark, name) = (connection.mark(), name_of(&claim.name));
        let (holder, token) = (
            Id::from(claim.holder),
            i64::try_from(self.token.as_u64()).unwrap_or(i64::MAX),
        );
        let reader: [&(dyn ToSql + Sync); 5] = [&mark, &name, &holder, &self.label, &token];
        let lost_or = |error: SqlError| match error.is_disconnect() {
            true => Ok(Renewal::Lost),
            false => Err(error.into_lock_error()),
        };
        let entered = connection.query(&statements.enter_reader, &reader, None);
        if let Err(error) = self.shared.within_limit(entered).await {
            return lost_or(error);
        }
        let is_over = claim.gate.lock().await;
        if *is_over {
            return Ok(Renewal::Lost);
        }
        if claim.form() == Form::Exclusive {
            // Until it is answered.
            claim.set_form(Form::Either);
        }
        let moment = Moment::now();
        let downgraded = connection.query(&statements.downgrade, &reader[..2], None);
        let rows = match self.shared.within_limit(downgraded).await {
            Ok(rows) => rows,
            Err(error) => return lost_or(error),
        };
        let is_shared = rows.first().map(|row| column::<Option<bool>>(row, 0, "downgrade"));
        if is_shared.transpose().map_err(SqlError::into_lock_error)?.flatten() != Some(true) {
            connection.abort();
            return Ok(Renewal::Lost);
        }
        claim.set_form(Form::Shared);
        drop(is_over);
        self.arm(moment, ttl)
    }
}
