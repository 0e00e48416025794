//! The state that the backend and all its holds share, and how it ends whatever a holder id has.

use std::future::pending;
use std::time::Duration;

use lock_core::backend::{Change, HolderId, LockStatus};
use lock_core::{LockName, Result};
use lock_kit::claims::Claims;
use redis::Value;

use crate::config::RedisConfig;
use crate::names::Keys;
use crate::protocol::arguments::{EndArguments, StatusArguments, YES};
use crate::protocol::mode::EXCLUSIVE;
use crate::protocol::{self, millis, unexpected_reply};
use crate::servers::{Route, Servers};

/// The most waiters that a status shows. The server serves nobody else while it reads them, for about a millisecond.
const MOST_WAITERS: u32 = 1000;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    /// The server's address, for comparison with others.
    pub(crate) address: String,
    /// By the generations of connections.
    pub(crate) claims: Claims<u64>,
    pub(crate) restart_delay: Option<Duration>,
    pub(crate) grace: Duration,
    /// The same as the scripts take it.
    pub(crate) grace_ms: String,
}

/// The claims that a holder id gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End<'a> {
    /// Its hold. The name stays taken for this time.
    Release(Option<Duration>),
    /// Its exclusive hold, at once. The lock's key has this value if nothing has changed since the grant.
    ReleaseOf(&'a str),
    /// Its hold, an offer, its queue entry in this mode.
    Abandon(&'a str),
}

impl Client {
    /// Does no I/O.
    pub(crate) fn new(config: &RedisConfig) -> Result<Self> {
        Ok(Self {
            servers: Servers::new(config)?,
            prefix: config.prefix().into(),
            address: config.address(),
            claims: Claims::default(),
            restart_delay: config.restart_delay(),
            grace: config.grace(),
            grace_ms: millis(config.grace()),
        })
    }

    /// Returns the holders and waiters of the lock.
    pub(crate) async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let keys = Keys::new(&self.prefix, name);
        let mut route = self.servers.route(&keys, pending()).await?;
        let reply = self.read_status(&mut route, &keys, MOST_WAITERS).await?;
        protocol::status_with_waiters(&reply).ok_or_else(unexpected_reply)
    }

    /// The same, and what completes when it may have changed.
    pub(crate) async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        let keys = Keys::new(&self.prefix, name);
        let mut route = self.servers.route(&keys, pending()).await?;
        // First, so that no change falls between the two.
        let change = self.servers.follow(&route, &keys).await?;
        let reply = self.read_status(&mut route, &keys, 0).await?;
        Ok((protocol::status(&reply).ok_or_else(unexpected_reply)?, change))
    }

    async fn read_status(&self, route: &mut Route, keys: &Keys, most_waiters: u32) -> Result<Value> {
        let [lock, _fence, queue, ends, terms] = keys.all();
        let keys = [lock, queue, ends, terms];
        let arguments = StatusArguments {
            most_waiters: most_waiters.to_string().into(),
        };
        let status = &protocol::STATUS;
        let reply = self.servers.run(route, status, &keys, &arguments.all()).await;
        reply.map_err(|failure| route.lock_error(failure))
    }

    /// Ends whatever this holder id has or may still get. Returns whether it had the lock.
    pub(crate) async fn end(&self, keys: &Keys, holder: HolderId, how: End<'_>) -> Result<bool> {
        let mut route = self.servers.route(keys, pending()).await?;
        let id = holder.to_string();
        let mut arguments = self.end_arguments(keys, &id);
        let leaves_tombstone = self.claims.may_overtake(holder, &route.generation());
        if leaves_tombstone {
            arguments.leaves_tombstone = YES.into();
        }
        match how {
            // Its grant has removed the entry, and a hold is found in any mode.
            End::Release(keep_for) => arguments.keep_for = keep_for.map_or_else(String::new, millis).into(),
            End::ReleaseOf(_) if leaves_tombstone => {}
            End::ReleaseOf(value) => arguments.held = value.into(),
            End::Abandon(mode) => {
                arguments.mode = mode.into();
                arguments.inbox = self.servers.inbox(keys);
            }
        }
        let reply = self.servers.end(&mut route, keys, &arguments).await;
        let reply = reply.map_err(|failure| route.lock_error(failure))?;
        let ended = protocol::ended(&reply).ok_or_else(unexpected_reply)?;
        self.claims.remove(holder);
        if ended.more {
            // Boxed: seldom needed.
            Box::pin(self.wake_next(&mut route, keys, &id)).await;
        }
        Ok(ended.was_held)
    }

    /// Has the server search on for a waiter that is connected, behind many that are not. If that fails, the waiters find
    /// out by themselves when they refresh their entries.
    pub(crate) async fn wake_next(&self, route: &mut Route, keys: &Keys, id: &str) {
        let arguments = EndArguments {
            searches_on: YES.into(),
            ..self.end_arguments(keys, id)
        };
        loop {
            let reply = self.servers.end(route, keys, &arguments).await;
            let ended = reply.ok().and_then(|reply| protocol::ended(&reply));
            if ended.is_none_or(|ended| !ended.more) {
                return;
            }
        }
    }

    /// Those that end a hold and nothing else.
    fn end_arguments<'a>(&'a self, keys: &Keys, id: &'a str) -> EndArguments<'a> {
        EndArguments {
            held: id.into(),
            purpose_at: keys.purpose_at().to_string().into(),
            grace: (&*self.grace_ms).into(),
            mode: EXCLUSIVE.into(),
            ..EndArguments::default()
        }
    }
}
