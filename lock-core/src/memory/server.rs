//! The server of a memory backend: its clients, which it wakes, and whether it answers.

use std::time::{Duration, SystemTime};

use super::followers::Followers;
use super::lock_server::{LockServer, ServerName, next_token};
use super::name_state::{HoldRecord, NameState};
use super::records::{Acquire, Answer, Grant};
use crate::backend::{
    AcquireRequest, Armed, HolderId, Lease, ListFrom, ListPage, LockStatus, Mode, Revoke, Revoked, rules,
};
use crate::error::{Error, ErrorKind, Result};
use crate::lost::LostCause;
use crate::name::LockName;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, Notify};
use crate::token::FencingToken;

/// A time that no process outlives, and that every clock can count.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The last token is never forgotten, so no clock has to stand in for it.
const NO_CLOCK: u64 = 0;

#[derive(Debug)]
pub(super) struct MemoryServer(Mutex<State>);

#[derive(Debug)]
struct State {
    available: bool,
    server: LockServer<Option<Lease>, Turn>,
    followers: Followers,
}

/// The signal that wakes a waiter.
#[derive(Debug)]
struct Turn {
    wake: Arc<Notify>,
    /// The moment at which the name may be free, as the waiter was last told.
    ends: Option<Instant>,
}

pub(super) enum Acquired {
    Granted(FencingToken, Armed),
    Taken(Taken),
}

pub(super) struct Taken {
    pub(super) label: Option<Arc<str>>,
    /// The end of the hold that ends first unless it is renewed; `None` if the name is free but another waiter's turn.
    pub(super) expires: Option<Instant>,
}

impl MemoryServer {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            available: true,
            server: LockServer::default(),
            followers: Followers::default(),
        }))
    }

    /// Grants, or says who has it; then queues behind the other waiters where `wake` is given.
    ///
    /// The lease is armed under the server's lock, so that nobody can take the hold away before.
    pub(super) fn acquire(&self, request: &AcquireRequest, wake: Option<&Arc<Notify>>) -> Result<Acquired> {
        let mut state = self.0.lock();
        state.check_available()?;
        let sent = request.sending();
        let now = Instant::now();
        let (name, acquire) = (request.name(), Acquire::new(request));
        let last_token = state.server.last_token;
        let lease = Some(request.lease().clone());
        let answer = state
            .server
            .acquire(name, &acquire, (now, NO_CLOCK), NameState::admits, lease);
        match answer {
            Ok(Answer::Granted(token)) => {
                if state.server.last_token != last_token {
                    state.wake_misinformed(name);
                    state.followers.tell(name);
                }
                Ok(Acquired::Granted(token, request.lease().arm(sent, acquire.ttl)?))
            }
            Ok(Answer::Busy { label, expires: ends }) => {
                if let Some(wake) = wake {
                    let wake = || Turn {
                        wake: wake.clone(),
                        ends,
                    };
                    state.server.wait(name, &acquire, (now, None), wake).with.ends = ends;
                }
                Ok(Acquired::Taken(Taken { label, expires: ends }))
            }
            Err(error) => {
                state.wake_admitted(name);
                Err(error)
            }
        }
    }

    /// Removes the holder's queue entry, and wakes the waiters that may have the name then.
    pub(super) fn leave(&self, name: &LockName, holder: HolderId) {
        let (mut state, now) = (self.0.lock(), Instant::now());
        state.server.change(name, now, |name| drop(name.leave(holder)));
        state.has_changed(name);
    }

    /// Prolongs the hold of this holder. Returns whether there was one.
    pub(super) fn renew(&self, name: &LockName, holder: HolderId, ttl: Duration) -> Result<bool> {
        let mut state = self.0.lock();
        state.check_available()?;
        Ok(state.server.renew(name, holder, Instant::now(), ttl))
    }

    pub(super) fn raise(&self, name: &LockName, holder: HolderId, token: FencingToken) -> Result<()> {
        match self.change(name, |server, now| server.raise(name, holder, now, token))? {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Lost, "the hold has ended").with_name(name)),
        }
    }

    /// Makes the hold of this holder shared. Returns whether there was one.
    pub(super) fn downgrade(&self, name: &LockName, holder: HolderId, ttl: Duration) -> Result<bool> {
        self.change(name, |server, now| server.downgrade(name, holder, now, ttl))
    }

    /// Ends the hold of this holder, and returns whether there was one. With `keep_for`, the name stays taken for that
    /// long.
    pub(super) fn release(&self, name: &LockName, holder: HolderId, keep_for: Option<Duration>) -> Result<bool> {
        self.change(name, |server, now| server.release(name, holder, now, keep_for))
    }

    /// Moves the hold of this holder to another token and lease. Returns whether there was one. It needs no request to
    /// a server.
    pub(super) fn pass(&self, name: &LockName, holder: HolderId, token: FencingToken, lease: &Lease) -> bool {
        let state = &mut *self.0.lock();
        let hold = state.server.names.get_mut(name).and_then(|name| name.hold_of(holder));
        let Some(hold) = hold else { return false };
        hold.grant.token = token;
        hold.grant.with = Some(lease.clone());
        state.followers.tell(name);
        true
    }

    pub(super) fn abandon(&self, name: &LockName, holder: HolderId) -> Result<()> {
        let left = self.change(name, |server, now| server.abandon(name, holder, now))?;
        if let Some(entry) = left {
            entry.with.with.wake.notify_one();
        }
        Ok(())
    }

    pub(super) fn status(&self, name: &LockName) -> Result<LockStatus> {
        let state = self.0.lock();
        state.check_available()?;
        Ok(state.server.status(name, Instant::now(), SystemTime::now()))
    }

    /// Returns the status, and a signal for the next change.
    pub(super) fn follow(&self, name: &LockName) -> Result<(LockStatus, Arc<Notify>)> {
        let mut state = self.0.lock();
        state.check_available()?;
        let changed = state.followers.add(name);
        Ok((state.server.status(name, Instant::now(), SystemTime::now()), changed))
    }

    /// The next names in their order.
    pub(super) fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let state = self.0.lock();
        state.check_available()?;
        Ok(state.server.list(from, at_most, Instant::now()))
    }

    /// Ends the hold of this name with this token, at once or when its lease ends, and reports that to its lease.
    pub(super) fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let now = Instant::now();
        let revoked = self.change(name, |server, now| server.revoke(name, token, now, how))?;
        let Some(hold) = revoked else {
            return Ok(Revoked::NotHeld);
        };
        lose(std::slice::from_ref(&hold), LostCause::Revoked);
        Ok(Revoked::done(hold.expires.saturating_duration_since(now)))
    }

    pub(super) fn check_available(&self) -> Result<()> {
        self.0.lock().check_available()
    }

    pub(super) fn set_available(&self, available: bool) {
        let mut state = self.0.lock();
        state.available = available;
        let waiters = state.server.names.values().flat_map(|name| &name.queue);
        waiters.for_each(|entry| entry.with.with.wake.notify_one());
    }

    /// Ends all holds of the name, and reports that to their leases.
    pub(super) fn take_away(&self, name: &LockName) -> bool {
        let (mut state, now) = (self.0.lock(), Instant::now());
        let taken = state.server.change(name, now, |name| std::mem::take(&mut name.holds));
        let holds = taken.unwrap_or_default();
        state.has_changed(name);
        drop(state);
        lose(&holds, LostCause::NotHeld);
        !holds.is_empty()
    }

    /// Takes the name for a client that is not ours, whoever has it.
    pub(super) fn hold_elsewhere(&self, name: &LockName, ttl: Duration) -> Result<FencingToken> {
        let (mut state, now) = (self.0.lock(), Instant::now());
        let server = &mut state.server;
        let token = next_token(server.last_token, name, NO_CLOCK, None)?;
        server.last_token = token.as_u64();
        let hold = HoldRecord {
            holder: HolderId::random(),
            mode: Mode::Exclusive,
            expires: rules::prolonged(now, now, ttl.min(FOR_EVER)),
            grant: Grant {
                label: Some("elsewhere".into()),
                token,
                granted: token,
                last_token: token,
                since: now,
                with: None,
            },
            replaced: None,
        };
        let holds = &mut server.names.entry(name.clone()).or_default().holds;
        let former = std::mem::replace(holds, vec![hold]);
        state.has_changed(name);
        drop(state);
        lose(&former, LostCause::NotHeld);
        Ok(token)
    }

    /// One request that may change who holds the name.
    fn change<T>(
        &self,
        name: &LockName,
        change: impl FnOnce(&mut LockServer<Option<Lease>, Turn>, Instant) -> T,
    ) -> Result<T> {
        let mut state = self.0.lock();
        state.check_available()?;
        let changed = change(&mut state.server, Instant::now());
        state.has_changed(name);
        Ok(changed)
    }
}

