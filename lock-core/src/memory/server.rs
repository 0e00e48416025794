//! The state that a lock server keeps, here in a map.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, SystemTime};

use super::entry::{Entry, Record, last_reserved};
use super::followers::Followers;
use crate::backend::{
    AcquireRequest, Armed, HolderId, HolderStatus, Lease, ListFrom, ListPage, LockStatus, Mode, Revoke, Revoked,
    WaiterStatus, rules,
};
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
    followers: Followers,
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

pub(super) enum Answer {
    Granted(FencingToken, Armed),
    Taken(Taken),
}

pub(super) struct Taken {
    pub(super) label: Option<Arc<str>>,
    /// When the first hold ends unless it is renewed; `None` when the name is free but another waiter's turn.
    pub(super) expires: Option<Instant>,
}

impl MemoryServer {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            available: true,
            last_token: 0,
            names: HashMap::new(),
            tombstones: Tombstones::default(),
            followers: Followers::default(),
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
        if let Some(hold) = entry.hold_of(holder) {
            hold.expires = rules::prolonged(hold.expires, now, ttl);
            return Ok(Answer::Granted(hold.token, request.lease().arm(sent, ttl)?));
        }
        if let Some(base) = request.replaces()
            && entry.hold_of(base).is_none()
        {
            entry.waiters.retain(|waiter| waiter.holder != holder);
            entry.wake_admitted();
            return Err(Error::new(ErrorKind::Lost, "the hold that was to be upgraded has ended").with_name(name));
        }
        if !entry.admits(request) {
            if let Some(wake) = wake {
                entry.queue(request, wake);
            }
            return Ok(Answer::Taken(Taken {
                label: entry.holds.first().and_then(|hold| hold.label.clone()),
                expires: entry.ends(),
            }));
        }
        let token = next_token(last_token, request)?;
        entry.grant(request, token, now);
        state.last_token = last_reserved(token, request).as_u64();
        state.followers.tell(name);
        Ok(Answer::Granted(token, request.lease().arm(sent, ttl)?))
    }

    /// Leaves the queue, waking whoever may have the name then.
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
        let hold = state.names.get_mut(name).and_then(|entry| entry.hold_of(holder));
        let Some(hold) = hold.filter(|hold| !rules::has_expired(hold.expires, now)) else {
            return Ok(false);
        };
        hold.expires = rules::prolonged(hold.expires, now, ttl);
        Ok(true)
    }

    pub(super) fn raise(&self, name: &LockName, holder: HolderId, token: FencingToken) -> Result<()> {
        let mut state = self.0.lock();
        state.check_available()?;
        let state = &mut *state;
        let Some(hold) = state.names.get_mut(name).and_then(|entry| entry.hold_of(holder)) else {
            return Err(Error::new(ErrorKind::Lost, "the hold has ended").with_name(name));
        };
        hold.token = hold.token.max(token);
        state.last_token = state.last_token.max(token.as_u64());
        state.followers.tell(name);
        Ok(())
    }

    /// Whether there was a hold of this holder to share from now on.
    pub(super) fn downgrade(&self, name: &LockName, holder: HolderId, ttl: Duration) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.check_available()?;
        Ok(state.change(name, |entry| {
            let hold = entry.hold_of(holder);
            let Some(hold) = hold.filter(|hold| !rules::has_expired(hold.expires, now)) else {
                return false;
            };
            hold.mode = Mode::Shared;
            hold.replaced = None;
            hold.expires = rules::prolonged(hold.expires, now, ttl);
            true
        }))
    }

    /// Whether there was a hold of this holder to end. With `keep_for`, nobody's hold replaces it for that long.
    pub(super) fn release(&self, name: &LockName, holder: HolderId, keep_for: Option<Duration>) -> Result<bool> {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.check_available()?;
        Ok(state.change(name, |entry| {
            let Some(hold) = entry.end(holder).filter(|hold| !rules::has_expired(hold.expires, now)) else {
                return false;
            };
            let Some(rest) = keep_for else { return true };
            entry.holds.push(Record {
                expires: rules::prolonged(now, now, rest),
                ..hold.of_nobody()
            });
            // Whoever waits was told of another end.
            entry.waiters.iter().for_each(|waiter| waiter.wake.notify_one());
            true
        }))
    }

    /// Whether the hold was this holder's, which has it with this token and lease from now on. No request: it needs no server.
    pub(super) fn pass(&self, name: &LockName, holder: HolderId, token: FencingToken, lease: &Lease) -> bool {
        let state = &mut *self.0.lock();
        let Some(hold) = state.names.get_mut(name).and_then(|entry| entry.hold_of(holder)) else {
            return false;
        };
        hold.token = token;
        hold.lease = Some(lease.clone());
        state.followers.tell(name);
        true
    }

    pub(super) fn abandon(&self, name: &LockName, holder: HolderId) -> Result<()> {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.check_available()?;
        state.tombstones.add(holder, now);
        state.change(name, |entry| entry.undo(holder, now));
        Ok(())
    }

    pub(super) fn status(&self, name: &LockName) -> Result<LockStatus> {
        let state = self.0.lock();
        state.check_available()?;
        Ok(state.status(name))
    }

    /// The same, and what is notified of the next change.
    pub(super) fn follow(&self, name: &LockName) -> Result<(LockStatus, Arc<Notify>)> {
        let mut state = self.0.lock();
        state.check_available()?;
        let changed = state.followers.add(name);
        Ok((state.status(name), changed))
    }

    /// The next names in their order.
    pub(super) fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let now = Instant::now();
        let state = self.0.lock();
        state.check_available()?;
        let is_used = |entry: &Entry| {
            !entry.waiters.is_empty() || entry.holds.iter().any(|hold| !rules::has_expired(hold.expires, now))
        };
        let mut names: Vec<&LockName> = state
            .names
            .iter()
            .filter(|(name, entry)| {
                let name = name.as_str();
                name.starts_with(from.name_prefix()) && from.after().is_none_or(|after| name > after) && is_used(entry)
            })
            .map(|(name, _)| name)
            .collect();
        names.sort_unstable();
        let is_last = names.len() <= at_most;
        names.truncate(at_most);
        let next = names
            .last()
            .filter(|_| !is_last)
            .map(|last| from.go_on_after(last.as_str()));
        Ok(ListPage::new(names.into_iter().cloned(), next))
    }

    /// Ends the hold of this name with this token, at once or when its lease ends; its lease is told.
    pub(super) fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.check_available()?;
        let revoked = state.change(name, |entry| {
            let place = entry.position_of(token)?;
            let hold = entry.holds.remove(place);
            if how == Revoke::AtLeaseEnd {
                entry.holds.insert(place, hold.of_nobody());
            }
            Some(hold)
        });
        drop(state);
        let Some(hold) = revoked.filter(|hold| !rules::has_expired(hold.expires, now)) else {
            return Ok(Revoked::NotHeld);
        };
        hold.lose(LostCause::Revoked);
        Ok(Revoked::done(hold.expires - now))
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

    /// Ends all holds that there are, and tells their leases.
    pub(super) fn take_away(&self, name: &LockName) -> bool {
        let mut state = self.0.lock();
        let holds = state.change(name, |entry| std::mem::take(&mut entry.holds));
        drop(state);
        holds.iter().for_each(|hold| hold.lose(LostCause::NotHeld));
        !holds.is_empty()
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
            mode: Mode::Exclusive,
            label: Some("elsewhere".into()),
            token,
            granted: token,
            last_token: token,
            expires: rules::prolonged(now, now, ttl.min(FOR_EVER)),
            since: now,
            lease: None,
            replaced: None,
        };
        let holds = &mut state.names.entry(name.clone()).or_default().holds;
        let former = std::mem::replace(holds, vec![hold]);
        state.followers.tell(name);
        drop(state);
        former.iter().for_each(|hold| hold.lose(LostCause::NotHeld));
        token
    }
}

