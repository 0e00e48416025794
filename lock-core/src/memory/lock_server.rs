//! A lock server as plain data: all names, the tokens, and the ids that are dead.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use super::name_state::{Decision, HoldRecord, NameState, QueueEntry, Wanted};
use super::records::{Acquire, Answer, Grant, Tombstones, Waiting};
use crate::backend::{HolderId, HolderStatus, ListFrom, ListPage, LockStatus, Revoke, WaiterStatus, rules};
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::sync::time::Instant;
use crate::token::FencingToken;

/// A name of a [`LockServer`].
pub type ServerName<L, Q> = NameState<HolderId, Instant, Grant<L>, Waiting<Q>>;

/// A lock server as plain data, without a clock, a lock or a task of its own.
///
/// [`MemoryBackend`](super::MemoryBackend) runs on it. So does the reference of the conformance suite, behind a link that breaks,
/// and with bugs that the suite must find. `L` is the data that a server keeps with a hold beside its [`Grant`], and `Q` its data
/// for a queue entry. A hold without a holder has the default of `L`.
#[derive(Debug)]
pub struct LockServer<L, Q> {
    /// The names that are held or waited for.
    pub names: HashMap<LockName, ServerName<L, Q>>,
    /// The last token of all names, so that a released name leaves nothing behind.
    pub last_token: u64,
    /// The ids whose requests have no effect.
    pub dead: Tombstones,
    /// At how many names it looks next for those whose holds have all expired.
    sweep_at: usize,
}

/// With fewer names, none is looked for.
const FEW_NAMES: usize = 64;

impl<L, Q> Default for LockServer<L, Q> {
    fn default() -> Self {
        Self {
            names: HashMap::new(),
            last_token: 0,
            dead: Tombstones::default(),
            sweep_at: FEW_NAMES,
        }
    }
}

impl<L: Default, Q> LockServer<L, Q> {
    /// Grants the name, or says who has it. `clock` is the least number of a new token. `admits` decides whose turn it is:
    /// usually [`NameState::admits`].
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if there is no hold to upgrade, and [`ErrorKind::Unexpected`] if the id is dead or no token is left.
    pub fn acquire(
        &mut self,
        name: &LockName,
        acquire: &Acquire,
        (now, clock): (Instant, u64),
        admits: impl FnOnce(&ServerName<L, Q>, &Wanted<HolderId>) -> bool,
        with: L,
    ) -> Result<Answer> {
        let wanted = &acquire.wanted;
        if self.dead.contains(wanted.holder) {
            return Err(Error::new(ErrorKind::Unexpected, "this request was abandoned").with_name(name));
        }
        if self.names.len() >= self.sweep_at {
            self.sweep(now);
        }
        let state = self.names.entry(name.clone()).or_default();
        state.forget_expired(now);
        match state.decide(wanted, admits) {
            Decision::Grant => {}
            Decision::Repeat => {
                state.renew(wanted.holder, now, acquire.ttl);
                let hold = state
                    .hold_of(wanted.holder)
                    .expect("`decide` found the hold that is repeated");
                return Ok(Answer::Granted(hold.grant.token));
            }
            Decision::Refuse => {
                let label = state.holds.first().and_then(|hold| hold.grant.label.clone());
                let expires = state.next_end();
                return Ok(Answer::Busy { label, expires });
            }
            Decision::NothingToReplace => {
                state.leave(wanted.holder);
                if state.is_free() {
                    self.names.remove(name);
                }
                return Err(Error::new(ErrorKind::Lost, "the hold that was to be upgraded has ended").with_name(name));
            }
        }
        let clock = acquire.token_at_least.map_or(clock, FencingToken::as_u64);
        let token = next_token(self.last_token, name, clock, acquire.token_floor)?;
        let grant = Grant::new(acquire, token, now, with);
        self.last_token = grant.last_token.as_u64();
        state.grant(wanted, rules::prolonged(now, now, acquire.ttl), grant);
        if let Some(base) = wanted.replaces {
            // A late repeat of its acquire must not take the name for nobody.
            self.dead.add(base, now);
        }
        Ok(Answer::Granted(token))
    }

    /// Nobody asks again for some names whose holds expire, such as one for each day.
    fn sweep(&mut self, now: Instant) {
        self.names.retain(|_, state| {
            state.forget_expired(now);
            !state.is_free()
        });
        self.sweep_at = FEW_NAMES.max(self.names.len() * 2);
    }

