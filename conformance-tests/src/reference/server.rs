//! The server: names, who holds them until when, and their tokens.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::{HolderId, HolderStatus, LockStatus};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::harness::Data;
use crate::mutants::Defect;

/// A lock server in memory, on tokio's clock.
pub struct ReferenceServer {
    defect: Option<Defect>,
    started: Instant,
    state: Mutex<State>,
    /// Something was freed.
    pub(super) freed: Notify,
}

#[derive(Default)]
struct State {
    down: bool,
    names: HashMap<String, Entry>,
    /// Ids that were released or abandoned.
    dead: HashSet<HolderId>,
}

#[derive(Default)]
struct Entry {
    hold: Option<Hold>,
    last_token: u64,
    /// Only the one whose tokens are of the first asking keeps these.
    asked: HashMap<HolderId, u64>,
}

struct Hold {
    holder: HolderId,
    label: Option<Arc<str>>,
    token: FencingToken,
    expires: Instant,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) name: String,
    pub(super) holder: HolderId,
    pub(super) ttl: Duration,
    pub(super) label: Option<Arc<str>>,
    pub(super) floor: Option<FencingToken>,
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

impl ReferenceServer {
    pub(super) fn new(defect: Option<Defect>) -> Self {
        Self {
            defect,
            started: Instant::now(),
            state: Mutex::default(),
            freed: Notify::new(),
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn key(&self, name: &str) -> String {
        match self.defect {
            Some(Defect::NamesFolded) => name.to_lowercase(),
            Some(Defect::NamesCutAtNul) => name.split('\0').next().unwrap_or_default().to_owned(),
            Some(Defect::NamesShortened) => name.chars().take(64).collect(),
            Some(Defect::NamesMeetAuxiliaryKeys) => name.trim_end_matches(":fence").to_owned(),
            _ => name.to_owned(),
        }
    }

    pub(super) fn acquire(&self, ask: &Ask) -> Result<Answer> {
        let now = Instant::now();
        let clock = (now - self.started).as_micros().try_into().unwrap_or(u64::MAX);
        let mut state = self.up()?;
        if state.dead.contains(&ask.holder) {
            return Err(Error::new(ErrorKind::Unexpected, "this holder id is dead"));
        }
        let entry = state.names.entry(self.key(&ask.name)).or_default();
        if self.has(Defect::TokenOfTheFirstAsking) {
            let next = entry.last_token + 1;
            entry.last_token = *entry.asked.entry(ask.holder).or_insert(next).max(&mut entry.last_token);
        }
        entry.hold.take_if(|hold| hold.expires <= now);
        if let Some(hold) = &mut entry.hold {
            if hold.holder == ask.holder {
                if !self.has(Defect::RepeatRearmsNothing) {
                    hold.expires = hold.expires.max(now + ask.ttl);
                }
                return Ok(Answer::Granted(hold.token));
            }
            if self.has(Defect::AskersTtlCutsTheHolders) {
                hold.expires = hold.expires.min(now + ask.ttl);
            }
            return Ok(Answer::Busy {
                label: hold.label.clone(),
                expires_in: hold.expires - now,
            });
        }
        let floor = ask.floor.map_or(0, FencingToken::as_u64);
        let token = match self.defect {
            Some(Defect::TokenOfTheFirstAsking) => entry.asked.get(&ask.holder).copied().unwrap_or_default(),
            Some(Defect::CounterLostAtRestart) => (entry.last_token + 1).max(floor + 1),
            Some(Defect::CounterDeletedWithTheHold) => 1.max(floor + 1),
            _ => (entry.last_token + 1).max(clock).max(floor + 1),
        };
        let token =
            FencingToken::new(token).ok_or_else(|| Error::new(ErrorKind::Unexpected, "all tokens are used up"))?;
        entry.last_token = token.as_u64();
        entry.hold = Some(Hold {
            holder: ask.holder,
            label: ask.label.clone(),
            token,
            expires: now + ask.ttl,
        });
        Ok(Answer::Granted(token))
    }

    /// Whether there was a hold to renew.
    pub(super) fn renew(&self, ask: &Ask) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.up()?;
        let entry = state.names.entry(self.key(&ask.name)).or_default();
        let Some(hold) = &mut entry.hold else {
            if self.has(Defect::RenewalBringsBack) {
                let token = FencingToken::new(entry.last_token.max(1));
                entry.hold = token.map(|token| Hold {
                    holder: ask.holder,
                    label: None,
                    token,
                    expires: now + ask.ttl,
                });
                return Ok(true);
            }
            return Ok(false);
        };
        let expired = hold.expires <= now && !self.has(Defect::ExpiredHoldExtended);
        if hold.holder != ask.holder || expired {
            return Ok(false);
        }
        hold.expires = match self.has(Defect::RenewalShortens) {
            true => now + ask.ttl,
            false => hold.expires.max(now + ask.ttl),
        };
        Ok(true)
    }

    /// Whether there was a hold to release.
    pub(super) fn release(&self, name: &str, holder: HolderId) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.up()?;
        state.dead.insert(holder);
        let entry = state.names.entry(self.key(name)).or_default();
        let anybodys = self.has(Defect::ReleaseWithoutCompare);
        let hold = entry.hold.take_if(|hold| anybodys || hold.holder == holder);
        if !self.has(Defect::ReleaseWakesNobody) {
            self.freed.notify_waiters();
        }
        Ok(hold.is_some_and(|hold| hold.expires > now) || self.has(Defect::ReleaseNeverSaysLost))
    }

    pub(super) fn abandon(&self, name: &str, holder: HolderId) -> Result<()> {
        let mut state = self.up()?;
        if self.has(Defect::AbandonDoesNothing) {
            return Ok(());
        }
        if !self.has(Defect::AbandonedIdsComeBack) {
            state.dead.insert(holder);
        }
        let anybodys = self.has(Defect::AbandonWithoutCompare);
        if let Some(entry) = state.names.get_mut(&self.key(name)) {
            entry.hold.take_if(|hold| anybodys || hold.holder == holder);
        }
        self.freed.notify_waiters();
        Ok(())
    }

    pub(super) fn status(&self, name: &str) -> Result<LockStatus> {
        let now = Instant::now();
        let state = self.up()?;
        let hold = state.names.get(&self.key(name)).and_then(|entry| entry.hold.as_ref());
        Ok(hold
            .filter(|hold| hold.expires > now)
            .map_or_else(LockStatus::free, |hold| {
                let holder = HolderStatus::new()
                    .with_token(hold.token)
                    .with_expires_in(hold.expires - now);
                LockStatus::held(match &hold.label {
                    Some(label) => holder.with_label(label.clone()),
                    None => holder,
                })
            }))
    }

    pub(super) fn take_away(&self, name: &str) {
        if let Some(entry) = self.lock().names.get_mut(&self.key(name)) {
            entry.hold = None;
        }
        self.freed.notify_waiters();
    }

    pub(super) fn stop(&self) {
        self.lock().down = true;
    }

    pub(super) fn start(&self, data: Data) {
        let mut state = self.lock();
        if data == Data::Lost {
            *state = State::default();
        }
        if self.has(Defect::CounterLostAtRestart) {
            state.names.values_mut().for_each(|entry| entry.last_token = 0);
        }
        state.down = false;
    }

    fn up(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        match state.down {
            true => Err(Error::new(ErrorKind::Unavailable, "the server is down")),
            false => Ok(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReferenceServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceServer")
            .field("defect", &self.defect)
            .finish_non_exhaustive()
    }
}
