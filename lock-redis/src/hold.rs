//! A hold, and how it ends.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, HandOver, Hold, HolderId, Lease, ReleaseOptions, ReleaseOutcome, Renewal, SentAt,
};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};

use crate::acquire::{Terms, dead};
use crate::claims::Doubts;
use crate::connection::inbox::Inbox;
use crate::connection::{Connection, Session, Watched};
use crate::names::Keys;
use crate::protocol;
use crate::protocol::reply::{self, HandedOver};

/// What a backend and its holds share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) connection: Connection,
    pub(crate) prefix: String,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) doubts: Doubts,
    pub(crate) grace: Duration,
    pub(crate) grace_ms: String,
}

pub(crate) struct RedisHold {
    server: Arc<Server>,
    name: LockName,
    keys: Keys,
    holder: HolderId,
    token: FencingToken,
    lease: Lease,
    _watched: Watched,
}

/// In which way whatever a holder id has ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// A hold, of which the name stays taken for so long.
    Release(Option<Duration>),
    /// A hold, an offer, a place.
    Abandon,
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
            Ok(answer) => match reply::is_yes(&answer) {
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
        let handed_over = reply::handed_over(&answer).ok_or_else(unexpected)?;
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

impl Server {
    /// Ends whatever this holder id has or may still get. Whether it had the lock.
    pub(crate) async fn end(&self, keys: &Keys, holder: HolderId, how: End) -> Result<bool> {
        let session = self.connection.session(pending()).await?;
        let id = holder.to_string();
        let keep_for = match how {
            End::Release(Some(rest)) => millis(rest),
            _ => String::new(),
        };
        let inbox = match how {
            // A grant has ended the place.
            End::Release(_) => "",
            End::Abandon => self.inbox.channel(),
        };
        let tombstone = match self.doubts.may_overtake(holder, session.generation()) {
            true => "1",
            false => "",
        };
        let arguments = [&*id, &*self.grace_ms, inbox, &*keep_for, tombstone];
        let answer = self
            .connection
            .run(&session, &protocol::END, &keys.all(), &arguments)
            .await;
        let answer = answer.map_err(|failed| self.connection.explain(failed))?;
        let ended = reply::ended(&answer).ok_or_else(unexpected)?;
        self.doubts.settle(holder);
        if ended.more {
            self.look_on(&session, keys, &id).await;
        }
        Ok(ended.had_it)
    }

    /// Has the server look on for somebody who waits, behind many that are dead. Should it fail, those who wait look by
    /// themselves when they refresh their places.
    async fn look_on(&self, session: &Session, keys: &Keys, id: &str) {
        let arguments = [id, &*self.grace_ms, "", "", "", "more"];
        loop {
            let answer = self
                .connection
                .run(session, &protocol::END, &keys.all(), &arguments)
                .await;
            let ended = answer.ok().and_then(|answer| reply::ended(&answer));
            if ended.is_none_or(|ended| !ended.more) {
                return;
            }
        }
    }
}

/// As the server counts: whole milliseconds, never less than asked for.
pub(crate) fn millis(ttl: Duration) -> String {
    ttl.as_nanos().div_ceil(1_000_000).to_string()
}

pub(crate) fn unexpected() -> Error {
    let what = "Redis answered a script with something that it cannot answer: is a proxy in between?";
    Error::new(ErrorKind::Unexpected, what)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_never_shortened() {
        assert_eq!(millis(Duration::from_millis(10)), "10");
        assert_eq!(millis(Duration::from_nanos(10_000_001)), "11");
        assert_eq!(millis(Duration::from_secs(365 * 24 * 3600)), "31536000000");
    }
}
