//! A hold: renew, release, downgrade, pass.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Hold, HolderId, Lease, Mode, ReleaseOptions, ReleaseOutcome, Renewal, SentAt,
};
use lock_core::{Error, ErrorKind, FencingToken, HoldState, LockName, Result};
use lock_kit::locked_rows::PAUSES;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::{Shared, lock_error};
use crate::error::RequestError;
use crate::protocol::lease_table::LeaseTerms;
use crate::protocol::lease_table::sharing::raised;
use crate::protocol::{HoldRenewal, Job};

pub(super) struct LeaseHold {
    pub(super) shared: Arc<Shared>,
    pub(super) name: LockName,
    pub(super) holder: HolderId,
    pub(super) token: FencingToken,
    /// The number of tokens that are left, its own included.
    reserved: u32,
    is_permit: bool,
    pub(super) lease: Lease,
    form: Mutex<Form>,
}

/// The tables' record of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// In the name's row.
    Exclusive,
    /// In the table of those who share names.
    Sharing,
    /// In one of them: it is being downgraded.
    Either,
}

#[async_trait]
impl Hold for LeaseHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        self.try_renew(ttl).await.map_err(|error| error.with_name(&self.name))
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let released = match self.form() {
            Form::Exclusive => self.shared.release(&self.name, self.holder, how.keep_for).await,
            Form::Sharing | Form::Either => {
                let shared = &self.shared;
                shared.release_shared(&self.name, self.holder, self.is_permit).await
            }
        };
        match released {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => Err(error.with_name(&self.name)),
        }
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        self.try_downgrade(ttl)
            .await
            .map_err(|error| error.with_name(&self.name))
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        self.try_raise(token).await.map_err(|error| error.with_name(&self.name))
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        if self.form() != Form::Exclusive {
            return None;
        }
        let reserved = self.reserved.checked_sub(1).filter(|left| *left > 0)?;
        let token = FencingToken::new(self.token.as_u64() + 1)?;
        Some(Arc::new(Self {
            shared: self.shared.clone(),
            name: self.name.clone(),
            holder: self.holder,
            token,
            reserved,
            is_permit: false,
            lease: next.clone(),
            form: Mutex::new(Form::Exclusive),
        }))
    }
}

impl LeaseHold {
    pub(super) fn new(shared: &Arc<Shared>, request: &AcquireRequest, terms: &LeaseTerms, token: FencingToken) -> Self {
        let is_exclusive = request.mode() == Mode::Exclusive;
        let (reserved, form) = match is_exclusive {
            true => (terms.reserved(token), Form::Exclusive),
            false => (1, Form::Sharing),
        };
        Self {
            shared: shared.clone(),
            name: request.name().clone(),
            holder: request.holder(),
            token,
            reserved,
            is_permit: matches!(request.mode(), Mode::Permits(_)),
            lease: request.lease().clone(),
            form: Mutex::new(form),
        }
    }

    fn form(&self) -> Form {
        *self.form.lock()
    }

    pub(super) fn set_form(&self, form: Form) {
        *self.form.lock() = form;
    }

    async fn try_renew(&self, ttl: Duration) -> Result<Renewal> {
        // The server keeps the hold a little longer than the lease lasts. A renewal must not revive the lease.
        if matches!(self.lease.state(), HoldState::Lost(_)) {
            return Ok(Renewal::Lost);
        }
        let renewed = match self.form() {
            Form::Exclusive => self.renew_as(ttl, false).await?,
            Form::Sharing => self.renew_as(ttl, true).await?,
            // A downgrade that is under way ends the exclusive hold, and not the other way round.
            Form::Either => match self.renew_as(ttl, false).await? {
                None => self.renew_as(ttl, true).await?,
                renewed => renewed,
            },
        };
        Ok(match renewed {
            Some(sent) => Renewal::Renewed(self.lease.arm(sent, ttl)?),
            None => Renewal::Lost,
        })
    }

    /// Renews one of the two kinds of holds, and returns when that was sent; `None` if it was not there.
    async fn renew_as(&self, ttl: Duration, is_shared: bool) -> Result<Option<SentAt>> {
        let (shared, locked_rows) = (&self.shared, &self.shared.locked_rows);
        shared.keeping.open_in_background();
        let is_locked = locked_rows.contains(&self.name);
        let renewal = HoldRenewal {
            name: self.name.clone(),
            holder: self.holder,
            ttl,
            is_shared,
            is_alone: is_locked,
        };
        let job = Job::Renew(shared.statements.clone(), renewal);
        // Renewals never wait at the server: what is sent over the same connection would wait behind them, for a second at least.
        let mut pauses = match is_locked {
            true => [].iter(),
            false => PAUSES.iter(),
        };
        loop {
            // The caller decides how long to wait.
            match shared.keep_on(job.clone(), None).await {
                Ok(done) => {
                    if is_locked {
                        locked_rows.remove(&self.name);
                    }
                    return Ok((done.result.matched > 0).then_some(done.sent));
                }
                Err(RequestError::Sql(error)) if error.is_busy() => {
                    let Some(pause) = pauses.next() else {
                        locked_rows.insert(&self.name);
                        return Err(error.into_lock_error());
                    };
                    sleep(Duration::from_millis(*pause)).await;
                }
                // The hold went with its table, which the next acquire makes anew.
                Err(RequestError::Sql(error)) if error.is_missing_table() => return Ok(None),
                Err(error) => return Err(error.into_lock_error()),
            }
        }
    }

    async fn try_raise(&self, token: FencingToken) -> Result<()> {
        let statements = &self.shared.statements;
        let is_exclusive = self.form() == Form::Exclusive;
        let job = match is_exclusive {
            true => Job::Statement(statements.raise(&self.name, self.holder, token)),
            false => Job::Transaction(statements.raise_shared(&self.name, self.holder, token).into()),
        };
        let is_raised = match self.shared.keep_on(job, self.shared.limit()).await {
            Ok(done) if is_exclusive => done.result.matched > 0,
            Ok(done) => raised(&done.result),
            // The hold went with its table.
            Err(RequestError::Sql(error)) if error.is_missing_table() => false,
            Err(error) => return Err(lock_error(error)),
        };
        match is_raised {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Lost,
                "the hold has ended, so its token was not raised",
            )),
        }
    }
}

impl Drop for LeaseHold {
    fn drop(&mut self) {
        if self.form() != Form::Exclusive {
            self.shared.downgrades.remove(self.holder);
        }
    }
}

impl fmt::Debug for LeaseHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHold")
            .field("name", &self.name)
            .field("holder", &self.holder)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
