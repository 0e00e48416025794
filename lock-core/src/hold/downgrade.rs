//! An exclusive hold that becomes a shared one.

use std::time::Duration;

use super::{ActiveHold, Share, Successor};
use crate::backend::{Mode, Renewal};
use crate::error::{Error, ErrorKind, Result};
use crate::lost::LostCause;
use crate::observe::{self, BackendRequest};
use crate::sync::time::sleep;
use crate::sync::{Arc, Ordering};
use crate::time::within;

impl<W: Successor> Share<W> {
    /// Makes its hold a shared one, once it is known that this can be.
    pub(crate) async fn downgrade(&self) -> Result<()> {
        self.keeper().check_process()?;
        let hold = self.hold();
        let limits = hold.lock.limits;
        if hold.lock.options.minimum_hold.is_some() {
            let message = "a minimum hold stays exclusive: release it, or leave out `hold_at_least`";
            return Err(Error::new(ErrorKind::Misconfigured, message).with_name(&hold.lock.name));
        }
        if hold.mode() == Mode::Exclusive {
            limits.check_downgrade().map_err(|error| error.about(&hold.lock.name))?;
        }
        hold.downgrade(limits.operation_timeout).await
    }
}

impl<W: Successor> ActiveHold<W> {
    /// Makes the hold shared, if the server answers in time. Whatever the outcome, the guard counts as shared from the
    /// first poll on.
    pub(crate) async fn downgrade(self: &Arc<Self>, limit: Duration) -> Result<()> {
        tokio::select! {
            biased;
            result = self.ask_to_downgrade() => result,
            _ = self.lease.ended() => Ok(self.check()?),
            () = sleep(limit) => {
                self.lease.suspect();
                let message = format!("the downgrade was not answered {}", within(limit));
                Err(Error::new(ErrorKind::Unavailable, message).with_name(&self.lock.name))
            }
        }
    }

    async fn ask_to_downgrade(self: &Arc<Self>) -> Result<()> {
        // The hold may be replaced until then.
        self.renewals.upgrade_settled().await;
        if !self.begin_downgrade()? {
            return Ok(self.check()?);
        }
        // From here on other callers of this process compete at the server, also if the downgrade is dropped or fails.
        let _passes_on = PassesTurnOn(self);
        observe::requested(BackendRequest::Downgrade);
        match self.hold().downgrade(self.lock.options.ttl).await {
            Ok(Renewal::Renewed(_)) => {
                self.current.lock().is_answered = true;
                observe::downgraded(&self.lock.name, self.token());
            }
            Ok(Renewal::Lost) => self.lease.lose(LostCause::NotHeld),
            Err(error) => {
                self.lease.suspect();
                self.check()?;
                return Err(error.about(&self.lock.name));
            }
        }
        Ok(self.check()?)
    }

    /// From here on it counts as shared. False if the server is known to have it so.
    fn begin_downgrade(&self) -> Result<bool> {
        self.check()?;
        let refused = |message: &'static str| Err(Error::new(ErrorKind::Misconfigured, message));
        let mut current = self.current.lock();
        let refused = match current.mode {
            Mode::Shared => return Ok(!current.is_answered),
            Mode::Exclusive if self.shares.load(Ordering::Acquire) == 1 => {
                current.mode = Mode::Shared;
                current.is_answered = false;
                return Ok(true);
            }
            Mode::Exclusive => refused("guards of the same re-entry key hold the lock too: release them first"),
            Mode::Upgradable => {
                refused("an upgradable hold is not exclusive: upgrade it first, or acquire the read side")
            }
            Mode::Permits(_) => refused("permits are not exclusive, and cannot be downgraded"),
        };
        refused.map_err(|error| error.with_name(&self.lock.name))
    }
}

struct PassesTurnOn<'a, W: Successor>(&'a Arc<ActiveHold<W>>);

impl<W: Successor> Drop for PassesTurnOn<'_, W> {
    fn drop(&mut self) {
        let hold = self.0;
        let keeper = hold.keeper.upgrade();
        if keeper.as_ref().is_some_and(|keeper| keeper.has_forked()) {
            // It is the parent's, and so are its locks.
            return;
        }
        let (chosen, turn) = hold.detach(&mut hold.succession());
        if let Some(keeper) = keeper {
            hold.let_in(chosen, &keeper);
        }
        drop(turn);
    }
}