    /// Queues a request that was refused, until `expires`; or refreshes its entry. Returns the server's data for the entry.
    pub fn wait(
        &mut self,
        name: &LockName,
        acquire: &Acquire,
        (now, expires): (Instant, Option<Instant>),
        with: impl FnOnce() -> Q,
    ) -> &mut Waiting<Q> {
        let state = self.names.entry(name.clone()).or_default();
        let entry = state.enter(QueueEntry {
            wanted: acquire.wanted,
            expires,
            with: Waiting {
                label: None,
                since: now,
                with: with(),
            },
        });
        entry.with.label = acquire.label.clone();
        &mut entry.with
    }

    /// Drops expired holds and entries of a name, changes its state, and removes the name if it is free then. `None`: it was
    /// free.
    pub fn change<R>(
        &mut self,
        name: &LockName,
        now: Instant,
        change: impl FnOnce(&mut ServerName<L, Q>) -> R,
    ) -> Option<R> {
        let state = self.names.get_mut(name)?;
        state.forget_expired(now);
        let changed = change(state);
        if state.is_free() {
            self.names.remove(name);
        }
        Some(changed)
    }

    /// Prolongs a hold. Returns whether there is one.
    pub fn renew(&mut self, name: &LockName, holder: HolderId, now: Instant, ttl: Duration) -> bool {
        self.change(name, now, |state| state.renew(holder, now, ttl)) == Some(true)
    }

    /// Makes a hold a shared one, and prolongs it. Returns whether there is one.
    pub fn downgrade(&mut self, name: &LockName, holder: HolderId, now: Instant, ttl: Duration) -> bool {
        self.change(name, now, |state| state.downgrade(holder, now, ttl)) == Some(true)
    }

    /// Gives a hold this token if it is larger than its own, so that all later tokens are larger. Returns whether there is one.
    pub fn raise(&mut self, name: &LockName, holder: HolderId, now: Instant, token: FencingToken) -> bool {
        let raised = self.change(name, now, |state| {
            let hold = state.hold_of(holder)?;
            hold.grant.token = hold.grant.token.max(token);
            Some(token.as_u64())
        });
        let raised = raised.flatten();
        self.last_token = self.last_token.max(raised.unwrap_or(0));
        raised.is_some()
    }

    /// Ends a hold. With `keep_for`, the name stays taken for that long. Returns whether there was one.
    pub fn release(&mut self, name: &LockName, holder: HolderId, now: Instant, keep_for: Option<Duration>) -> bool {
        let released = self.change(name, now, |state| {
            let hold = state.end(holder)?;
            if let Some(rest) = keep_for {
                state.holds.push(of_nobody(&hold, rules::prolonged(now, now, rest)));
            }
            Some(())
        });
        released.flatten().is_some()
    }

    /// Undoes a request, whose id is dead from now on. Returns its queue entry.
    pub fn abandon(
        &mut self,
        name: &LockName,
        holder: HolderId,
        now: Instant,
    ) -> Option<QueueEntry<HolderId, Instant, Waiting<Q>>> {
        self.dead.add(holder, now);
        let (left, is_back) = self.change(name, now, |state| (state.leave(holder), state.undo(holder)))?;
        if let Some(base) = is_back {
            self.dead.remove(base);
        }
        left
    }

    /// Ends the hold that has this token, at once or when its lease ends. Returns the hold.
    pub fn revoke(
        &mut self,
        name: &LockName,
        token: FencingToken,
        now: Instant,
        how: Revoke,
    ) -> Option<HoldRecord<HolderId, Instant, Grant<L>>> {
        let revoked = self.change(name, now, |state| {
            let place = state.holds.iter().position(|hold| hold.grant.has_token(token))?;
            let hold = state.holds.remove(place);
            if how == Revoke::AtLeaseEnd {
                state.holds.insert(place, of_nobody(&hold, hold.expires));
            }
            Some(hold)
        });
        revoked.flatten()
    }

