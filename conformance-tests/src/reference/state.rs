//! What the server remembers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{HolderId, HolderStatus, LockStatus};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::time::Instant;

use crate::mutant::Mutant;

#[derive(Default)]
pub(super) struct State {
    pub(super) down: bool,
    pub(super) names: HashMap<String, Entry>,
    /// Ids that were released, abandoned, or have passed their hold on.
    pub(super) dead: HashSet<HolderId>,
}

#[derive(Default)]
pub(super) struct Entry {
    pub(super) hold: Option<Hold>,
    pub(super) queue: VecDeque<QueueEntry>,
    pub(super) last_token: u64,
    /// The token of each holder's first request, for the mutant that grants it.
    pub(super) asked_tokens: HashMap<HolderId, u64>,
}

pub(super) struct Hold {
    pub(super) holder: HolderId,
    /// Who handed it over, or released it to be kept, for the mutants that go by it.
    pub(super) former: Option<HolderId>,
    pub(super) label: Option<Arc<str>>,
    pub(super) token: FencingToken,
    pub(super) expires: Instant,
}

/// A waiter, which leaves the queue if it sends nothing until then.
pub(super) struct QueueEntry {
    holder: HolderId,
    until: Instant,
}

/// A client's request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) holder: HolderId,
    pub(super) ttl: Duration,
    pub(super) label: Option<Arc<str>>,
    pub(super) floor: Option<FencingToken>,
    pub(super) waits: bool,
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

impl Entry {
    /// Without what has ended by now.
    pub(super) fn forget_what_ended(&mut self, now: Instant) {
        self.hold.take_if(|hold| hold.expires <= now);
        self.queue.retain(|waiter| waiter.until > now);
    }

    pub(super) fn leave(&mut self, holder: HolderId) {
        self.queue.retain(|waiter| waiter.holder != holder);
    }

    /// Whose turn it is, once the name is free.
    pub(super) fn is_next(&self, holder: HolderId) -> bool {
        self.queue.front().is_none_or(|first| first.holder == holder)
    }

    /// Not now; the one who waits has a place in the order.
    pub(super) fn refuse(&mut self, request: &Request, now: Instant) -> Reply {
        if request.waits {
            let until = now + request.ttl;
            match self.queue.iter_mut().find(|waiter| waiter.holder == request.holder) {
                Some(waiter) => waiter.until = waiter.until.max(until),
                None => self.queue.push_back(QueueEntry {
                    holder: request.holder,
                    until,
                }),
            }
        }
        let first = self.queue.front().map_or(now, |waiter| waiter.until);
        let (label, expires) = match &self.hold {
            Some(hold) => (hold.label.clone(), hold.expires),
            None => (None, first),
        };
        Reply::Busy {
            label,
            expires_in: expires - now,
        }
    }

    /// A new hold, with a new token.
    pub(super) fn grant(
        &mut self,
        mutant: Option<Mutant>,
        request: &Request,
        clock: u64,
        now: Instant,
    ) -> Result<FencingToken> {
        let floor = request.floor.map_or(0, FencingToken::as_u64);
        let token = match mutant {
            Some(Mutant::TokenOfTheFirstAsking) => self.asked_tokens.get(&request.holder).copied().unwrap_or_default(),
            Some(Mutant::CounterLostAtRestart) => (self.last_token + 1).max(floor + 1),
            Some(Mutant::CounterDeletedWithTheHold) => 1.max(floor + 1),
            Some(Mutant::FloorIgnored) => (self.last_token + 1).max(clock),
            _ => (self.last_token + 1).max(clock).max(floor + 1),
        };
        let token =
            FencingToken::new(token).ok_or_else(|| Error::new(ErrorKind::Unexpected, "all tokens are used up"))?;
        self.last_token = match mutant {
            Some(Mutant::FloorCountsOnce) => (self.last_token + 1).max(clock),
            _ => token.as_u64(),
        };
        self.leave(request.holder);
        self.hold = Some(Hold {
            holder: request.holder,
            former: None,
            label: request.label.clone(),
            token,
            expires: now + request.ttl,
        });
        Ok(token)
    }

    pub(super) fn status(&self, now: Instant) -> LockStatus {
        let hold = self.hold.as_ref().filter(|hold| hold.expires > now);
        let status = hold.map_or_else(LockStatus::free, |hold| {
            let holder = HolderStatus::new()
                .with_token(hold.token)
                .with_expires_in(hold.expires - now);
            LockStatus::held(match &hold.label {
                Some(label) => holder.with_label(label.clone()),
                None => holder,
            })
        });
        status.with_waiting(self.queue.iter().filter(|waiter| waiter.until > now).count())
    }
}
