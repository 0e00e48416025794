//! A hold: renew, release, downgrade, pass.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Hold, HolderId, Lease, Mode, ReleaseOptions, ReleaseOutcome, Renewal, SentAt,
};
use lock_core::{Error, ErrorKind, FencingToken, HoldState, LockName, LostCause, Result};
use tokio::time::timeout;

use crate::client::{Client, End};
use crate::connection::{LeaseRegistration, Reply};
use crate::error::Failure;
use crate::names::Keys;
use crate::protocol::arguments::{
    AcquireArguments, DowngradeArguments, RaiseArguments, ReinstateArguments, RenewArguments, YES,
};
use crate::protocol::{self, millis, unexpected_reply};
use crate::servers::Route;
use grant::Grant;

mod grant;

/// A renewal waits for this part of the TTL for what follows it: core sends the next one after a sixth.
const CHANGED_WITHIN: u32 = 7;
/// And no longer than this.
const CHANGED_WITHIN_AT_MOST: Duration = Duration::from_secs(1);

pub(crate) struct RedisHold {
    client: Arc<Client>,
    name: LockName,
    keys: Keys,
    holder: HolderId,
    token: FencingToken,
    /// The number of reserved tokens that are left, this one included.
    reserved: u32,
    grant: Grant,
    /// The holder id of the hold that it replaced, if it was an upgrade.
    replaced: Option<HolderId>,
    /// True if nobody shares the name. Then the hold is renewed together with others.
    has_it_alone: AtomicBool,
    lease: Lease,
    _registration: LeaseRegistration,
}

/// The change that a request makes to a hold.
#[derive(Clone, Copy, Debug)]
enum Keep {
    Renewed,
    Downgraded,
}

#[async_trait]
impl Hold for RedisHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let renewal = self.keep(Keep::Renewed, ttl).await;
        if let Ok(Renewal::Lost) = renewal {
            self.note_revoked().await;
        }
        renewal.map_err(|error| error.with_name(&self.name))
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.try_release(how).await.map_err(|error| error.with_name(&self.name))
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let downgraded = self.keep(Keep::Downgraded, ttl).await;
        downgraded.map_err(|error| error.with_name(&self.name))
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        let raised = async {
            let route = self.client.servers.route(&self.keys, pending()).await?;
            self.raise(route, token).await
        };
        raised.await.map_err(|error| error.with_name(&self.name))
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
            grant: self.grant.clone(),
            replaced: self.replaced,
            has_it_alone: AtomicBool::new(self.has_it_alone.load(Ordering::Relaxed)),
            _registration: self.client.servers.pass_lease(&self.keys, self.holder, next),
            lease: next.clone(),
        }))
    }
}

impl RedisHold {
    /// The hold that a request was granted which was `sent` with these arguments, for this TTL.
    pub(crate) fn new(
        client: &Arc<Client>,
        keys: &Keys,
        request: &AcquireRequest,
        (sent, ttl): (&AcquireArguments<'_>, Duration),
        token: FencingToken,
        granted_on: &Route,
    ) -> Self {
        let (holder, lease) = (request.holder(), request.lease().clone());
        Self {
            client: client.clone(),
            name: request.name().clone(),
            keys: keys.clone(),
            holder,
            token,
            reserved: protocol::reserved(token, request.reserve()),
            grant: Grant::new(sent, ttl, request.replaces().is_some(), token),
            replaced: request.replaces(),
            has_it_alone: AtomicBool::new(request.mode() == Mode::Exclusive),
            _registration: client.servers.register_lease(keys, holder, &lease, granted_on),
            lease,
        }
    }

    /// If somebody revoked it, the loss says so.
    async fn note_revoked(&self) {
        if !matches!(self.lease.state(), HoldState::Lost(_)) && self.client.was_revoked(&self.keys, self.holder).await {
            self.lease.lose(LostCause::Revoked);
        }
    }

    async fn try_release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let client = &self.client;
        // The futures that are seldom needed are boxed: a release has no room for them.
        if let Some(replaced) = self.replaced {
            Box::pin(self.retire(replaced)).await?;
        }
        let mut route = client.servers.route(&self.keys, pending()).await?;
        if self.is_delayed() {
            Box::pin(self.remind(&mut route)).await?;
        }
        let value = self.grant.value(self.holder);
        let end = match (how.keep_for, &value) {
            (None, Some(value)) => End::ReleaseOf(value),
            (keep_for, _) => End::Release(keep_for),
        };
        if client.end(&self.keys, self.holder, end).await? {
            return Ok(ReleaseOutcome::Released);
        }
        Box::pin(self.check_forgotten(&route)).await?;
        Ok(ReleaseOutcome::AlreadyLost)
    }

