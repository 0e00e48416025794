//! The server: names, who holds them until when, who waits for them, and their tokens.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::{Change, HolderId, LockStatus, Mode};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::state::{Entry, Hold, Reply, Request, State};
use crate::harness::Data;
use crate::mutant::Mutant;

/// A lock server in memory, on tokio's clock.
pub struct ReferenceServer {
    mutant: Option<Mutant>,
    started: Instant,
    state: Mutex<State>,
    /// Something was freed.
    pub(super) freed: Notify,
    /// Counts the changes of all names, for those who follow one.
    changes: watch::Sender<u64>,
    /// Counts those who follow any name, for the mutant that tells the last one alone.
    follows: watch::Sender<u64>,
}

impl ReferenceServer {
    pub(super) fn new(mutant: Option<Mutant>) -> Self {
        Self {
            mutant,
            started: Instant::now(),
            state: Mutex::default(),
            freed: Notify::new(),
            changes: watch::Sender::new(0),
            follows: watch::Sender::new(0),
        }
    }

    pub(super) fn mutant(&self) -> Option<Mutant> {
        self.mutant
    }

    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn key(&self, name: &str) -> String {
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
        if self.has(Mutant::OldestNameIsEvicted) {
            state.evict_oldest();
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
        entry.forget_what_ended(self.mutant, now);
        if let Some(hold) = entry.hold_of(request.holder)
            && !self.repeat_is_another(request.mode)
        {
            if !self.has(Mutant::RepeatRearmsNothing) {
                hold.expires = hold.expires.max(now + request.ttl);
            }
            return Ok(Reply::Granted(hold.token));
        }
        let has_ended = request.replaces.is_some_and(|base| entry.hold_of(base).is_none());
        if has_ended && !self.has(Mutant::UpgradeWaitsForEver) {
            entry.leave(request.holder);
            return Err(Error::new(
                ErrorKind::Lost,
                "the hold that was to be upgraded has ended",
            ));
        }
        if self.has(Mutant::AskersTtlCutsTheHolders) {
            let cut = now + request.ttl;
            entry
                .holds
                .iter_mut()
                .for_each(|hold| hold.expires = hold.expires.min(cut));
        }
        if has_ended || !entry.admits(self.mutant, request) {
            return Ok(entry.refuse(self.mutant, request, now));
        }
        let token = entry.grant(self.mutant, request, self.clock(now), now)?;
        self.has_changed();
        Ok(Reply::Granted(token))
    }

    /// Somebody else may hold a name.
    fn has_changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes a name's state away, for the mutant that writes it back by a second request.
    pub(super) fn take_state(&self, name: &str) -> Result<Option<Entry>> {
        Ok(self.up()?.names.remove(&self.key(name)))
    }

    /// Writes it back.
    pub(super) fn write_state(&self, name: &str, state: Option<Entry>) -> Result<()> {
        self.up()?.names.extend(state.map(|state| (self.key(name), state)));
        Ok(())
    }

    /// Sets the end of a hold, for the mutant that does so by a second request.
    pub(super) fn set_expiry(&self, request: &Request) -> Result<()> {
        let expires = Instant::now() + request.ttl;
        let mut state = self.up()?;
        let entry = state.names.get_mut(&self.key(&request.name));
        if let Some(hold) = entry.and_then(|entry| entry.hold_of(request.holder)) {
            hold.expires = expires;
        }
        Ok(())
    }

    /// Whether the request would be granted, for the client that counts permits itself.
    pub(super) fn would_admit(&self, request: &Request) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.up()?;
        let entry = state.names.entry(self.key(&request.name)).or_default();
        entry.forget_what_ended(self.mutant, now);
        Ok(entry.hold_of(request.holder).is_none() && entry.admits(self.mutant, request))
    }

