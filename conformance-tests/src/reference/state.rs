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
    pub(super) places: VecDeque<Place>,
    pub(super) last_token: u64,
    /// Only the one whose tokens are of the first asking keeps these.
    pub(super) asked: HashMap<HolderId, u64>,
}

pub(super) struct Hold {
    pub(super) holder: HolderId,
    /// Who passed it on, or released it to be kept; only broken ones look at it.
    pub(super) former: Option<HolderId>,
    pub(super) label: Option<Arc<str>>,
    pub(super) token: FencingToken,
    pub(super) expires: Instant,
}

/// One that waits, unless it is not heard of until then.
pub(super) struct Place {
    holder: HolderId,
    until: Instant,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) name: String,
    pub(super) holder: HolderId,
    pub(super) ttl: Duration,
    pub(super) label: Option<Arc<str>>,
    pub(super) floor: Option<FencingToken>,
    pub(super) waits: bool,
}

/// What is answered.
#[derive(Clone, Debug)]
pub(super) enum Answer {
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
        self.places.retain(|place| place.until > now);
    }

    pub(super) fn leave(&mut self, holder: HolderId) {
        self.places.retain(|place| place.holder != holder);
    }

    /// Whose turn it is, once the name is free.
    pub(super) fn is_next(&self, holder: HolderId) -> bool {
        self.places.front().is_none_or(|first| first.holder == holder)
    }

    /// Not now; the one who waits has a place in the order.
    pub(super) fn refuse(&mut self, ask: &Ask, now: Instant) -> Answer {
        if ask.waits {
            let until = now + ask.ttl;
            match self.places.iter_mut().find(|place| place.holder == ask.holder) {
                Some(place) => place.until = place.until.max(until),
                None => self.places.push_back(Place {
                    holder: ask.holder,
                    until,
                }),
            }
        }
        let first = self.places.front().map_or(now, |place| place.until);
        let (label, expires) = match &self.hold {
            Some(hold) => (hold.label.clone(), hold.expires),
            None => (None, first),
        };
        Answer::Busy {
            label,
            expires_in: expires - now,
        }
    }

    /// A new hold, with a new token.
    pub(super) fn grant(
        &mut self,
        mutant: Option<Mutant>,
        ask: &Ask,
        clock: u64,
        now: Instant,
    ) -> Result<FencingToken> {
        let floor = ask.floor.map_or(0, FencingToken::as_u64);
        let token = match mutant {
            Some(Mutant::TokenOfTheFirstAsking) => self.asked.get(&ask.holder).copied().unwrap_or_default(),
            Some(Mutant::CounterLostAtRestart) => (self.last_token + 1).max(floor + 1),
            Some(Mutant::CounterDeletedWithTheHold) => 1.max(floor + 1),
            _ => (self.last_token + 1).max(clock).max(floor + 1),
        };
        let token =
            FencingToken::new(token).ok_or_else(|| Error::new(ErrorKind::Unexpected, "all tokens are used up"))?;
        self.last_token = token.as_u64();
        self.leave(ask.holder);
        self.hold = Some(Hold {
            holder: ask.holder,
            former: None,
            label: ask.label.clone(),
            token,
            expires: now + ask.ttl,
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
        status.with_waiting(self.places.iter().filter(|place| place.until > now).count())
    }
}
