//! The server: names, who holds them until when, who waits for them, and their tokens.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::{HolderId, LockStatus};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::state::{Hold, Reply, Request, State};
use crate::harness::Data;
use crate::mutant::Mutant;

/// A lock server in memory, on tokio's clock.
pub struct ReferenceServer {
    mutant: Option<Mutant>,
    started: Instant,
    state: Mutex<State>,
    /// Something was freed.
    pub(super) freed: Notify,
}

impl ReferenceServer {
    pub(super) fn new(mutant: Option<Mutant>) -> Self {
        Self {
            mutant,
            started: Instant::now(),
            state: Mutex::default(),
            freed: Notify::new(),
        }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn key(&self, name: &str) -> String {
        match self.mutant {
            Some(Mutant::NamesFolded) => name.to_lowercase(),
            Some(Mutant::NamesCutAtNul) => name.split('\0').next().unwrap_or_default().to_owned(),
            Some(Mutant::NamesShortened) => name.chars().take(64).collect(),
            Some(Mutant::NamesMeetAuxiliaryKeys) => name.trim_end_matches(":fence").to_owned(),
            _ => name.to_owned(),
        }
    }

    fn clock(&self, now: Instant) -> u64 {
        (now - self.started).as_micros().try_into().unwrap_or(u64::MAX)
    }

    pub(super) fn acquire(&self, request: &Request) -> Result<Reply> {
        let now = Instant::now();
        let mut state = self.up()?;
        if state.dead.contains(&request.holder) {
            return Err(Error::new(ErrorKind::Unexpected, "this holder id is dead"));
        }
        let entry = state.names.entry(self.key(&request.name)).or_default();
        if self.has(Mutant::TokenOfTheFirstAsking) {
            let next = entry.last_token + 1;
            entry.last_token = *entry
                .asked_tokens
                .entry(request.holder)
                .or_insert(next)
                .max(&mut entry.last_token);
        }
        entry.forget_what_ended(now);
        if let Some(hold) = &mut entry.hold {
            if hold.holder == request.holder {
                if !self.has(Mutant::RepeatRearmsNothing) {
                    hold.expires = hold.expires.max(now + request.ttl);
                }
                return Ok(Reply::Granted(hold.token));
            }
            if self.has(Mutant::AskersTtlCutsTheHolders) {
                hold.expires = hold.expires.min(now + request.ttl);
            }
            return Ok(entry.refuse(request, now));
        }
        if !entry.is_next(request.holder) && !self.has(Mutant::NewcomersComeFirst) {
            return Ok(entry.refuse(request, now));
        }
        entry
            .grant(self.mutant, request, self.clock(now), now)
            .map(Reply::Granted)
    }

    /// Whether there was a hold to renew.
    pub(super) fn renew(&self, request: &Request) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.up()?;
        let entry = state.names.entry(self.key(&request.name)).or_default();
        let Some(hold) = &mut entry.hold else {
            if self.has(Mutant::RenewalBringsBack) {
                let token = FencingToken::new(entry.last_token.max(1));
                entry.hold = token.map(|token| Hold {
                    holder: request.holder,
                    former: None,
                    label: None,
                    token,
                    expires: now + request.ttl,
                });
                return Ok(true);
            }
            return Ok(false);
        };
        let expired = hold.expires <= now && !self.has(Mutant::ExpiredHoldExtended);
        if !self.is_mine(hold, request.holder) || expired {
            return Ok(false);
        }
        hold.expires = match self.has(Mutant::RenewalShortens) {
            true => now + request.ttl,
            false => hold.expires.max(now + request.ttl),
        };
        Ok(true)
    }

