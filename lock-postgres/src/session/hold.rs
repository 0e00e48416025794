//! A hold: an advisory lock of a session whose heartbeats renew the lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Hold, Lease, ReleaseOptions, ReleaseOutcome, Renewal, SentAt};
use lock_core::{Error, ErrorKind, FencingToken, HoldState, Result};

use super::carrier::Moment;
use super::claims::{Claim, Form};
use super::{Shared, within};
use crate::error::SqlError;
use crate::names::{label_bytes, literal, name_bytes};
use crate::protocol::terms::signed;

pub(super) struct SessionHold {
    pub(super) shared: Arc<Shared>,
    pub(super) claim: Arc<Claim>,
    pub(super) token: FencingToken,
    /// The number of tokens that are left, its own included.
    reserved: u32,
    pub(super) label: Option<Vec<u8>>,
    lease: Lease,
    is_fixed: bool,
}

impl SessionHold {
    pub(super) fn new(
        shared: Arc<Shared>,
        claim: Arc<Claim>,
        request: &AcquireRequest,
        (token, reserved): (FencingToken, u32),
    ) -> Self {
        claim.change(|state| state.handles += 1);
        Self {
            shared,
            claim,
            token,
            reserved,
            label: label_bytes(request.label().as_deref()).map(<[u8]>::to_vec),
            lease: request.lease().clone(),
            is_fixed: request.is_fixed(),
        }
    }

    /// Arms the lease by an answer of the session. `None`: the hold has ended.
    pub(super) fn arm(&self, moment: Moment, ttl: Duration) -> Result<Renewal> {
        let fixed: Option<(SentAt, Duration)> = self.is_fixed.then_some((moment.sent, ttl));
        match self.claim.session.bind(self.claim.holder, &self.lease, moment, fixed) {
            Ok(armed) => Ok(Renewal::Renewed(armed)),
            Err(_) if self.has_ended() => Ok(Renewal::Lost),
            Err(error) => Err(error),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.claim.session.has_ended()
            || self.claim.state().is_releasing
            || matches!(self.lease.state(), HoldState::Lost(_))
    }

    async fn try_release(&self) -> Result<ReleaseOutcome> {
        let (shared, claim) = (&self.shared, &self.claim);
        let was_sent = claim.begin_release();
        if claim.session.has_ended() {
            if was_sent {
                // It is not known whether that came in time; now it is over in any case.
                shared.end_session(&claim.session).await?;
            }
            shared.claims.forget(claim);
            return Ok(ReleaseOutcome::AlreadyLost);
        }
        let mut is_over = claim.gate.lock().await;
        if *is_over {
            return Ok(ReleaseOutcome::AlreadyLost);
        }
        let was_locked = match shared.unlock(claim, claim.state().form).await {
            Ok(was_locked) => was_locked,
            Err(SqlError::NotConnected) if !was_sent => false,
            // Nobody drives its runtime, so nobody renews it either.
            Err(SqlError::RuntimeNotDriven) if claim.session.carries_only(claim.holder) => {
                shared.end_session(&claim.session).await?;
                true
            }
            Err(error) => return Err(error.into_lock_error()),
        };
        *is_over = true;
        shared.claims.forget(claim);
        // One that was sent before was answered by nobody.
        Ok(match was_locked || (was_sent && !claim.session.has_ended()) {
            true => ReleaseOutcome::Released,
            false => ReleaseOutcome::AlreadyLost,
        })
    }

    async fn try_raise(&self, token: FencingToken) -> Result<()> {
        let lost = || Error::new(ErrorKind::Lost, "the hold has ended, so its token was not raised");
        if self.has_ended() {
            return Err(lost());
        }
        let statements = self.shared.statements().await?;
        let connection = &self.claim.session.connection;
        let name = literal(name_bytes(&self.claim.name));
        let raise = statements.raise(&connection.mark, &name, signed(token.as_u64()));
        let raised = match within(self.shared.limit(), connection.run(&raise, None)).await {
            Err(SqlError::NotConnected) => return Err(lost()),
            raised => raised.map_err(SqlError::into_lock_error)?,
        };
        if raised.is_empty() {
            return Err(lost());
        }
        let durable = self.shared.ask(&statements.make_durable(&name)).await;
        durable.map(drop).map_err(SqlError::into_lock_error)
    }
}

#[async_trait]
impl Hold for SessionHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    /// Asks whether the session is still there. The session renews the hold; a TTL beyond its timeout has no effect.
    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        if self.has_ended() {
            return Ok(Renewal::Lost);
        }
        let asked = self.shared.ping(&self.claim).await;
        match asked.map_err(|error| error.into_lock_error().with_name(&self.claim.name))? {
            Some(moment) => self.arm(moment, ttl).map_err(|error| error.with_name(&self.claim.name)),
            None => Ok(Renewal::Lost),
        }
    }

    async fn release(&self, _how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.try_release()
            .await
            .map_err(|error| error.with_name(&self.claim.name))
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let downgraded = self.try_downgrade(ttl).await;
        downgraded.map_err(|error| error.with_name(&self.claim.name))
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        let raised = self.try_raise(token).await;
        raised.map_err(|error| error.with_name(&self.claim.name))
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let reserved = self.reserved.checked_sub(1).filter(|left| *left > 0)?;
        let token = FencingToken::new(self.token.as_u64() + 1)?;
        let (claim, session) = (&self.claim, &self.claim.session);
        let state = claim.state();
        if state.is_releasing || state.form != Form::Exclusive || !session.replace_lease(claim.holder, next) {
            return None;
        }
        claim.change(|state| state.handles += 1);
        Some(Arc::new(Self {
            shared: self.shared.clone(),
            claim: claim.clone(),
            token,
            reserved,
            label: self.label.clone(),
            lease: next.clone(),
            is_fixed: self.is_fixed,
        }))
    }
}

impl Drop for SessionHold {
    fn drop(&mut self) {
        if !self.claim.drop_handle() {
            return;
        }
        let session = &self.claim.session;
        if session.has_ended() {
            self.shared.claims.forget(&self.claim);
        } else {
            session.drop_hold(self.claim.holder, self.is_fixed);
        }
    }
}

impl fmt::Debug for SessionHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionHold")
            .field("name", &self.claim.name)
            .field("token", &self.token)
            .field("session", &self.claim.session)
            .finish_non_exhaustive()
    }
}
