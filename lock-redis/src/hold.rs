//! A hold, and how it ends.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, HandOver, Hold, HolderId, Lease, ReleaseOptions, ReleaseOutcome, Renewal, SentAt,
};
use lock_core::{FencingToken, LockName, Result};

use crate::client::{End, Server};
use crate::connection::{Session, Watched};
use crate::names::Keys;
use crate::protocol::{self, HandedOver, Terms, dead, millis, unexpected};

pub(crate) struct RedisHold {
    server: Arc<Server>,
    name: LockName,
    keys: Keys,
    holder: HolderId,
    token: FencingToken,
    lease: Lease,
    _watched: Watched,
}

#[async_trait]
impl Hold for RedisHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        self.try_renew(ttl).await.map_err(|error| error.with_name(&self.name))
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let end = End::Release(how.keep_for);
        match self.server.end(&self.keys, self.holder, end).await {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => Err(error.with_name(&self.name)),
        }
    }

    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        self.try_hand_over(next)
            .await
            .map_err(|error| error.with_name(&self.name))
    }
}

impl RedisHold {
    pub(crate) fn new(
        server: &Arc<Server>,
        keys: &Keys,
        request: &AcquireRequest,
        token: FencingToken,
        granted_on: &Session,
    ) -> Self {
        let (holder, lease) = (request.holder(), request.lease().clone());
        Self {
            server: server.clone(),
            name: request.name().clone(),
            keys: keys.clone(),
            holder,
            token,
            _watched: server.connection.watch_over(holder, &lease, granted_on),
            lease,
        }
    }

    async fn try_renew(&self, ttl: Duration) -> Result<Renewal> {
        let connection = &self.server.connection;
        let session = connection.session(pending()).await?;
        let arguments = [&*self.holder.to_string(), &*millis(ttl)];
        let sent = SentAt::now();
        match connection
            .run(&session, &protocol::RENEW, &[self.keys.lock()], &arguments)
            .await
        {
            Ok(answer) => match protocol::is_yes(&answer) {
                Some(true) => Ok(Renewal::Renewed(self.lease.arm(sent, ttl)?)),
                Some(false) => Ok(Renewal::Lost),
                None => Err(unexpected()),
            },
            Err(failed) if failed.is_wrong_type() => Ok(Renewal::Lost),
            Err(failed) => Err(connection.explain(failed)),
        }
    }

    async fn try_hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        let (server, connection) = (&self.server, &self.server.connection);
        let session = connection.session(pending()).await?;
        // A late acquire of the giver has to find a tombstone, which a release leaves. Whoever had nothing to release may
        // have handed it over before.
        if server.doubts.may_overtake(self.holder, session.generation())
            && server.end(&self.keys, self.holder, End::Release(None)).await?
        {
            return Ok(HandOver::Yielded);
        }
        let ttl = next.ttl();
        let (holder, giver, terms) = (next.holder().to_string(), self.holder.to_string(), Terms::of(next, ttl));
        let may_have_place = server.doubts.knows(next.holder()) || server.inbox.is_waiting(next.holder());
        let inbox = if may_have_place { server.inbox.channel() } else { "" };
        let arguments = [&*holder, &*terms.ttl, &*terms.label, &*terms.floor, &*giver, inbox];
        // Late, it finds the giver gone: so it needs no tombstone.
        let sent = next.sending();
        let answer = connection
            .run(&session, &protocol::HAND_OVER, &self.keys.all(), &arguments)
            .await;
        let answer = answer.map_err(|failed| connection.explain(failed))?;
        let handed_over = protocol::handed_over(&answer).ok_or_else(unexpected)?;
        if !matches!(handed_over, HandedOver::Dead) {
            server.doubts.settle(self.holder);
        }
        match handed_over {
            HandedOver::Granted(token) => {
                let armed = next.lease().arm(sent, ttl)?;
                let hold = Self::new(server, &self.keys, next, token, &session);
                Ok(HandOver::Granted(Arc::new(hold), armed))
            }
            HandedOver::NotTheGivers => Ok(HandOver::AlreadyLost),
            HandedOver::Dead => Err(dead()),
        }
    }
}

impl fmt::Debug for RedisHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisHold")
            .field("name", &self.name)
            .field("holder", &self.holder)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
