//! Giving the hold that a connection carries to another holder.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use lock_core::backend::HolderId;

use super::{Exit, Reply, Worker};
use crate::connection::phase::Phase;
use crate::error::SqlError;
use crate::protocol::{Answer, seconds_up};

/// Gives the giver's hold to the next holder. Repeated, it runs again as long as nobody carries the next hold.
#[derive(Debug)]
pub(crate) struct HandOverCommand {
    pub(crate) giver: HolderId,
    pub(crate) next: HolderId,
    pub(crate) sql: String,
    /// The next holder's.
    pub(crate) ttl: Duration,
    /// Whether they release the name first: if somebody else has it then, the giver's hold has ended.
    pub(crate) releases: bool,
}

impl Worker {
    pub(super) async fn hand_over(&mut self, command: HandOverCommand, reply: Reply<Answer>) -> ControlFlow<Exit> {
        let HandOverCommand {
            giver,
            next,
            mut sql,
            ttl,
            releases,
        } = command;
        let is_repeated = matches!(self.phase, Phase::HandedOver(holder) if holder == next);
        if !is_repeated && self.phase.hold_of(giver).is_none() {
            drop(reply.send(Err(SqlError::HoldEnded)));
            return Continue(());
        }
        let wait_timeout = seconds_up(ttl);
        if self.wait_timeout != Some(wait_timeout) {
            // At the end, so that the giver's stays if the server refuses the rest.
            sql.push_str(&format!(";SET SESSION wait_timeout={wait_timeout}"));
        }
        let answer = self.round_trip(sql, None).await;
        if answer.is_ok() {
            self.wait_timeout = Some(wait_timeout);
        }
        let after = match &answer {
            Ok(_) => Some(Phase::HandedOver(next)),
            Err(error) if releases && error.is_busy() => Some(Phase::Released(giver)),
            // Nobody knows which of the statements was refused; and a deadlock, or with some settings a wait that timed out,
            // has rolled the transaction back.
            Err(error) if error.may_end_transaction() || releases && error.is_refusal() => {
                self.phase.lose_because(error);
                drop(reply.send(Err(SqlError::Disconnected)));
                return Break(Exit::Finished);
            }
            Err(_) => None,
        };
        if let Some(after) = after
            && let Phase::Holding { hold, .. } = std::mem::replace(&mut self.phase, after)
        {
            hold.mark_released();
        }
        self.reply(answer, reply)
    }
}
