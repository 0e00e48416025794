//! Requests to a lock server, its answers, and its records.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::name_state::Wanted;
use crate::backend::{AcquireRequest, HolderId, rules};
use crate::sync::Arc;
use crate::sync::time::Instant;
use crate::token::FencingToken;

/// The time for which an abandoned id is remembered as dead.
const TOMBSTONE: Duration = Duration::from_secs(60);

/// The record of a grant.
#[derive(Clone, Debug)]
pub struct Grant<L> {
    /// The holder's label.
    pub label: Option<Arc<str>>,
    /// Its token: that of its grant, or a later one after a pass or a raise.
    pub token: FencingToken,
    /// The token of its grant.
    pub granted: FencingToken,
    /// The last of the tokens that are reserved for its passes.
    pub last_token: FencingToken,
    /// The time of the grant.
    pub since: Instant,
    /// Data of the particular server.
    pub with: L,
}

/// The record of a queue entry.
#[derive(Clone, Debug)]
pub struct Waiting<Q> {
    /// The waiter's label.
    pub label: Option<Arc<str>>,
    /// The time at which it entered the queue.
    pub since: Instant,
    /// Data of the particular server.
    pub with: Q,
}

/// A request to acquire.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The hold that it asks for.
    pub wanted: Wanted<HolderId>,
    /// For how long.
    pub ttl: Duration,
    /// As the holder calls itself.
    pub label: Option<Arc<str>>,
    /// Its token must be larger than this one.
    pub token_floor: Option<FencingToken>,
    /// Its token is at least this one, instead of the server's clock.
    pub token_at_least: Option<FencingToken>,
    /// The number of tokens that the grant reserves, its own included.
    pub reserve: u32,
}

/// The answer of a server to a request to acquire.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Held, with this token.
    Granted(FencingToken),
    /// Others hold the name or wait for it.
    Busy {
        /// The label of a holder.
        label: Option<Arc<str>>,
        /// The end of the hold that ends first unless it is renewed. `None`: the name is free, and another waiter's
        /// turn.
        expires: Option<Instant>,
    },
}

/// Ids that were abandoned, whose requests may come late.
#[derive(Debug, Default)]
pub struct Tombstones {
    dead: HashSet<HolderId>,
    by_age: VecDeque<(Instant, HolderId)>,
}

impl Tombstones {
    /// Returns whether requests of this id have no effect.
    pub fn contains(&self, holder: HolderId) -> bool {
        self.dead.contains(&holder)
    }

    /// Requests of this id have no effect from now on, for a minute at least.
    pub fn add(&mut self, holder: HolderId, now: Instant) {
        while let Some((until, dead)) = self.by_age.front()
            && *until <= now
        {
            self.dead.remove(dead);
            self.by_age.pop_front();
        }
        if self.dead.insert(holder) {
            self.by_age.push_back((now + TOMBSTONE, holder));
        }
    }

    /// Requests of this id have effect again.
    pub fn remove(&mut self, holder: HolderId) {
        if self.dead.remove(&holder) {
            // It may be added again, for a minute from then.
            self.by_age.retain(|(_, known)| *known != holder);
        }
    }
}

impl Acquire {
    /// As the request asks now.
    pub fn new(request: &AcquireRequest) -> Self {
        Self {
            wanted: Wanted {
                holder: request.holder(),
                mode: request.mode(),
                replaces: request.replaces(),
            },
            ttl: request.ttl(),
            label: request.label(),
            token_floor: request.token_floor(),
            token_at_least: request.token_at_least(),
            reserve: request.reserve(),
        }
    }
}

impl<L> Grant<L> {
    /// The record of a request that is granted this token now.
    pub fn new(acquire: &Acquire, token: FencingToken, now: Instant, with: L) -> Self {
        let last = token.as_u64().saturating_add(u64::from(acquire.reserve.max(1) - 1));
        Self {
            label: acquire.label.clone(),
            token,
            granted: token,
            last_token: FencingToken::new(last).unwrap_or(FencingToken::LAST),
            since: now,
            with,
        }
    }

    /// Returns whether the token is this grant's own, or one reserved with it.
    pub fn has_token(&self, token: FencingToken) -> bool {
        rules::has_token(self.granted, self.last_token.max(self.token), token)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_added_again_is_dead_for_a_minute_from_then() {
        let (holder, start) = (HolderId::random(), Instant::now());
        let mut dead = Tombstones::default();
        dead.add(holder, start);
        dead.remove(holder);
        assert!(!dead.contains(holder));
        dead.add(holder, start + TOMBSTONE / 2);
        dead.add(HolderId::random(), start + TOMBSTONE);
        assert!(dead.contains(holder));
        dead.add(HolderId::random(), start + TOMBSTONE * 3 / 2);
        assert!(!dead.contains(holder));
        assert_eq!(dead.by_age.len(), dead.dead.len(), "nothing piles up");
    }
}
