//! A hold: renew, release, pass, hand over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, HandOver, Hold, HolderId, Lease, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{FencingToken, HoldState, LockName, Result};

use super::{Shared, lock_error};
use crate::connection::Member;
use crate::error::{RequestError, SqlError};
use crate::protocol::lease_table::{LeaseRenewal, LeaseTerms, handed_over};
use crate::protocol::{Job, JobDone};

pub(super) struct LeaseHold {
    shared: Arc<Shared>,
    name: LockName,
    holder: HolderId,
    token: FencingToken,
    /// How many tokens are left, its own included.
    reserved: u32,
    lease: Lease,
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
        match self.shared.release(&self.name, self.holder, how.keep_for).await {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => Err(error.with_name(&self.name)),
        }
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let reserved = self.reserved.checked_sub(1).filter(|left| *left > 0)?;
        let token = FencingToken::new(self.token.as_u64() + 1)?;
        Some(Arc::new(Self {
            shared: self.shared.clone(),
            name: self.name.clone(),
            holder: self.holder,
            token,
            reserved,
            lease: next.clone(),
        }))
    }

    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        self.try_hand_over(next)
            .await
            .map_err(|error| error.with_name(&self.name))
    }
}

impl LeaseHold {
    pub(super) fn new(shared: &Arc<Shared>, request: &AcquireRequest, terms: &LeaseTerms, token: FencingToken) -> Self {
        Self {
            shared: shared.clone(),
            name: request.name().clone(),
            holder: request.holder(),
            token,
            reserved: terms.reserved(token),
            lease: request.lease().clone(),
        }
    }

    async fn try_renew(&self, ttl: Duration) -> Result<Renewal> {
        // The server keeps the hold a little longer than the lease lasts. A renewal must not revive the lease.
        if matches!(self.lease.state(), HoldState::Lost(_)) {
            return Ok(Renewal::Lost);
        }
        let keeping = &self.shared.keeping;
        keeping.open_in_background();
        let member = keeping.member(None).await?;
        let done = match self.renew_on(&member, ttl).await {
            // The server had closed it while it was idle.
            Err(error) if error.is_disconnect() && member.is_reused() => {
                let member = keeping.member(None).await?;
                self.renew_on(&member, ttl).await
            }
            done => done,
        };
        Ok(match done {
            Ok(done) if done.result.matched > 0 => Renewal::Renewed(self.lease.arm(done.sent, ttl)?),
            Ok(_) => Renewal::Lost,
            // The hold went with its table, which the next acquire makes anew.
            Err(error) if error.is_missing_table() => Renewal::Lost,
            Err(error) => return Err(error.into_lock_error()),
        })
    }

    async fn renew_on(&self, member: &Member, ttl: Duration) -> Result<JobDone, SqlError> {
        let renewal = LeaseRenewal {
            name: self.name.clone(),
            holder: self.holder,
            ttl,
        };
        let job = Job::Renew(self.shared.statements.clone(), renewal);
        // Whoever calls decides how long to wait.
        self.shared.run_job(&self.shared.keeping, member, job, None).await
    }

    async fn try_hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        let shared = &self.shared;
        // A late acquire of the giver would take the name after the next holder's release.
        shared.end_unanswered(self.holder).await?;
        let terms = LeaseTerms::new(next);
        let sql = shared
            .statements
            .hand_over(&self.name, self.holder, &terms, next.yields());
        next.sending();
        let done = match shared.keep_job(sql).await {
            Err(RequestError::Sql(error)) if error.is_missing_table() => return Ok(HandOver::AlreadyLost),
            done => done.map_err(lock_error)?,
        };
        let token = handed_over(&done.result).map_err(SqlError::into_lock_error)?;
        Ok(match token {
            Some(token) => {
                shared.claims.remove(self.holder);
                let armed = next.lease().arm(done.sent, terms.ttl)?;
                HandOver::Granted(Arc::new(Self::new(shared, next, &terms, token)), armed)
            }
            // It yields, or the hold is gone.
            None if next.yields() => match shared.release(&self.name, self.holder, None).await? {
                true => HandOver::Yielded,
                false => HandOver::AlreadyLost,
            },
            None => HandOver::AlreadyLost,
        })
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
