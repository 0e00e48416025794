//! A hold: renew, release, downgrade, hand over.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future;
use lock_core::backend::{
    AcquireRequest, HandOver, Hold, HolderId, Lease, ReleaseOptions, ReleaseOutcome, Renewal, SentAt,
};
use lock_core::{FencingToken, LockName, Result};

use crate::client::{Client, End};
use crate::connection::{LeaseRegistration, Session};
use crate::names::Keys;
use crate::protocol::{self, HandedOver, RequestTerms, Script, millis, retired_holder, unexpected_reply};

pub(crate) struct RedisHold {
    client: Arc<Client>,
    name: LockName,
    keys: Keys,
    holder: HolderId,
    token: FencingToken,
    /// How many tokens are left, its own included.
    reserved: u32,
    /// The holder id of the hold that it replaced, if it was an upgrade.
    replaced: Option<HolderId>,
    lease: Lease,
    _registration: LeaseRegistration,
}

#[async_trait]
impl Hold for RedisHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let arguments = [&*self.holder.to_string(), &*millis(ttl)];
        let renewed = self.keep(&protocol::RENEW, &arguments, ttl).await;
        renewed.map_err(|error| error.with_name(&self.name))
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.try_release(how).await.map_err(|error| error.with_name(&self.name))
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let arguments = [&*self.holder.to_string(), &*millis(ttl), &*self.client.grace_ms];
        let downgraded = self.keep(&protocol::DOWNGRADE, &arguments, ttl).await;
        downgraded.map_err(|error| error.with_name(&self.name))
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let reserved = self.reserved.checked_sub(1).filter(|left| *left > 0)?;
        let token = FencingToken::new(self.token.as_u64() + 1)?;
        Some(Arc::new(Self {
            client: self.client.clone(),
            name: self.name.clone(),
            keys: self.keys.clone(),
            holder: self.holder,
            token,
            reserved,
            replaced: self.replaced,
            _registration: self.client.connection.pass_lease(self.holder, next),
            lease: next.clone(),
        }))
    }

    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        self.try_hand_over(next)
            .await
            .map_err(|error| error.with_name(&self.name))
    }
}

impl RedisHold {
    pub(crate) fn new(
        client: &Arc<Client>,
        keys: &Keys,
        request: &AcquireRequest,
        token: FencingToken,
        granted_on: &Session,
    ) -> Self {
        let (holder, lease) = (request.holder(), request.lease().clone());
        Self {
            client: client.clone(),
            name: request.name().clone(),
            keys: keys.clone(),
            holder,
            token,
            reserved: protocol::reserved(token, request.reserve()),
            replaced: request.replaces(),
            _registration: client.connection.register_lease(holder, &lease, granted_on),
            lease,
        }
    }

    async fn try_release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let client = &self.client;
        if let Some(replaced) = self.replaced {
            // A late acquire of the upgraded hold has to find a tombstone.
            let session = client.connection.session(pending()).await?;
            if client.claims.may_overtake(replaced, session.generation()) {
                client.end(&self.keys, replaced, End::Release(None)).await?;
            }
        }
        Ok(
            match client.end(&self.keys, self.holder, End::Release(how.keep_for)).await? {
                true => ReleaseOutcome::Released,
                false => ReleaseOutcome::AlreadyLost,
            },
        )
    }

    /// Runs a script that keeps the hold for at least the TTL, or finds it lost.
    async fn keep(&self, script: &'static Script, arguments: &[&str], ttl: Duration) -> Result<Renewal> {
        let connection = &self.client.connection;
        let session = connection.session(pending()).await?;
        let sent = SentAt::now();
        match connection.run(&session, script, &self.keys.all(), arguments).await {
            Ok(reply) => match protocol::renewed(&reply) {
                Some(true) => Ok(Renewal::Renewed(self.lease.arm(sent, ttl)?)),
                Some(false) => Ok(Renewal::Lost),
                None => Err(unexpected_reply()),
            },
            Err(failure) if failure.is_wrong_type() => Ok(Renewal::Lost),
            Err(failure) => Err(connection.lock_error(failure)),
        }
    }

    async fn try_hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        let (client, connection) = (&self.client, &self.client.connection);
        let session = connection.session(pending()).await?;
        // A late acquire of the giver has to find a tombstone, which a release leaves. If there was nothing to release, an
        // earlier hand-over may have succeeded: it is repeated.
        if client.claims.may_overtake(self.holder, session.generation())
            && client.end(&self.keys, self.holder, End::Release(None)).await?
        {
            return Ok(HandOver::Yielded);
        }
        let ttl = next.ttl();
        let (holder, giver, terms) = (
            next.holder().to_string(),
            self.holder.to_string(),
            RequestTerms::new(next, ttl),
        );
        let may_have_entry = client.claims.contain(next.holder()) || client.inbox.has_waiter(next.holder());
        let inbox = if may_have_entry { client.inbox.channel() } else { "" };
        let yields = if next.yields() { "1" } else { "" };
        let arguments = [
            &*holder,
            &*terms.ttl,
            &*terms.label,
            &*terms.floor,
            &*giver,
            inbox,
            yields,
        ];
        // If it arrives late, the giver's hold is gone: so it needs no tombstone.
        let sent = next.sending();
        let keys = self.keys.all();
        let handing_over = connection.run(&session, &protocol::HAND_OVER, &keys[..3], &arguments);
        let (reply, released) = future::join(handing_over, self.release_unless_given(next.yields())).await;
        // The hand-over yielded. Or it came too late, because the server had to be given the script.
        if let Ok(true) = released {
            return Ok(HandOver::Yielded);
        }
        let reply = match reply.map_err(|failure| connection.lock_error(failure)) {
            // It was not executed, but the release may have been.
            Err(error) if error.is_not_executed() => return Err(released.err().unwrap_or(error)),
            reply => reply?,
        };
        let handed_over = protocol::handed_over(&reply).ok_or_else(unexpected_reply)?;
        if !matches!(handed_over, HandedOver::NextRetired | HandedOver::Yields) {
            client.claims.remove(self.holder);
        }
        match handed_over {
            HandedOver::Granted(token) => {
                let armed = next.lease().arm(sent, ttl)?;
                let hold = Self::new(client, &self.keys, next, token, &session);
                Ok(HandOver::Granted(Arc::new(hold), armed))
            }
            HandedOver::NextRetired => Err(retired_holder()),
            HandedOver::NotHeld | HandedOver::Yields => released.map(|_| HandOver::AlreadyLost),
        }
    }

    /// Sent right behind a hand-over that may yield: if it does, this releases the hold without another round trip. If it does
    /// not, the giver has nothing any more. Returns whether it did.
    async fn release_unless_given(&self, may_yield: bool) -> Result<bool> {
        match may_yield {
            true => self.client.end(&self.keys, self.holder, End::Release(None)).await,
            false => Ok(false),
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