    /// Whether there was a hold to release. It is nobody's any more, and stays for as long as it is to be kept.
    pub(super) fn release(&self, name: &str, holder: HolderId, keep_for: Option<Duration>) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.up()?;
        state.dead.insert(holder);
        let entry = state.names.entry(self.key(name)).or_default();
        let anybodys = self.has(Mutant::ReleaseWithoutCompare);
        let hold = entry.hold.take_if(|hold| anybodys || self.may_release(hold, holder));
        if !self.has(Mutant::ReleaseWakesNobody) {
            self.freed.notify_waiters();
        }
        let Some(hold) = hold.filter(|hold| hold.expires > now) else {
            return Ok(self.has(Mutant::ReleaseNeverSaysLost));
        };
        entry.hold = keep_for.map(|rest| Hold {
            holder: HolderId::random(),
            former: Some(holder),
            expires: match self.mutant {
                Some(Mutant::KeepForIgnored) => now,
                Some(Mutant::KeepForCannotShorten) => hold.expires.max(now + rest),
                Some(Mutant::KeepForCannotProlong) => hold.expires.min(now + rest),
                _ => now + rest,
            },
            ..hold
        });
        Ok(true)
    }

    /// The token of the one that has it next; `None` when the hold was not the giver's.
    pub(super) fn hand_over(&self, giver: HolderId, next: &Request) -> Result<Option<FencingToken>> {
        let now = Instant::now();
        let mut state = self.up()?;
        let takes_what_is_free = self.has(Mutant::HandOverTakesWhatIsFree);
        if state.dead.contains(&next.holder) && !takes_what_is_free {
            return Ok(None);
        }
        let entry = state.names.entry(self.key(&next.name)).or_default();
        entry.forget_what_ended(now);
        let is_repeated = |hold: &Hold| hold.holder == next.holder;
        let former_token = match &mut entry.hold {
            Some(hold) if is_repeated(hold) && !self.has(Mutant::RepeatedHandOverIsAnother) => {
                hold.expires = hold.expires.max(now + next.ttl);
                return Ok(Some(hold.token));
            }
            Some(hold) if hold.holder == giver || is_repeated(hold) || self.has(Mutant::HandOverWithoutCompare) => {
                Some(hold.token)
            }
            None if takes_what_is_free => None,
            _ => return Ok(None),
        };
        let mut token = entry.grant(self.mutant, next, self.clock(now), now)?;
        if let Some(hold) = &mut entry.hold {
            hold.former = Some(giver);
            if let Some(former) = former_token.filter(|_| self.has(Mutant::HandOverKeepsTheToken)) {
                (hold.token, token) = (former, former);
            }
        }
        state.dead.insert(giver);
        Ok(Some(token))
    }

    pub(super) fn abandon(&self, name: &str, holder: HolderId) -> Result<()> {
        let mut state = self.up()?;
        if self.has(Mutant::AbandonDoesNothing) {
            return Ok(());
        }
        if !self.has(Mutant::AbandonedIdsComeBack) {
            state.dead.insert(holder);
        }
        let anybodys = self.has(Mutant::AbandonWithoutCompare);
        if let Some(entry) = state.names.get_mut(&self.key(name)) {
            entry.hold.take_if(|hold| anybodys || hold.holder == holder);
            entry.leave(holder);
        }
        self.freed.notify_waiters();
        Ok(())
    }

    pub(super) fn status(&self, name: &str) -> Result<LockStatus> {
        let state = self.up()?;
        let entry = state.names.get(&self.key(name));
        Ok(entry.map_or_else(
            || LockStatus::free().with_waiting(0),
            |entry| entry.status(Instant::now()),
        ))
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
        if self.has(Mutant::CounterLostAtRestart) {
            state.names.values_mut().for_each(|entry| entry.last_token = 0);
        }
        state.down = false;
    }

    fn is_mine(&self, hold: &Hold, holder: HolderId) -> bool {
        let former_too = self.has(Mutant::GiverLivesOn) || self.has(Mutant::KeptIdLivesOn);
        hold.holder == holder || former_too && hold.former == Some(holder)
    }

    fn may_release(&self, hold: &Hold, holder: HolderId) -> bool {
        self.is_mine(hold, holder) || self.has(Mutant::RepeatedReleaseKeepsAnew) && hold.former == Some(holder)
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
            .field("mutant", &self.mutant)
            .finish_non_exhaustive()
    }
}