fn next_token(last: u64, request: &AcquireRequest) -> Result<FencingToken> {
    let at_least = request.token_at_least().map_or(NO_CLOCK, FencingToken::as_u64);
    rules::next_token(last, at_least, request.token_floor())
        .ok_or_else(|| Error::new(ErrorKind::Unexpected, "all tokens are used up").with_name(request.name()))
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

    fn status(&self, name: &LockName) -> LockStatus {
        let (now, time) = (Instant::now(), SystemTime::now());
        // On paused time, as far back as its clock says.
        let clock = |since: Instant| time - now.saturating_duration_since(since);
        let Some(entry) = self.names.get(name) else {
            return LockStatus::free().with_waiters([]);
        };
        let live = entry.holds.iter().filter(|hold| !rules::has_expired(hold.expires, now));
        let status = LockStatus::held_by(live.map(|hold| {
            let holder = HolderStatus::new()
                .with_token(hold.token)
                .with_mode(hold.mode)
                .with_id(hold.holder.to_string())
                .with_since(clock(hold.since))
                .with_expires_in(hold.expires - now);
            match &hold.label {
                Some(label) => holder.with_label(label.clone()),
                None => holder,
            }
        }));
        let waiters = entry.waiters.iter().map(|waiter| {
            let shown = WaiterStatus::new()
                .with_mode(waiter.mode)
                .with_since(clock(waiter.since));
            match &waiter.label {
                Some(label) => shown.with_label(label.clone()),
                None => shown,
            }
        });
        status.with_waiters(waiters)
    }

    /// The name's entry, without holds that have expired.
    fn live_entry(&mut self, name: &LockName, now: Instant) -> &mut Entry {
        let entry = self.names.entry(name.clone()).or_default();
        entry.holds.retain(|hold| !rules::has_expired(hold.expires, now));
        entry
    }

    /// Changes an entry; then wakes those that may have the name now, and forgets it if nobody is there.
    fn change<T: Default>(&mut self, name: &LockName, change: impl FnOnce(&mut Entry) -> T) -> T {
        let Some(entry) = self.names.get_mut(name) else {
            return T::default();
        };
        let result = change(entry);
        entry.wake_admitted();
        self.followers.tell(name);
        if entry.holds.is_empty() && entry.waiters.is_empty() {
            self.names.remove(name);
        }
        result
    }
}
