//! The server: the lock server of the memory backend, with the bugs of the mutants.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use lock_core::backend::{Change, HolderId, LockStatus, Mode};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::state::{Hold, Name, Request, State};
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

    fn key(&self, name: &LockName) -> LockName {
        let name_at_server = match self.mutant {
            Some(Mutant::NamesFolded) => name.as_str().to_lowercase(),
            Some(Mutant::NamesCutAtNul) => name.as_str().split('\0').next().unwrap_or_default().to_owned(),
            Some(Mutant::NamesShortened) => name.as_str().chars().take(64).collect(),
            Some(Mutant::NamesMeetAuxiliaryKeys) => name.as_str().trim_end_matches(":fence").to_owned(),
            _ => return name.clone(),
        };
        LockName::new(name_at_server).unwrap_or_else(|_| name.clone())
    }

    /// The state for a request, its name at the server, and the moment.
    pub(super) fn at(&self, name: &LockName) -> Result<(MutexGuard<'_, State>, LockName, Instant)> {
        let (mut state, name, now) = (self.up()?, self.key(name), Instant::now());
        if self.mutant.is_some() {
            state.before_expiry(self.mutant, &name, now);
        }
        Ok((state, name, now))
    }

    pub(super) fn clock(&self, now: Instant) -> u64 {
        (now - self.started).as_micros().try_into().unwrap_or(u64::MAX)
    }

    /// Somebody else may hold a name.
    pub(super) fn has_changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes a name's state away, for the mutant that writes it back by a second request.
    pub(super) fn take_state(&self, name: &LockName) -> Result<Option<Name>> {
        let (mut state, name, _) = self.at(name)?;
        Ok(state.server.names.remove(&name))
    }

    /// Writes it back.
    pub(super) fn write_state(&self, name: &LockName, written: Option<Name>) -> Result<()> {
        let (mut state, name, _) = self.at(name)?;
        state.server.names.extend(written.map(|written| (name, written)));
        Ok(())
    }

    /// Sets the end of a hold, for the mutant that does so by a second request.
    pub(super) fn set_expiry(&self, request: &Request) -> Result<()> {
        let (mut state, name, now) = self.at(&request.name)?;
        if let Some(hold) = state.hold_of(&name, request.holder()) {
            hold.expires = now + request.acquire.ttl;
        }
        Ok(())
    }

    /// Renews a hold, and returns whether there was one.
    pub(super) fn renew(&self, request: &Request) -> Result<bool> {
        let (mut state, name, now) = self.at(&request.name)?;
        let holder = self.whose(&mut state, &name, request.holder(), Mutant::KeptIdLivesOn);
        let (ttl, prolonged) = (request.acquire.ttl, now + request.acquire.ttl);
        let before = state.hold_of(&name, holder).map(|hold| hold.expires);
        if let Some(hold) = state.hold_of(&name, holder)
            && self.has(Mutant::ExpiredHoldExtended)
        {
            hold.expires = hold.expires.max(prolonged);
        }
        if state.server.renew(&name, holder, now, ttl) {
            let is_shared = |hold: &Hold| hold.mode == Mode::Shared;
            for hold in state.holds(&name) {
                match self.mutant {
                    Some(Mutant::RenewalShortens) if hold.holder == holder => hold.expires = prolonged,
                    Some(Mutant::RenewalProlongsTheNameAlone) if hold.holder == holder && is_shared(hold) => {
                        hold.expires = before.unwrap_or(hold.expires);
                    }
                    Some(Mutant::RenewalProlongsAllReaders) if is_shared(hold) => {
                        hold.expires = hold.expires.max(prolonged);
                    }
                    _ => {}
                }
            }
            return Ok(true);
        }
        let brings_back = match request.mode() {
            Mode::Exclusive => self.has(Mutant::RenewalBringsBack) && state.holds(&name).next().is_none(),
            _ => self.has(Mutant::LateRenewalBringsAReaderBack),
        };
        if brings_back {
            state.bring_back(&name, request, request.mode(), now);
        }
        Ok(brings_back)
    }

    /// Makes an exclusive hold a shared one, and whether there was one.
    pub(super) fn downgrade(&self, request: &Request) -> Result<bool> {
        let (mut state, name, now) = self.at(&request.name)?;
        let mut downgraded = state
            .server
            .downgrade(&name, request.holder(), now, request.acquire.ttl);
        if !downgraded && (self.has(Mutant::DowngradeOfALostHold) || self.has(Mutant::DowngradeLetsAWriterIn)) {
            state.bring_back(&name, request, Mode::Shared, now);
            downgraded = true;
        }
        if downgraded && !self.has(Mutant::DowngradeWakesNobody) {
            self.freed.notify_waiters();
        }
        Ok(downgraded)
    }

    /// Raises the token of a hold, so that all later tokens are larger. Returns whether there was a hold.
    pub(super) fn raise(&self, request: &Request, token: FencingToken) -> Result<bool> {
        let (mut state, name, now) = self.at(&request.name)?;
        let (holder, before) = (request.holder(), state.server.last_token);
        let is_there = state.server.raise(&name, holder, now, token);
        match self.mutant {
            Some(Mutant::RaisedTokenForgotten) => state.server.last_token = before,
            Some(Mutant::RaiseLowers) if is_there => state.server.last_token = token.as_u64(),
            Some(Mutant::LostHoldRaises | Mutant::RefusedRaiseTakesEffect) => {
                state.server.last_token = state.server.last_token.max(token.as_u64());
            }
            Some(Mutant::RaiseEndsTheHold) => state.keep_only(&name, now, |hold| hold.holder != holder),
            _ => {}
        }
        Ok(is_there || self.has(Mutant::LostHoldRaises))
    }

    /// Ends a hold that its holder is about to come back to, for the mutant that downgrades in two steps.
    pub(super) fn let_go(&self, name: &LockName, holder: HolderId) -> Result<()> {
        let (mut state, name, now) = self.at(name)?;
        state.keep_only(&name, now, |hold| hold.holder != holder);
        self.freed.notify_waiters();
        Ok(())
    }

    /// Releases a hold, and returns whether there was one. Afterwards nobody holds it, and it stays for `keep_for`.
    pub(super) fn release(&self, name: &LockName, holder: HolderId, keep_for: Option<Duration>) -> Result<bool> {
        let (mut state, name, now) = self.at(name)?;
        let anybodys = self.has(Mutant::ReleaseWithoutCompare) || state.notes.revoked.contains(&holder);
        let first = state.holds(&name).next().map(|hold| hold.holder);
        let own = self.whose(&mut state, &name, holder, Mutant::KeptIdLivesOn);
        let own = self.whose(&mut state, &name, own, Mutant::RepeatedReleaseKeepsAnew);
        let released = first.filter(|_| anybodys).unwrap_or(own);
        let hold = state.hold_of(&name, released).map(|hold| hold.clone());
        let hold = hold.filter(|hold| hold.expires > now);
        let keep_for = keep_for.filter(|_| !self.has(Mutant::KeepForIgnored));
        let keep_for = keep_for.zip(hold.as_ref()).map(|(rest, hold)| match self.mutant {
            Some(Mutant::KeepForCannotShorten) => rest.max(hold.expires - now),
            Some(Mutant::KeepForCannotProlong) => rest.min(hold.expires - now),
            _ => rest,
        });
        let was_there = state.server.release(&name, released, now, keep_for);
        state.server.dead.add(holder, now);
        state.come_back_again(holder);
        self.has_changed();
        self.wake(hold.as_ref());
        let Some(hold) = hold else {
            return Ok(was_there || self.has(Mutant::ReleaseNeverSaysLost));
        };
        if keep_for.is_some()
            && let Some(kept) = state.holds(&name).last()
        {
            kept.grant.with = Some(holder);
        }
        if self.has(Mutant::FirstReaderFreesTheName) && hold.mode == Mode::Shared {
            state.keep_only(&name, now, |other| other.mode != Mode::Shared);
        }
        state.notes.last_end.insert(name, hold.expires);
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

    pub(super) fn abandon(&self, name: &LockName, holder: HolderId, replaces: Option<HolderId>) -> Result<()> {
        let (mut state, name, now) = self.at(name)?;
        self.has_changed();
        match (self.mutant, replaces) {
            (Some(Mutant::AbandonDoesNothing), _) => return Ok(()),
            (Some(Mutant::AbandonWithoutCompare), _) => state.keep_only(&name, now, |_| false),
            (Some(Mutant::AbandonEndsAllReaders), _) => state.keep_only(&name, now, |hold| hold.mode != Mode::Shared),
            (Some(Mutant::AbandonedUpgradeEndsTheRead), Some(base)) => {
                state.keep_only(&name, now, |hold| hold.holder != base);
            }
            (Some(Mutant::UndoneUpgradeEndsTheRead), _) => {
                if let Some(hold) = state.hold_of(&name, holder) {
                    hold.replaced = None;
                }
            }
            (Some(Mutant::AbandonLeavesThePermit), _) => {
                if let Some(hold) = state.hold_of(&name, holder)
                    && matches!(hold.mode, Mode::Permits(_))
                {
                    hold.holder = HolderId::random();
                }
            }
            _ => {}
        }
        state.server.abandon(&name, holder, now);
        if self.has(Mutant::AbandonedIdsComeBack) {
            state.server.dead.remove(holder);
        }
        state.come_back_again(holder);
        if !self.has(Mutant::LeavingWaiterWakesNobody) {
            self.freed.notify_waiters();
        }
        Ok(())
    }

    pub(super) fn status(&self, name: &LockName) -> Result<LockStatus> {
        let (state, name, now) = self.at(name)?;
        let mut status = state.server.status(&name, now, SystemTime::now());
        let waiters = status.waiters.as_mut().into_iter();
        match self.mutant {
            Some(Mutant::StatusShowsOneReader) => status.holders.truncate(1),
            Some(Mutant::StatusShowsOneId) => {
                let holders = status.holders.iter_mut();
                holders.for_each(|holder| holder.id = Some("the name's".into()));
            }
            Some(Mutant::WaitersHideTheToken) if status.waiting != Some(0) => {
                status.holders.iter_mut().for_each(|holder| holder.token = None);
            }
            Some(Mutant::FreeNameCountsNobody) if status.holders.is_empty() => status.waiting = None,
            Some(Mutant::WaitersInNoOrder) => waiters.for_each(|waiters| waiters.reverse()),
            _ => {}
        }
        Ok(status)
    }

    /// The status, and what completes at the next change.
    pub(super) fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
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

    pub(super) fn take_away(&self, name: &LockName) {
        let (mut state, name) = (self.lock(), self.key(name));
        state.keep_only(&name, Instant::now(), |_| false);
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
        match self.mutant {
            Some(Mutant::HoldsLostAtRestart | Mutant::SessionEndsWithTheServer) => {
                state.server.names.values_mut().for_each(|name| name.holds.clear())
            }
            Some(Mutant::CounterLostAtRestart) => state.server.last_token = 0,
            _ => {}
        }
        state.down = false;
        state.restarts += 1;
    }

    /// The number of times that the server has started again.
    pub(super) fn restarts(&self) -> u64 {
        self.lock().restarts
    }

    /// Whose hold a request of this id is taken to mean. This mutant finds what is kept of a hold by its former holder.
    fn whose(&self, state: &mut State, name: &LockName, holder: HolderId, mutant: Mutant) -> HolderId {
        let mut kept = state.holds(name).filter(|hold| hold.grant.with == Some(holder));
        let kept = kept.next().filter(|_| self.has(mutant));
        kept.map_or(holder, |hold| hold.holder)
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