    /// Makes sure that a late acquire of the upgraded hold finds a tombstone.
    async fn retire(&self, replaced: HolderId) -> Result<()> {
        let route = self.client.servers.route(&self.keys, pending()).await?;
        if self.client.claims.may_overtake(replaced, &route.generation()) {
            self.client.end(&self.keys, replaced, End::Release(None)).await?;
        }
        Ok(())
    }

    /// Keeps the hold for at least the TTL, or finds it lost.
    async fn keep(&self, how: Keep, ttl: Duration) -> Result<Renewal> {
        let servers = &self.client.servers;
        let mut route = servers.route(&self.keys, pending()).await?;
        let sent = SentAt::now();
        let mut is_kept = self.run(&mut route, how, ttl).await?;
        if !is_kept && self.may_be_forgotten() {
            // Boxed: seldom needed.
            if route.delayed_until().is_none() {
                Box::pin(servers.check_data(&route)).await?;
            } else if Box::pin(self.reinstate(&mut route, ttl)).await? {
                is_kept = self.run(&mut route, how, ttl).await?;
            }
        }
        if !is_kept {
            return Ok(Renewal::Lost);
        }
        if let Keep::Downgraded = how {
            self.note_downgraded(route.generation());
        }
        servers.acknowledge(&route, &self.keys, ttl).await?;
        let armed = self.lease.arm(sent, ttl)?;
        if let Keep::Renewed = how
            && self.grant.is_to_be_changed_over(route.generation())
        {
            // Boxed: seldom needed.
            Box::pin(self.change_again(route, ttl)).await?;
        }
        Ok(Renewal::Renewed(armed))
    }

    fn note_downgraded(&self, generation: u64) {
        self.grant.downgraded_over(generation);
        self.has_it_alone.store(false, Ordering::Relaxed);
    }

