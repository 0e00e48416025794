//! Exclusive holds that become readers'.

use std::time::Duration;

use lock_core::backend::Renewal;
use lock_core::{HoldState, Result};

use super::hold::{Form, LeaseHold};
use super::lock_error;
use crate::protocol::Job;
use crate::protocol::lease_table::sharing::downgraded;

impl LeaseHold {
    pub(super) async fn try_downgrade(&self, ttl: Duration) -> Result<Renewal> {
        if matches!(self.lease.state(), HoldState::Lost(_)) {
            return Ok(Renewal::Lost);
        }
        // Until it is answered, the hold is one or the other.
        self.shared.downgrades.insert(self.holder);
        self.set_form(Form::Either);
        let statements = self
            .shared
            .statements
            .downgrade(&self.name, self.holder, self.token, ttl);
        let done = self
            .shared
            .keep_on(Job::Transaction(statements), self.shared.limit())
            .await;
        let done = done.map_err(lock_error)?;
        if !downgraded(&done.result) {
            return Ok(Renewal::Lost);
        }
        self.set_form(Form::Sharing);
        Ok(Renewal::Renewed(self.lease.arm(done.sent, ttl)?))
    }
}
