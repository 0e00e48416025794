//! The end of the hold that a connection carries.

use std::ops::ControlFlow::{self, Break, Continue};

use lock_core::backend::HolderId;

use super::{Exit, Reply, Worker};
use crate::connection::phase::Phase;
use crate::error::SqlError;

impl Worker {
    pub(super) async fn release(&mut self, holder: HolderId, sql: String, reply: Reply<()>) -> ControlFlow<Exit> {
        if matches!(self.phase, Phase::Released(released) if released == holder) {
            drop(reply.send(Ok(())));
            return Continue(());
        }
        if self.phase.hold_of(holder).is_none() {
            drop(reply.send(Err(SqlError::HoldEnded)));
            return Continue(());
        }
        let mut answer = self.round_trip(sql, None).await;
        if let Some(refusal) = answer.as_ref().err().filter(|error| error.is_refusal()) {
            let is_read_only = refusal.is_read_only();
            // The transaction is still open, and the hold with it. The row does not get the token, but the server's clock
            // has passed it.
            answer = self.round_trip("ROLLBACK".to_owned(), None).await;
            if is_read_only && answer.is_ok() {
                // Another server may take the writes by now, and may have granted the name.
                self.phase.lose_to_read_only();
                drop(reply.send(Err(SqlError::HoldEnded)));
                return Break(Exit::Finished);
            }
        }
        if answer.is_ok()
            && let Phase::Holding { hold, .. } = std::mem::replace(&mut self.phase, Phase::Released(holder))
        {
            hold.mark_released();
        }
        let flow = self.continue_after(&answer);
        drop(reply.send(answer.map(drop)));
        flow
    }
}
