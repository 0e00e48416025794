//! The end of a task: published whatever becomes of it, a panic included.

use std::sync::Arc;

use lock_core::Error;

use super::task::ClaimTask;
use crate::claims::{Claim, Claims, Outcome, Stage, TaskNumber};
use crate::config::ZooKeeperConfig;
use crate::connection::Session;
use crate::error::catch_panic;

/// Publishes how the task ended, also when its runtime drops it.
pub(super) struct TaskEnd {
    pub(super) claims: Arc<Claims>,
    claim: Arc<Claim>,
    number: TaskNumber,
    outcome: Outcome,
    session: Arc<Session>,
    config: Arc<ZooKeeperConfig>,
    /// Whether an earlier task may have left a node in another session.
    had_leftover: bool,
}

impl TaskEnd {
    pub(super) fn new(claims: &Arc<Claims>, task: &ClaimTask) -> Self {
        Self {
            claims: claims.clone(),
            claim: task.claim.clone(),
            number: task.number,
            outcome: Outcome::SessionEnded,
            session: task.session.clone(),
            config: task.config.clone(),
            had_leftover: task.claim.has_leftover(),
        }
    }

    pub(super) fn note(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// After a panic: deletes the node, which no task would delete any more. A minimum is kept if its caller was told of the grant.
    pub(super) async fn clean_up(&self, panic: Error) -> Outcome {
        self.session.unbind_lease(self.claim.holder());
        self.claim.lose_hold();
        let mut task = ClaimTask::new(&self.claim, self.number, &self.session, &self.config);
        // If that fails as well, the node goes with the session, and a kept node with the next acquire of the name.
        let _ = match self.claim.was_received() {
            true => catch_panic(task.delete_node()).await,
            false => catch_panic(task.undo_node()).await,
        };
        Outcome::Failed(panic)
    }
}

impl Drop for TaskEnd {
    fn drop(&mut self) {
        let holder = self.claim.holder();
        let (was_granted, is_kept) = match self.claim.stage() {
            Stage::Granted(grant) => (true, grant.is_kept()),
            _ => (false, false),
        };
        // Its node goes with the session, and counts for nobody until then: no claim is needed to delete it. The caller may have left,
        // and then nobody would close the claim.
        if self.session.has_expired() && !was_granted && !self.had_leftover && !self.claim.may_be_kept() {
            self.claim.set_leftover(self.number, false);
        }
        if !self.claim.advance(self.number, Stage::Ended(self.outcome.clone())) {
            // The claim has another task.
            return;
        }
        match self.outcome {
            Outcome::Undone | Outcome::Released | Outcome::NotOurs => self.claims.retire(holder),
            // Its node goes with the session, but a kept node does not: if nobody was told of the grant, it is abandoned.
            _ if was_granted && !self.claim.has_handles() && (!is_kept || self.claim.was_received()) => {
                self.claims.close(holder);
            }
            _ if !self.claim.has_leftover() => self.claims.close(holder),
            // The caller acquires again or abandons.
            _ => {}
        }
    }
}
