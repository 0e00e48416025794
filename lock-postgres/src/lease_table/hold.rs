//! A hold: renew, release, raise, pass.

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

use super::Shared;
use super::renewals::{HoldRenewal, Renewed};
use crate::connection::Parameters;
use crate::error::SqlError;
use crate::names::{Id, name_bytes};
use crate::protocol::answers::flags;
use crate::protocol::terms::{LeaseTerms, as_micros};

pub(super) struct LeaseHold {
    pub(super) shared: Arc<Shared>,
    pub(super) name: LockName,
    pub(super) holder: HolderId,
    pub(super) token: FencingToken,
    /// The number of tokens that are left, its own included.
    reserved: u32,
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
                shared.release_shared(&self.name, self.holder, how.keep_for).await
            }
        };
        match released {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => Err(error.with_name(&self.name)),
        }
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let downgraded = self.try_downgrade(ttl).await;
        downgraded.map_err(|error| error.with_name(&self.name))
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        self.try_raise(token).await.map_err(|error| error.with_name(&self.name))
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        if self.form() != Form::Exclusive {
            return None;
        }
        let reserved = self.reserved.checked_sub(1).filter(|left| *left > 0)?;
        Some(Arc::new(Self {
            shared: self.shared.clone(),
            name: self.name.clone(),
            holder: self.holder,
            token: FencingToken::new(self.token.as_u64() + 1)?,
            reserved,
            lease: next.clone(),
            form: Mutex::new(Form::Exclusive),
        }))
    }
}

impl LeaseHold {
    pub(super) fn new(shared: &Arc<Shared>, request: &AcquireRequest, terms: &LeaseTerms, token: FencingToken) -> Self {
        let form = match request.mode() {
            Mode::Exclusive => Form::Exclusive,
            _ => Form::Sharing,
        };
        Self {
            shared: shared.clone(),
            name: request.name().clone(),
            holder: request.holder(),
            token,
            reserved: terms.reserved(token),
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
        let locked_rows = &self.shared.locked_rows;
        let mut pauses = match locked_rows.contains(&self.name) {
            true => [].iter(),
            false => PAUSES.iter(),
        };
        loop {
            let renewal = HoldRenewal {
                name: name_bytes(&self.name).to_vec(),
                holder: self.holder.into(),
                ttl: as_micros(ttl),
                is_shared,
            };
            let renewed = self.shared.renew(renewal).await;
            match renewed.map_err(SqlError::into_lock_error)? {
                Renewed::At(sent) => {
                    locked_rows.remove(&self.name);
                    return Ok(Some(sent));
                }
                Renewed::Lost => return Ok(None),
                Renewed::Locked => {}
            }
            let Some(pause) = pauses.next() else {
                locked_rows.insert(&self.name);
                let message = "the lock's row is locked by others: see which transaction keeps it";
                return Err(Error::new(ErrorKind::Unavailable, message));
            };
            sleep(Duration::from_millis(*pause)).await;
        }
    }

    async fn try_downgrade(&self, ttl: Duration) -> Result<Renewal> {
        if matches!(self.lease.state(), HoldState::Lost(_)) {
            return Ok(Renewal::Lost);
        }
        // Until it is answered, the hold is one or the other.
        self.shared.downgrades.insert(self.holder);
        self.set_form(Form::Either);
        let sql = self
            .shared
            .statements
            .downgrade(&self.name, self.holder, self.token, ttl);
        let (sent, rows) = self.shared.keep(&self.name, &sql).await?;
        let (was_there, is_wanted) = flags(&rows);
        if !was_there {
            return Ok(Renewal::Lost);
        }
        self.set_form(Form::Sharing);
        if is_wanted {
            self.shared.call_over(&self.shared.keeping, &self.name).await;
        }
        Ok(Renewal::Renewed(self.lease.arm(sent, ttl)?))
    }

    async fn try_raise(&self, token: FencingToken) -> Result<()> {
        let is_raised = match self.form() {
            Form::Exclusive => self.raise_alone(token).await?,
            Form::Sharing => self.raise_shared(token).await?,
            // A downgrade that is under way ends the exclusive hold, and not the other way round.
            Form::Either => self.raise_alone(token).await? || self.raise_shared(token).await?,
        };
        match is_raised {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Lost,
                "the hold has ended, so its token was not raised",
            )),
        }
    }

    async fn raise_shared(&self, token: FencingToken) -> Result<bool> {
        let sql = self.shared.statements.raise_shared(&self.name, self.holder, token);
        let (_, rows) = self.shared.keep(&self.name, &sql).await?;
        Ok(flags(&rows).0)
    }

    async fn raise_alone(&self, token: FencingToken) -> Result<bool> {
        let connection = self.shared.keeping.connection().await?;
        let token = i64::try_from(token.as_u64()).unwrap_or(i64::MAX);
        let (name, holder) = (name_bytes(&self.name), Id::from(self.holder));
        let raise = &self.shared.statements.raise;
        let parameters: Parameters<'_> = &[&name, &holder, &token];
        let raising = connection.query(raise, parameters, self.shared.limit());
        match self.shared.with_row(&connection, &self.name, raising).await {
            Ok(rows) => Ok(!rows.is_empty()),
            Err(error) if error.is_missing_table() => Ok(false),
            Err(error) => Err(error.into_lock_error()),
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