    /// Whether there was a hold to renew.
    pub(super) fn renew(&self, request: &Request) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.up()?;
        let entry = state.names.entry(self.key(&request.name)).or_default();
        let Some(hold) = entry.holds.iter_mut().find(|hold| self.is_mine(hold, request.holder)) else {
            let brings_back = match request.mode {
                Mode::Exclusive => self.has(Mutant::RenewalBringsBack) && entry.holds.is_empty(),
                _ => self.has(Mutant::LateRenewalBringsAReaderBack),
            };
            let token = FencingToken::new(entry.last_token.max(1)).filter(|_| brings_back);
            entry.holds.extend(token.map(|token| request.hold(token, now)));
            return Ok(brings_back);
        };
        if hold.expires <= now && !self.has(Mutant::ExpiredHoldExtended) {
            return Ok(false);
        }
        let prolonged = now + request.ttl;
        match (self.mutant, hold.mode) {
            (Some(Mutant::RenewalShortens), _) => hold.expires = prolonged,
            (Some(Mutant::RenewalProlongsTheNameAlone), Mode::Shared) => {}
            (Some(Mutant::RenewalProlongsAllReaders), Mode::Shared) => {
                let holds = entry.holds.iter_mut();
                holds.for_each(|hold| hold.expires = hold.expires.max(prolonged));
            }
            _ => hold.expires = hold.expires.max(prolonged),
        }
        Ok(true)
    }

    /// Makes an exclusive hold a shared one, and whether there was one.
    pub(super) fn downgrade(&self, request: &Request) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.up()?;
        let entry = state.names.entry(self.key(&request.name)).or_default();
        entry.forget_what_ended(self.mutant, now);
        match entry.hold_of(request.holder) {
            Some(hold) => {
                hold.mode = Mode::Shared;
                hold.expires = hold.expires.max(now + request.ttl);
            }
            None if self.has(Mutant::DowngradeOfALostHold) || self.has(Mutant::DowngradeLetsAWriterIn) => {
                let token = FencingToken::new(entry.last_token.max(1));
                entry.holds.extend(token.map(|token| Hold {
                    mode: Mode::Shared,
                    ..request.hold(token, now)
                }));
            }
            None => return Ok(false),
        }
        if !self.has(Mutant::DowngradeWakesNobody) {
            self.freed.notify_waiters();
        }
        Ok(true)
    }

    /// Whether the hold was there, so that all later tokens are larger.
    pub(super) fn raise(&self, request: &Request, token: FencingToken) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.up()?;
        let entry = state.names.entry(self.key(&request.name)).or_default();
        entry.forget_what_ended(self.mutant, now);
        let is_there = entry.hold_of(request.holder).is_some();
        let raised = token.as_u64();
        match self.mutant {
            Some(Mutant::RaisedTokenForgotten) => {}
            Some(Mutant::RaiseLowers) if is_there => entry.last_token = raised,
            Some(Mutant::LostHoldRaises | Mutant::RefusedRaiseTakesEffect) => {
                entry.last_token = entry.last_token.max(raised);
            }
            _ if is_there => entry.last_token = entry.last_token.max(raised),
            _ => {}
        }
        if self.has(Mutant::RaiseEndsTheHold) {
            entry.holds.retain(|hold| hold.holder != request.holder);
        }
        Ok(is_there || self.has(Mutant::LostHoldRaises))
    }

    /// Ends a hold that its holder is about to come back to, for the mutant that downgrades in two steps.
    pub(super) fn let_go(&self, name: &str, holder: HolderId) -> Result<()> {
        let mut state = self.up()?;
        let entry = state.names.entry(self.key(name)).or_default();
        entry.holds.retain(|hold| hold.holder != holder);
        self.freed.notify_waiters();
        Ok(())
    }

    /// Whether there was a hold to release. It is nobody's any more, and stays for as long as it is to be kept.
    pub(super) fn release(&self, name: &str, holder: HolderId, keep_for: Option<Duration>) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.up()?;
        state.dead.insert(holder);
        self.has_changed();
        let entry = state.names.entry(self.key(name)).or_default();
        let anybodys = self.has(Mutant::ReleaseWithoutCompare) || entry.revoked.contains(&holder);
        let hold = entry.take(|hold| anybodys || self.may_release(hold, holder));
        entry.come_back_again(holder);
        self.wake(hold.as_ref());
        entry.last_end = hold.as_ref().map(|hold| hold.expires);
        let Some(hold) = hold.filter(|hold| hold.expires > now) else {
            return Ok(self.has(Mutant::ReleaseNeverSaysLost));
        };
        if self.has(Mutant::FirstReaderFreesTheName) {
            entry
                .holds
                .retain(|other| other.mode != Mode::Shared || hold.mode != Mode::Shared);
        }
        entry.holds.extend(keep_for.map(|rest| Hold {
            holder: HolderId::random(),
            former: Some(holder),
            expires: match self.mutant {
                Some(Mutant::KeepForIgnored) => now,
                Some(Mutant::KeepForCannotShorten) => hold.expires.max(now + rest),
                Some(Mutant::KeepForCannotProlong) => hold.expires.min(now + rest),
                _ => now + rest,
            },
            ..hold
        }));
        Ok(true)
    }

    /// Wakes those who wait, after this hold has ended.
    fn wake(&self, ended: Option<&Hold>) {
        let was_permits = ended.is_some_and(|hold| matches!(hold.mode, Mode::Permits(_)));
        match self.mutant {
            Some(Mutant::ReleaseWakesNobody) => {}
            Some(Mutant::OneWaiterForAllPermits) if was_permits => self.freed.notify_one(),
            _ => self.freed.notify_waiters(),
        }
    }

    pub(super) fn abandon(&self, name: &str, holder: HolderId, replaces: Option<HolderId>) -> Result<()> {
        let mut state = self.up()?;
        self.has_changed();
        if self.has(Mutant::AbandonDoesNothing) {
            return Ok(());
        }
        if !self.has(Mutant::AbandonedIdsComeBack) {
            state.dead.insert(holder);
        }
        if let Some(entry) = state.names.get_mut(&self.key(name)) {
            let stays = |hold: &Hold| match (self.mutant, hold.mode) {
                (Some(Mutant::AbandonWithoutCompare), _) | (Some(Mutant::AbandonEndsAllReaders), Mode::Shared) => false,
                (Some(Mutant::AbandonLeavesThePermit), Mode::Permits(_)) => true,
                (Some(Mutant::AbandonedUpgradeEndsTheRead), _) if Some(hold.holder) == replaces => false,
                _ => hold.holder != holder,
            };
            let upgraded = entry.hold_of(holder).cloned().filter(|_| replaces.is_some());
            entry.holds.retain(stays);
            if let (Some(upgraded), Some(base)) = (upgraded, replaces)
                && !self.has(Mutant::UndoneUpgradeEndsTheRead)
            {
                entry.holds.push(Hold {
                    holder: base,
                    mode: Mode::Upgradable,
                    ..upgraded
                });
            }
            entry.come_back_again(holder);
            entry.leave(holder);
        }
        if !self.has(Mutant::LeavingWaiterWakesNobody) {
            self.freed.notify_waiters();
        }
        Ok(())
    }

    pub(super) fn status(&self, name: &str) -> Result<LockStatus> {
        let state = self.up()?;
        let entry = state.names.get(&self.key(name));
        Ok(entry.map_or_else(
            || LockStatus::free().with_waiting(0),
            |entry| entry.status(self.mutant, Instant::now()),
        ))
    }

    /// The status, and what completes at the next change.
    pub(super) fn follow(&self, name: &str) -> Result<(LockStatus, Change)> {
        let mut changes = self.changes.subscribe();
        self.follows.send_modify(|follows| *follows += 1);
        let mut later = self.follows.subscribe();
        let mutant = self.mutant;
        let change = async move {
            let is_told = match mutant {
                Some(Mutant::ChangeIsNotReported) => false,
                Some(Mutant::LastFollowerAlone) => tokio::select! {
                    biased;
                    _ = later.changed() => false,
                    _ = changes.changed() => true,
                },
                _ => changes.changed().await.is_ok(),
            };
            if !is_told {
                std::future::pending().await
            }
        };
        Ok((self.status(name)?, Change::new(change)))
    }

    pub(super) fn take_away(&self, name: &str) {
        if let Some(entry) = self.lock().names.get_mut(&self.key(name)) {
            entry.holds.clear();
        }
        self.has_changed();
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
        if self.has(Mutant::HoldsLostAtRestart) {
            state.names.values_mut().for_each(|entry| entry.holds.clear());
        }
        if self.has(Mutant::CounterLostAtRestart) {
            state.names.values_mut().for_each(|entry| entry.last_token = 0);
        }
        state.down = false;
    }

    fn is_mine(&self, hold: &Hold, holder: HolderId) -> bool {
        hold.holder == holder || self.has(Mutant::KeptIdLivesOn) && hold.former == Some(holder)
    }

    fn repeat_is_another(&self, mode: Mode) -> bool {
        match mode {
            Mode::Shared => self.has(Mutant::RepeatedReaderIsAnother),
            Mode::Permits(_) => self.has(Mutant::RepeatTakesASecondPermit),
            _ => false,
        }
    }

    fn may_release(&self, hold: &Hold, holder: HolderId) -> bool {
        self.is_mine(hold, holder) || self.has(Mutant::RepeatedReleaseKeepsAnew) && hold.former == Some(holder)
    }

    pub(super) fn up(&self) -> Result<MutexGuard<'_, State>> {
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