    /// Downgrades the hold and raises its token again, after another connection has taken the place of that over which it was: its
    /// server may know the hold and have forgotten this. The renewal before it counts if this is not executed, as while the slot is
    /// being moved, or takes long. Then the next renewal repeats it.
    async fn change_again(&self, mut route: Route, ttl: Duration) -> Result<()> {
        let change = async {
            let generation = route.generation();
            if self.grant.is_to_be_downgraded_over(generation) && self.run(&mut route, Keep::Downgraded, ttl).await? {
                self.note_downgraded(route.generation());
            }
            match self.grant.raised_to() {
                Some(token) if self.grant.is_to_be_raised_over(generation) => self.raise(route, token).await,
                _ => Ok(()),
            }
        };
        match timeout((ttl / CHANGED_WITHIN).min(CHANGED_WITHIN_AT_MOST), change).await {
            Ok(Err(error)) if !error.is_not_executed() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether the server has the hold.
    async fn run(&self, route: &mut Route, how: Keep, ttl: Duration) -> Result<bool> {
        let (holder, ttl) = (self.holder.to_string().into(), millis(ttl).into());
        let reply = match how {
            Keep::Renewed => self.run_renewal(route, &RenewArguments { holder, ttl }).await,
            Keep::Downgraded => {
                let (servers, keys) = (&self.client.servers, self.keys.all());
                let arguments = DowngradeArguments {
                    holder,
                    ttl,
                    grace: (&*self.client.grace_ms).into(),
                    reserves: self.reserves().into(),
                };
                servers.run(route, &protocol::DOWNGRADE, &keys, &arguments.all()).await
            }
        };
        match reply {
            Ok(reply) => protocol::renewed(&reply).ok_or_else(unexpected_reply),
            Err(failure) if failure.is_wrong_type() => Ok(false),
            Err(failure) => Err(route.lock_error(failure)),
        }
    }

    /// With no key that may be missing: as long as its slot is being moved, a server refuses a script with several keys if it
    /// does not have all of them, and a hold may not live so long.
    async fn run_renewal(&self, route: &mut Route, arguments: &RenewArguments<'_>) -> Reply {
        let (servers, arguments) = (&self.client.servers, &arguments.all());
        // The server may have forgotten the downgrade, or have executed it without an answer.
        let may_be_exclusive =
            self.has_it_alone.load(Ordering::Relaxed) || self.grant.is_to_be_downgraded_over(route.generation());
        if may_be_exclusive {
            let reply = servers.run(route, &protocol::RENEW, &self.keys.lock(), arguments).await;
            if !reply.as_ref().is_ok_and(protocol::is_of_shared) {
                return reply;
            }
        }
        let over = route.generation();
        let reply = servers
            .run(route, &protocol::RENEW, &self.keys.of_shared(), arguments)
            .await;
        if may_be_exclusive && reply.as_ref().is_ok_and(|reply| protocol::renewed(reply) == Some(true)) {
            self.note_downgraded(over);
        }
        reply
    }

    async fn raise(&self, mut route: Route, token: FencingToken) -> Result<()> {
        let servers = &self.client.servers;
        let arguments = RaiseArguments {
            holder: self.holder.to_string().into(),
            token: token.to_string().into(),
        };
        let reply = servers
            .run(&mut route, &protocol::RAISE, &self.keys.all(), &arguments.all())
            .await;
        match protocol::renewed(&reply.map_err(|failure| route.lock_error(failure))?) {
            Some(true) => {
                self.grant.raised(token);
                servers.acknowledge(&route, &self.keys, self.lease.valid_for()).await?;
                self.grant.raised_over(route.generation());
                Ok(())
            }
            Some(false) => Err(Error::new(
                ErrorKind::Lost,
                "the hold has ended, so its token was not raised",
            )),
            None => Err(unexpected_reply()),
        }
    }

    /// True if the hold lives, so that a server that does not know it may have forgotten it. If that server's restart
    /// delay is not over, nobody else was granted the name meanwhile: the delay is longer than the TTL.
    fn may_be_forgotten(&self) -> bool {
        self.client.restart_delay.is_some() && matches!(self.lease.state(), HoldState::Held | HoldState::Suspect)
    }

    /// Puts a hold that [`is_delayed`](Self::is_delayed) back where the server may have forgotten it, so that whatever ends it finds it.
    async fn remind(&self, route: &mut Route) -> Result<()> {
        if route.delayed_until().is_some() {
            // If it is there, or somebody else has the name, nothing changes. It is ended at once, unless this process is cut off in between.
            self.reinstate(route, self.grant.ttl()).await?;
        }
        Ok(())
    }

    /// Makes sure that a server that does not know the hold has not forgotten it.
    async fn check_forgotten(&self, route: &Route) -> Result<()> {
        match self.is_delayed() && route.delayed_until().is_none() {
            true => self.client.servers.check_data(route).await,
            false => Ok(()),
        }
    }

    /// True if the hold had not ended when its release began. A server that forgets it then grants nothing until it has
    /// ended.
    fn is_delayed(&self) -> bool {
        self.client.restart_delay.is_some() && !matches!(self.lease.state(), HoldState::Lost(_))
    }

    /// As the scripts take it.
    fn reserves(&self) -> &'static str {
        if self.grant.reserves() { YES } else { "" }
    }

    /// Has the server remember the hold. Returns false if somebody else has the name.
    async fn reinstate(&self, route: &mut Route, ttl: Duration) -> Result<bool> {
        let arguments = ReinstateArguments {
            holder: self.holder.to_string().into(),
            ttl: millis(ttl).into(),
            label: self.grant.label().into(),
            token: self.grant.stored_token().to_string().into(),
            mode: self.grant.mode().into(),
            own_last: self.grant.last_token().to_string().into(),
            reserves: self.reserves().into(),
        };
        // One that comes late must not bring a released hold back.
        let in_flight = self.client.claims.sending(self.holder, route.generation());
        let servers = &self.client.servers;
        let reply = servers
            .run(route, &protocol::REINSTATE, &self.keys.all(), &arguments.all())
            .await;
        if reply.as_ref().err().is_none_or(Failure::is_reply) {
            in_flight.answered();
        }
        let reply = reply.map_err(|failure| route.lock_error(failure))?;
        protocol::renewed(&reply).ok_or_else(unexpected_reply)
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
