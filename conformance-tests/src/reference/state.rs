//! What the server remembers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{HolderId, HolderStatus, LockStatus, Mode, WaiterStatus};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::time::Instant;

use crate::mutant::Mutant;

#[derive(Default)]
pub(super) struct State {
    pub(super) down: bool,
    pub(super) names: HashMap<String, Entry>,
    /// Ids that were released or abandoned.
    pub(super) dead: HashSet<HolderId>,
}

impl State {
    /// Ends the hold of the oldest name that is held, if there are more names than the mutant's server keeps.
    pub(super) fn evict_oldest(&mut self) {
        const KEPT: usize = 50;
        if self.names.len() > KEPT
            && let Some(oldest) = (self.names.values_mut())
                .filter(|entry| !entry.holds.is_empty())
                .min_by_key(|entry| entry.last_token)
        {
            oldest.holds.clear();
        }
    }
}

#[derive(Default)]
pub(super) struct Entry {
    pub(super) holds: Vec<Hold>,
    pub(super) queue: VecDeque<QueueEntry>,
    pub(super) last_token: u64,
    /// When the hold that was released last would have ended, for the mutant that keeps that.
    pub(super) last_end: Option<Instant>,
    /// The token of each holder's first request, for the mutant that grants it.
    pub(super) asked_tokens: HashMap<HolderId, u64>,
    /// The permits that came back when they expired, and those that came back once more, for the mutant that counts them.
    pub(super) expired_permits: HashMap<HolderId, u32>,
    pub(super) surplus: u32,
    /// Whose holds were revoked, for the mutant whose releases go by it.
    pub(super) revoked: HashSet<HolderId>,
}

#[derive(Clone)]
pub(super) struct Hold {
    pub(super) holder: HolderId,
    pub(super) mode: Mode,
    /// Who released it to be kept, for the mutants that go by it.
    pub(super) former: Option<HolderId>,
    pub(super) label: Option<Arc<str>>,
    pub(super) token: FencingToken,
    /// How many tokens were reserved with it, its own included.
    pub(super) reserved: u32,
    pub(super) expires: Instant,
}

/// A waiter, which leaves the queue if it sends nothing until then.
pub(super) struct QueueEntry {
    pub(super) holder: HolderId,
    pub(super) mode: Mode,
    /// Whether it upgrades a hold.
    pub(super) is_upgrade: bool,
    until: Instant,
}

/// A client's request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) mode: Mode,
    pub(super) holder: HolderId,
    /// Whose hold it upgrades.
    pub(super) replaces: Option<HolderId>,
    pub(super) ttl: Duration,
    pub(super) label: Option<Arc<str>>,
    pub(super) floor: Option<FencingToken>,
    /// The token that its grant is to have, without the clock.
    pub(super) at_least: Option<FencingToken>,
    pub(super) waits: bool,
    /// How many tokens a grant reserves, its own included.
    pub(super) reserve: u32,
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
    /// The hold that it asks for.
    pub(super) fn hold(&self, token: FencingToken, now: Instant) -> Hold {
        Hold {
            holder: self.holder,
            mode: self.mode,
            former: None,
            label: self.label.clone(),
            token,
            reserved: self.reserve,
            expires: now + self.ttl,
        }
    }
}

impl Hold {
    /// Whether this is its token, or one for its passes.
    pub(super) fn has_token(&self, token: FencingToken) -> bool {
        (self.token.as_u64()..self.token.as_u64() + u64::from(self.reserved)).contains(&token.as_u64())
    }
}

impl Entry {
    /// Without what has ended by now.
    pub(super) fn forget_what_ended(&mut self, mutant: Option<Mutant>, now: Instant) {
        let ended = |entry: &Self, hold: &Hold| entry.end_of(mutant, hold) <= now;
        while let Some(index) = self.holds.iter().position(|hold| ended(self, hold)) {
            let hold = self.holds.remove(index);
            if let Mode::Permits(permits) = hold.mode {
                self.expired_permits.insert(hold.holder, permits.take());
            }
        }
        let stays =
            |waiter: &QueueEntry| mutant == Some(Mutant::DeadWriterStopsReaders) && waiter.mode == Mode::Exclusive;
        self.queue.retain(|waiter| waiter.until > now || stays(waiter));
    }