fn lose(holds: &[HoldRecord<HolderId, Instant, Grant<Option<Lease>>>], cause: LostCause) {
    let leases = holds.iter().filter_map(|hold| hold.grant.with.as_ref());
    leases.for_each(|lease| lease.lose(cause));
}

impl State {
    fn check_available(&self) -> Result<()> {
        match self.available {
            true => Ok(()),
            false => {
                let message = "the memory backend was made unavailable: call `set_available(true)`";
                Err(Error::new(ErrorKind::Unavailable, message).not_executed())
            }
        }
    }

    /// Wakes those that may have the name now or sooner than they know, and those that follow it.
    fn has_changed(&mut self, name: &LockName) {
        self.wake_admitted(name);
        self.wake_misinformed(name);
        self.followers.tell(name);
    }

    /// Wakes all waiters that may have the name now. A waiter leaves by itself: no entry of the queue has an end.
    fn wake_admitted(&self, name: &LockName) {
        let admitted = self.name(name).map(|name| name.admitted(|_| true));
        let admitted = admitted.into_iter().flatten();
        admitted.for_each(|entry| entry.with.with.wake.notify_one());
    }

    /// Wakes the waiters that would sleep past the end of a hold. A hold that expires wakes nobody.
    fn wake_misinformed(&self, name: &LockName) {
        let Some(name) = self.name(name) else { return };
        let Some(end) = name.next_end() else { return };
        let sleeps_longer = |known: Option<Instant>| known.is_none_or(|known| known > end);
        let misinformed = name.queue.iter().filter(|entry| sleeps_longer(entry.with.with.ends));
        misinformed.for_each(|entry| entry.with.with.wake.notify_one());
    }

    fn name(&self, name: &LockName) -> Option<&ServerName<Option<Lease>, Turn>> {
        self.server.names.get(name)
    }
}