    /// Returns the holders and waiters of the name, when the date is `date`.
    pub fn status(&self, name: &LockName, now: Instant, date: SystemTime) -> LockStatus {
        // On paused time, as far back as its clock says.
        let date = |since: Instant| date - now.saturating_duration_since(since);
        let Some(state) = self.names.get(name) else {
            return LockStatus::free().with_waiters([]);
        };
        let live = state.holds.iter().filter(|hold| !rules::has_expired(hold.expires, now));
        let status = LockStatus::held_by(live.map(|hold| {
            let holder = HolderStatus::new()
                .with_token(hold.grant.token)
                .with_mode(hold.mode)
                .with_id(hold.holder.to_string())
                .with_since(date(hold.grant.since))
                .with_expires_in(hold.expires - now);
            match &hold.grant.label {
                Some(label) => holder.with_label(label.clone()),
                None => holder,
            }
        }));
        let is_live = |end| !rules::has_expired(end, now);
        let live = state.queue.iter().filter(|entry| entry.expires.is_none_or(is_live));
        status.with_waiters(live.map(|entry| {
            let waiter = WaiterStatus::new()
                .with_mode(entry.wanted.mode)
                .with_since(date(entry.with.since));
            match &entry.with.label {
                Some(label) => waiter.with_label(label.clone()),
                None => waiter,
            }
        }))
    }

    /// The next names that are held or waited for, in their order.
    pub fn list(&self, from: &ListFrom, at_most: usize, now: Instant) -> ListPage {
        let is_live = |end| !rules::has_expired(end, now);
        let is_used = |state: &ServerName<L, Q>| {
            let waits = state.queue.iter().any(|entry| entry.expires.is_none_or(is_live));
            waits || state.holds.iter().any(|hold| is_live(hold.expires))
        };
        let is_next =
            |name: &str| name.starts_with(from.name_prefix()) && from.after().is_none_or(|after| name > after);
        let names = self.names.iter();
        let names = names.filter(|(name, state)| is_next(name.as_str()) && is_used(state));
        let mut names: Vec<&LockName> = names.map(|(name, _)| name).collect();
        names.sort_unstable();
        let is_last = names.len() <= at_most;
        names.truncate(at_most);
        let next = names.last().filter(|_| !is_last);
        let next = next.map(|last| from.go_on_after(last.as_str()));
        ListPage::new(names.into_iter().cloned(), next)
    }
}

/// The token after all that were granted.
pub(super) fn next_token(last: u64, name: &LockName, clock: u64, floor: Option<FencingToken>) -> Result<FencingToken> {
    rules::next_token(last, clock, floor)
        .ok_or_else(|| Error::new(ErrorKind::Unexpected, "all tokens are used up").with_name(name))
}

/// Nobody's hold with the same terms, until `expires`.
fn of_nobody<L: Default>(
    hold: &HoldRecord<HolderId, Instant, Grant<L>>,
    expires: Instant,
) -> HoldRecord<HolderId, Instant, Grant<L>> {
    let Grant {
        token,
        granted,
        last_token,
        since,
        ..
    } = hold.grant;
    HoldRecord {
        holder: HolderId::random(),
        mode: hold.mode,
        expires,
        grant: Grant {
            label: hold.grant.label.clone(),
            token,
            granted,
            last_token,
            since,
            with: L::default(),
        },
        replaced: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Mode;

    const TTL: Duration = Duration::from_secs(10);

    fn acquire(replaces: Option<HolderId>) -> Acquire {
        Acquire {
            wanted: Wanted {
                holder: HolderId::random(),
                mode: Mode::Exclusive,
                replaces,
            },
            ttl: TTL,
            label: None,
            token_floor: None,
            token_at_least: None,
            reserve: 1,
        }
    }

    #[test]
    fn names_that_nobody_asks_for_again_are_forgotten() {
        let mut server = LockServer::<(), ()>::default();
        let start = Instant::now();
        let mut add = |numbers: std::ops::Range<usize>, now| {
            for number in numbers {
                let name = LockName::new(format!("of day {number}")).unwrap();
                let acquire = acquire(None);
                let granted = server.acquire(&name, &acquire, (now, 0), NameState::admits, ());
                assert!(matches!(granted, Ok(Answer::Granted(_))));
                assert!(server.release(&name, acquire.wanted.holder, now, Some(TTL)));
            }
            server.names.len()
        };
        assert_eq!(add(0..200, start), 200);
        // Those that are still kept stay.
        assert_eq!(add(200..300, start + TTL / 2), 300);
        assert_eq!(add(300..600, start + TTL * 2), 300);
    }

    #[test]
    fn an_upgrade_without_a_hold_leaves_nothing() {
        let mut server = LockServer::<(), ()>::default();
        let acquire = acquire(Some(HolderId::random()));
        let name = LockName::new("a").unwrap();
        let answer = server.acquire(&name, &acquire, (Instant::now(), 0), NameState::admits, ());
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Lost);
        assert!(server.names.is_empty());
    }
}