    pub(super) fn hold_of(&mut self, holder: HolderId) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.holder == holder)
    }

    /// The first hold of this kind, which ends.
    pub(super) fn take(&mut self, is_it: impl Fn(&Hold) -> bool) -> Option<Hold> {
        let index = self.holds.iter().position(is_it)?;
        Some(self.holds.remove(index))
    }

    /// Counts permits once more that came back when they expired. One mutant goes by that.
    pub(super) fn come_back_again(&mut self, holder: HolderId) {
        self.surplus += self.expired_permits.remove(&holder).unwrap_or(0);
    }

    pub(super) fn leave(&mut self, holder: HolderId) {
        self.queue.retain(|waiter| waiter.holder != holder);
    }

    /// Not now; the one who waits has a place in the order, which is the first one's for an upgrade.
    pub(super) fn refuse(&mut self, mutant: Option<Mutant>, request: &Request, now: Instant) -> Reply {
        if request.waits {
            let until = now + request.ttl;
            let fresh = QueueEntry {
                holder: request.holder,
                mode: request.mode,
                is_upgrade: request.replaces.is_some(),
                until,
            };
            match self.queue.iter_mut().find(|waiter| waiter.holder == request.holder) {
                Some(waiter) => waiter.until = waiter.until.max(until),
                None if fresh.is_upgrade && mutant != Some(Mutant::UpgradeQueuesBehindWriters) => {
                    self.queue.push_front(fresh);
                }
                None => self.queue.push_back(fresh),
            }
        }
        let first = self.queue.front().map_or(now, |waiter| waiter.until);
        let (label, expires) = match self.holds.iter().min_by_key(|hold| hold.expires) {
            Some(hold) => (hold.label.clone(), hold.expires),
            None => (None, first),
        };
        Reply::Busy {
            label,
            expires_in: expires.saturating_duration_since(now),
        }
    }

    /// A new hold, with a new token. It replaces the hold that it upgrades.
    pub(super) fn grant(
        &mut self,
        mutant: Option<Mutant>,
        request: &Request,
        clock: u64,
        now: Instant,
    ) -> Result<FencingToken> {
        let floor = request.floor.map_or(0, FencingToken::as_u64);
        let at_least = request.at_least.filter(|_| mutant != Some(Mutant::AdoptedTokenIgnored));
        let servers_clock = clock;
        let clock = at_least.map_or(clock, FencingToken::as_u64);
        let reader_inside = self.holds.iter().find(|hold| hold.mode == Mode::Shared);
        let token = match (mutant, reader_inside) {
            (Some(Mutant::TokenOfTheFirstAsking), _) => {
                self.asked_tokens.get(&request.holder).copied().unwrap_or_default()
            }
            (Some(Mutant::CounterLostAtRestart | Mutant::TokensWithoutAClock), _) => {
                (self.last_token + 1).max(floor + 1)
            }
            (Some(Mutant::CounterDeletedWithTheHold), _) => 1.max(floor + 1),
            (Some(Mutant::FloorIgnored), _) => (self.last_token + 1).max(clock),
            (Some(Mutant::ReadersShareAToken), Some(reader)) => reader.token.as_u64(),
            (Some(Mutant::AdoptionIsAFloor), _) if at_least.is_some() => (self.last_token + 1).max(clock + 1),
            (Some(Mutant::AdoptionGoesBack), _) if at_least.is_some() => clock,
            (Some(Mutant::AdoptionHeedsTheClock), _) => {
                (self.last_token + 1).max(servers_clock).max(clock).max(floor + 1)
            }
            _ => (self.last_token + 1).max(clock).max(floor + 1),
        };
        let token =
            FencingToken::new(token).ok_or_else(|| Error::new(ErrorKind::Unexpected, "all tokens are used up"))?;
        self.last_token = match mutant {
            Some(Mutant::FloorCountsOnce) => (self.last_token + 1).max(clock),
            Some(Mutant::PassReservesNothing) => token.as_u64(),
            _ => token.as_u64() + u64::from(request.reserve) - 1,
        };
        self.leave(request.holder);
        if mutant != Some(Mutant::UpgradeLeavesTheRead) {
            self.holds.retain(|hold| Some(hold.holder) != request.replaces);
        }
        let mut hold = request.hold(token, now);
        if mutant == Some(Mutant::GrantKeepsTheEnd) {
            hold.expires = self.last_end.map_or(hold.expires, |end| end.max(hold.expires));
        }
        self.holds.push(hold);
        Ok(token)
    }

    pub(super) fn status(&self, mutant: Option<Mutant>, now: Instant) -> LockStatus {
        let shown = match mutant {
            Some(Mutant::StatusShowsOneReader) => 1,
            _ => usize::MAX,
        };
        let live = self.holds.iter().filter(|hold| self.end_of(mutant, hold) > now);
        let holders = live.take(shown).map(|hold| {
            let mut holder = HolderStatus::new()
                .with_token(hold.token)
                .with_mode(hold.mode)
                .with_id(match mutant {
                    Some(Mutant::StatusShowsOneId) => "the name's".to_owned(),
                    _ => hold.holder.to_string(),
                })
                .with_expires_in(hold.expires.saturating_duration_since(now));
            if mutant == Some(Mutant::WaitersHideTheToken) && !self.queue.is_empty() {
                holder.token = None;
            }
            match &hold.label {
                Some(label) => holder.with_label(label.clone()),
                None => holder,
            }
        });
        let waiting = self.queue.iter().filter(|waiter| waiter.until > now);
        let mut waiters: Vec<_> = waiting
            .map(|waiter| WaiterStatus::new().with_mode(waiter.mode))
            .collect();
        if mutant == Some(Mutant::WaitersInNoOrder) {
            waiters.reverse();
        }
        LockStatus::held_by(holders).with_waiters(waiters)
    }
}
