//! From an exclusive lock to a shared one, in one step.

use std::time::Duration;

use lock_core::Result;
use lock_core::backend::Renewal;

use super::carrier::Moment;
use super::claims::Form;
use super::hold::SessionHold;
use crate::connection::Parameters;
use crate::error::SqlError;
use crate::names::id_of;
use crate::protocol::answers::column;
use crate::protocol::terms::signed;

impl SessionHold {
    /// The session has the lock, so it gets the shared one at once, whoever waits. Only then it gives up the exclusive one.
    pub(super) async fn try_downgrade(&self, ttl: Duration) -> Result<Renewal> {
        if self.has_ended() {
            return Ok(Renewal::Lost);
        }
        let claim = &self.claim;
        let connection = &claim.session.connection;
        let statements = self.shared.statements().await?;
        let (holder, token) = (id_of(claim.holder), signed(self.token.as_u64()));
        let (reader, limit): (Parameters<'_>, _) = (&[&holder, &self.label, &token], self.shared.limit());
        let lost_or = |error: SqlError| match error.is_disconnect() {
            true => Ok(Renewal::Lost),
            false => Err(error.into_lock_error()),
        };
        if let Err(error) = claim.query(&statements.enter_reader, reader, limit).await {
            return lost_or(error);
        }
        let is_over = claim.gate.lock().await;
        if *is_over {
            return Ok(Renewal::Lost);
        }
        if claim.state().form == Form::Exclusive {
            // Until it is answered.
            claim.change(|state| state.form = Form::Either);
        }
        let moment = Moment::now();
        let rows = match claim.query(&statements.downgrade, &[], limit).await {
            Ok(rows) => rows,
            Err(error) => return lost_or(error),
        };
        let is_shared = rows.first().map(|row| column::<Option<bool>>(row, 0, "downgrade"));
        if is_shared.transpose().map_err(SqlError::into_lock_error)?.flatten() != Some(true) {
            connection.abort();
            return Ok(Renewal::Lost);
        }
        claim.change(|state| state.form = Form::Shared);
        drop(is_over);
        self.arm(moment, ttl)
    }
}
