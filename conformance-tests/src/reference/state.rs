//! The state of the server.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{HolderId, Mode, rules};
use lock_core::memory::{Acquire, Grant, HoldRecord, LockServer, ServerName};
use lock_core::{FencingToken, LockName};
use tokio::time::Instant;

use crate::mutant::Mutant;

/// A name at the server. With a hold that is nobody's stands whose it was, for the mutants that go by it.
pub(super) type Name = ServerName<Option<HolderId>, ()>;
/// A hold at the server.
pub(super) type Hold = HoldRecord<HolderId, Instant, Grant<Option<HolderId>>>;

#[derive(Default)]
pub(super) struct State {
    pub(super) down: bool,
    /// The number of times that the server has started again.
    pub(super) restarts: u64,
    pub(super) server: LockServer<Option<HolderId>, ()>,
    pub(super) notes: Notes,
}

/// Notes that only mutants read.
#[derive(Default)]
pub(super) struct Notes {
    /// Every name that was ever asked for.
    pub(super) asked: BTreeSet<LockName>,
    /// When the hold of each name that was released last would have ended.
    pub(super) last_end: HashMap<LockName, Instant>,
    /// The token of each holder's first request.
    pub(super) asked_tokens: HashMap<HolderId, u64>,
    /// The permits that came back when they expired, and those that came back once more.
    pub(super) expired_permits: HashMap<HolderId, u32>,
    pub(super) surplus: u32,
    /// Whose holds were revoked.
    pub(super) revoked: HashSet<HolderId>,
}

/// A client's request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) name: LockName,
    pub(super) acquire: Acquire,
    pub(super) waits: bool,
    /// Whether its client has counted the permits itself, as one mutant's does.
    pub(super) is_counted: bool,
}

/// The server's reply.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Granted(FencingToken),
    Busy {
        label: Option<Arc<str>>,
        expires_in: Duration,
    },
}

impl Request {
    pub(super) fn holder(&self) -> HolderId {
        self.acquire.wanted.holder
    }

    pub(super) fn mode(&self) -> Mode {
        self.acquire.wanted.mode
    }

    pub(super) fn with_ttl(&self, ttl: Duration) -> Self {
        let mut request = self.clone();
        request.acquire.ttl = ttl;
        request
    }
}

impl State {
    /// The hold of this holder id.
    pub(super) fn hold_of(&mut self, name: &LockName, holder: HolderId) -> Option<&mut Hold> {
        self.server.names.get_mut(name)?.hold_of(holder)
    }

    /// The holds of a name.
    pub(super) fn holds(&mut self, name: &LockName) -> impl Iterator<Item = &mut Hold> {
        self.server
            .names
            .get_mut(name)
            .into_iter()
            .flat_map(|name| &mut name.holds)
    }

    /// Ends the holds that do not stay.
    pub(super) fn keep_only(&mut self, name: &LockName, now: Instant, stays: impl Fn(&Hold) -> bool) {
        self.server.change(name, now, |name| name.holds.retain(stays));
    }

    /// A hold in this mode from now on, for the mutants that bring back what has ended.
    pub(super) fn bring_back(&mut self, name: &LockName, request: &Request, mode: Mode, now: Instant) {
        let Some(token) = FencingToken::new(self.server.last_token.max(1)) else {
            return;
        };
        let state = self.server.names.entry(name.clone()).or_default();
        state.holds.push(HoldRecord {
            holder: request.holder(),
            mode,
            expires: now + request.acquire.ttl,
            grant: Grant::new(&request.acquire, token, now, None),
            replaced: None,
        });
    }

    /// Before the server looks for holds that have expired.
    pub(super) fn before_expiry(&mut self, mutant: Option<Mutant>, name: &LockName, now: Instant) {
        let expire_together = |mode| match mutant {
            Some(Mutant::ReadersExpireTogether) => matches!(mode, Mode::Shared | Mode::Upgradable),
            Some(Mutant::PermitsExpireTogether) => matches!(mode, Mode::Permits(_)),
            _ => false,
        };
        let last = self.holds(name).map(|hold| hold.expires).max();
        for hold in self.holds(name).filter(|hold| expire_together(hold.mode)) {
            hold.expires = last.unwrap_or(now);
        }
        let expired = self.holds(name).filter_map(|hold| match hold.mode {
            Mode::Permits(permits) if rules::has_expired(hold.expires, now) => Some((hold.holder, permits.take())),
            _ => None,
        });
        let expired: Vec<_> = expired.collect();
        self.notes.expired_permits.extend(expired);
    }

    /// Counts permits once more that came back when they expired. One mutant goes by that.
    pub(super) fn come_back_again(&mut self, holder: HolderId) {
        self.notes.surplus += self.notes.expired_permits.remove(&holder).unwrap_or(0);
    }

    /// Ends the hold of the oldest name that is held, if there are more names than the mutant's server keeps.
    pub(super) fn evict_oldest(&mut self) {
        const KEPT: usize = 50;
        if self.notes.asked.len() > KEPT
            && let Some(oldest) = (self.server.names.values_mut())
                .filter(|name| !name.holds.is_empty())
                .min_by_key(|name| name.holds[0].grant.granted)
        {
            oldest.holds.clear();
        }
    }
}
