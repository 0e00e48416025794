//! The state that a lock server keeps, here in a map.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::backend::{AcquireRequest, Armed, HolderId, HolderStatus, Lease, LockStatus, rules};
use crate::error::{Error, ErrorKind, Result};
use crate::lost::LostCause;
use crate::name::LockName;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, Notify};
use crate::token::FencingToken;

/// How long an abandoned id is remembered as dead.
const TOMBSTONE: Duration = Duration::from_secs(60);

/// What no process outlives, and what every clock can count.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The last token is never forgotten, so no clock has to stand in for it.
const NO_CLOCK: u64 = 0;

#[derive(Debug)]
pub(super) struct MemoryServer(Mutex<State>);

#[derive(Debug)]
struct State {
    available: bool,
    /// Of all names, so that a released name leaves nothing behind.
    last_token: u64,
    names: HashMap<LockName, Entry>,
    tombstones: Tombstones,
}

/// Ids that were abandoned, which may come late.
#[derive(Debug, Default)]
struct Tombstones {
    dead: HashSet<HolderId>,
    by_age: VecDeque<(Instant, HolderId)>,
}

impl Tombstones {
    fn add(&mut self, holder: HolderId, now: Instant) {
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
}

#[derive(Debug, Default)]
struct Entry {
    hold: Option<Record>,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Record {
    holder: HolderId,
    label: Option<Arc<str>>,
    token: FencingToken,
    expires: Instant,
    lease: Option<Lease>,
}

#[derive(Debug)]
struct Waiter {
    holder: HolderId,
    wake: Arc<Notify>,
}

pub(super) enum Answer {
    Granted(FencingToken, Armed),
    Taken(Taken),
}

pub(super) struct Taken {
    pub(super) label: Option<Arc<str>>,
    /// When the hold ends unless it is renewed; `None` when the name is free but another waiter's turn.
    pub(super) expires: Option<Instant>,
}

impl MemoryServer {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            available: true,
            last_token: 0,
            names: HashMap::new(),
            tombstones: Tombstones::default(),
        }))
    }

    /// Grants, or says who has it; then queues behind the other waiters where `wake` is given.
    ///
    /// The lease is armed under the server's lock, so that nobody can take the hold away before.
    pub(super) fn acquire(&self, request: &AcquireRequest, wake: Option<&Arc<Notify>>) -> Result<Answer> {
        let mut state = self.0.lock();
        state.check_available()?;
        let sent = request.sending();
        let now = Instant::now();
        let (name, holder, ttl) = (request.name(), request.holder(), request.ttl());
        if state.tombstones.dead.contains(&holder) {
            return Err(Error::new(ErrorKind::Unexpected, "this request was abandoned").with_name(name));
        }
        let last_token = state.last_token;
        let entry = state.live_entry(name, now);
        if let Some(hold) = entry.hold.as_mut().filter(|hold| rules::is_mine(&hold.holder, &holder)) {
            hold.expires = rules::prolonged(hold.expires, now, ttl);
            return Ok(Answer::Granted(hold.token, request.lease().arm(sent, ttl)?));
        }
        if entry.hold.is_some() || !rules::may_take(&holder, entry.next().map(|waiter| &waiter.holder)) {
            let taken = match &entry.hold {
                Some(hold) => Taken {
                    label: hold.label.clone(),
                    expires: Some(hold.expires),
                },
                None => Taken {
                    label: None,
                    expires: None,
                },
            };
            let is_queued = entry.waiters.iter().any(|waiter| waiter.holder == holder);
            if let Some(wake) = wake.filter(|_| !is_queued) {
                entry.waiters.push_back(Waiter {
                    holder,
                    wake: wake.clone(),
                });
            }
            return Ok(Answer::Taken(taken));
        }
        let token = next_token(last_token, request)?;
        entry.waiters.retain(|waiter| waiter.holder != holder);
        entry.hold = Some(Record::granted(request, token, now));
        state.last_token = token.as_u64();
        Ok(Answer::Granted(token, request.lease().arm(sent, ttl)?))
    }

    /// Leaves the queue, waking whoever comes next.
    pub(super) fn leave(&self, name: &LockName, holder: HolderId) {
        self.0
            .lock()
            .change(name, |entry| entry.waiters.retain(|waiter| waiter.holder != holder));
    }

    /// Whether there was a hold of this holder to prolong.
    pub(super) fn renew(&self, name: &LockName, holder: HolderId, ttl: Duration) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.check_available()?;
        let Some(hold) = state.names.get_mut(name).and_then(|entry| entry.hold.as_mut()) else {
            return Ok(false);
        };
        if !rules::is_mine(&hold.holder, &holder) || rules::has_expired(hold.expires, now) {
            return Ok(false);
        }
        hold.expires = rules::prolonged(hold.expires, now, ttl);
        Ok(true)
    }

    /// Whether there was a hold of this holder to end. With `keep_for`, nobody's hold replaces it for that long.
    pub(super) fn release(&self, name: &LockName, holder: HolderId, keep_for: Option<Duration>) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.check_available()?;
        Ok(state.change(name, |entry| {
            let hold = entry.hold.take_if(|hold| rules::is_mine(&hold.holder, &holder));
            let Some(hold) = hold.filter(|hold| !rules::has_expired(hold.expires, now)) else {
                return false;
            };
            entry.hold = keep_for.map(|rest| Record {
                holder: HolderId::random(),
                expires: rules::prolonged(now, now, rest),
                lease: None,
                ..hold
            });
            if entry.hold.is_some() {
                // Whoever waits was told of another end.
                entry.waiters.iter().for_each(|waiter| waiter.wake.notify_one());
            }
            true
        }))
    }

    /// Passes the giver's hold on; the same answer again to who has got it already. `None` when it was not the giver's.
    pub(super) fn hand_over(&self, giver: HolderId, next: &AcquireRequest) -> Result<Option<(FencingToken, Armed)>> {
        let mut state = self.0.lock();
        state.check_available()?;
        let sent = next.sending();
        let now = Instant::now();
        let last_token = state.last_token;
        let is_dead = state.tombstones.dead.contains(&next.holder());
        let entry = state.live_entry(next.name(), now);
        let Some(hold) = entry.hold.as_mut().filter(|_| !is_dead) else {
            return Ok(None);
        };
        if rules::is_mine(&hold.holder, &giver) {
            let token = next_token(last_token, next)?;
            let former = std::mem::replace(hold, Record::granted(next, token, now));
            if hold.expires < former.expires {
                // Whoever waits was told of a later end.
                entry.waiters.iter().for_each(|waiter| waiter.wake.notify_one());
            }
            state.last_token = token.as_u64();
            Ok(Some((token, next.lease().arm(sent, next.ttl())?)))
        } else if rules::is_mine(&hold.holder, &next.holder()) {
            hold.expires = rules::prolonged(hold.expires, now, next.ttl());
            Ok(Some((hold.token, next.lease().arm(sent, next.ttl())?)))
        } else {
            Ok(None)
        }
    }

    pub(super) fn abandon(&self, name: &LockName, holder: HolderId) -> Result<()> {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.check_available()?;
        state.tombstones.add(holder, now);
        state.change(name, |entry| {
            entry.hold.take_if(|hold| rules::is_mine(&hold.holder, &holder));
            if let Some(index) = entry.waiters.iter().position(|waiter| waiter.holder == holder)
                && let Some(waiter) = entry.waiters.remove(index)
            {
                waiter.wake.notify_one();
            }
        });
        Ok(())
    }

    pub(super) fn status(&self, name: &LockName) -> Result<LockStatus> {
        let now = Instant::now();
        let state = self.0.lock();
        state.check_available()?;
        let Some(entry) = state.names.get(name) else {
            return Ok(LockStatus::free().with_waiting(0));
        };
        let hold = entry
            .hold
            .as_ref()
            .filter(|hold| !rules::has_expired(hold.expires, now));
        let status = hold.map_or_else(LockStatus::free, |hold| {
            let holder = HolderStatus::new()
                .with_token(hold.token)
                .with_expires_in(hold.expires - now);
            LockStatus::held(match &hold.label {
                Some(label) => holder.with_label(label.clone()),
                None => holder,
            })
        });
        Ok(status.with_waiting(entry.waiters.len()))
    }

    pub(super) fn check_available(&self) -> Result<()> {
        self.0.lock().check_available()
    }

    pub(super) fn set_available(&self, available: bool) {
        let mut state = self.0.lock();
        state.available = available;
        for waiter in state.names.values().flat_map(|entry| &entry.waiters) {
            waiter.wake.notify_one();
        }
    }

    /// Ends whatever hold there is, and tells its lease.
    pub(super) fn take_away(&self, name: &LockName) -> bool {
        let mut state = self.0.lock();
        let hold = state.change(name, |entry| entry.hold.take());
        drop(state);
        let Some(hold) = hold else { return false };
        if let Some(lease) = hold.lease {
            lease.lose(LostCause::NotHeld);
        }
        true
    }

    /// Takes the name for somebody who is no client of ours, over whoever has it.
    pub(super) fn hold_elsewhere(&self, name: &LockName, ttl: Duration) -> FencingToken {
        let now = Instant::now();
        let mut state = self.0.lock();
        let token =
            rules::next_token(state.last_token, NO_CLOCK, None).expect("nobody counts to 2^63 in a process's life");
        state.last_token = token.as_u64();
        let hold = Record {
            holder: HolderId::random(),
            label: Some("elsewhere".into()),
            token,
            expires: rules::prolonged(now, now, ttl.min(FOR_EVER)),
            lease: None,
        };
        let former = state.names.entry(name.clone()).or_default().hold.replace(hold);
        drop(state);
        if let Some(lease) = former.and_then(|former| former.lease) {
            lease.lose(LostCause::NotHeld);
        }
        token
    }
}

fn next_token(last: u64, request: &AcquireRequest) -> Result<FencingToken> {
    rules::next_token(last, NO_CLOCK, request.token_floor())
        .ok_or_else(|| Error::new(ErrorKind::Unexpected, "all tokens are used up").with_name(request.name()))
}

impl Record {
    fn granted(request: &AcquireRequest, token: FencingToken, now: Instant) -> Self {
        Self {
            holder: request.holder(),
            label: request.label(),
            token,
            expires: rules::prolonged(now, now, request.ttl()),
            lease: Some(request.lease().clone()),
        }
    }
}

impl Entry {
    /// Whose turn a free name is. A waiter leaves by itself: no entry of the queue has an end, so that any moment will do.
    fn next(&self) -> Option<&Waiter> {
        rules::who_is_next(self.waiters.iter().map(|waiter| (waiter, None)), Duration::ZERO)
    }
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

    /// The name's entry, without a hold that has expired.
    fn live_entry(&mut self, name: &LockName, now: Instant) -> &mut Entry {
        let entry = self.names.entry(name.clone()).or_default();
        entry.hold.take_if(|hold| rules::has_expired(hold.expires, now));
        entry
    }

    /// Changes an entry; then wakes its first waiter if the name is free, and forgets it if nobody is there.
    fn change<T: Default>(&mut self, name: &LockName, change: impl FnOnce(&mut Entry) -> T) -> T {
        let Some(entry) = self.names.get_mut(name) else {
            return T::default();
        };
        let result = change(entry);
        if entry.hold.is_none() {
            match entry.next() {
                Some(waiter) => waiter.wake.notify_one(),
                None => drop(self.names.remove(name)),
            }
        }
        result
    }
}
