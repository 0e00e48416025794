//! A node: what a lock server does for one name.

use std::collections::HashSet;
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::rules;

use super::message::{Acquire, Answer, Id, Request};
use super::mutant::QuorumMutant;
use super::scenario::{Reinstall, Scenario};
use super::world::Clock;
use crate::server_rules::who_is_next;

/// The time for which an offer waits.
const GRACE: Duration = Duration::from_millis(100);
/// The time for which a queue entry lives without a refresh.
const ENTRY_TTL: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Node {
    /// By which it counts TTLs.
    clock: Clock,
    /// The time by which the node's date is ahead of true time. Others keep it from drifting away, unlike the clock.
    date_ahead: Duration,
    pub(super) is_up: bool,
    /// Until when it gives no fresh vote, by its clock.
    no_fresh_vote_before: Duration,
    data: Data,
}

/// The data that a restart may lose.
#[derive(Debug, Default)]
struct Data {
    hold: Option<Hold>,
    queue: Vec<Entry>,
    ended: HashSet<Id>,
    token: u64,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    id: Id,
    holder: u64,
    ttl: Duration,
    expires: Duration,
    /// It is not held yet, but reserved for this id.
    is_offer: bool,
}

#[derive(Debug)]
struct Entry {
    id: Id,
    expires: Duration,
}

impl Node {
    pub(super) fn new(clock: Clock, date_ahead: Duration, is_up: bool) -> Self {
        Self {
            clock,
            date_ahead,
            is_up,
            no_fresh_vote_before: Duration::ZERO,
            data: Data::default(),
        }
    }

    /// Loses all data.
    pub(super) fn forget(&mut self, now: Duration, scenario: &Scenario) {
        use QuorumMutant::{NoRestartDelay, NoRestartDelayNorReinstall};
        self.data = Data::default();
        if !matches!(scenario.mutant, Some(NoRestartDelay | NoRestartDelayNorReinstall)) {
            let is_short = scenario.has(QuorumMutant::RestartDelayTooShort);
            let delay = scenario.restart_delay.mul_f64(if is_short { 0.8 } else { 1.0 });
            self.no_fresh_vote_before = self.clock.at(now) + delay;
        }
    }

    /// Whether this id was ended here, as far as the node remembers.
    pub(super) fn has_ended(&self, id: Id) -> bool {
        self.data.ended.contains(&id)
    }

    /// Whether the name is held or offered.
    pub(super) fn is_taken(&mut self, now: Duration) -> bool {
        self.expire(self.clock.at(now));
        self.data.hold.is_some()
    }

    /// The answer to a request that arrives now, and the id of the request that is offered the name by it.
    pub(super) fn handle(&mut self, now: Duration, request: &Request, scenario: &Scenario) -> (Answer, Option<Id>) {
        let date = now + self.date_ahead;
        let now = self.clock.at(now);
        self.expire(now);
        match request {
            Request::Acquire(acquire) => (self.acquire(now, date, acquire, scenario), None),
            Request::End(id) => self.end(now, *id),
            Request::Status(_) => {
                let hold = self.data.hold.filter(|hold| !hold.is_offer);
                (Answer::HeldBy(hold.map(|hold| hold.holder)), None)
            }
            Request::Renew(id) => match self.held_by(*id) {
                Some(hold) => {
                    hold.expires = rules::prolonged(hold.expires, now, hold.ttl);
                    (Answer::Done, None)
                }
                None => (Answer::NotYours, None),
            },
            Request::Raise(id, to) => match self.held_by(*id) {
                Some(_) => {
                    self.data.token = self.data.token.max(to.as_u64());
                    (Answer::Done, None)
                }
                None => (Answer::NotYours, None),
            },
        }
    }

    fn acquire(&mut self, now: Duration, date: Duration, acquire: &Acquire, scenario: &Scenario) -> Answer {
        if self.data.ended.contains(&acquire.id) && !scenario.has(QuorumMutant::NoTombstones) {
            return Answer::Ended;
        }
        let reinstates = acquire.reinstates && scenario.reinstall == Reinstall::AtOnce;
        if now < self.no_fresh_vote_before && !reinstates {
            return Answer::MayHaveForgotten;
        }
        let expires = rules::prolonged(now, now, acquire.ttl);
        if let Some(hold) = &mut self.data.hold {
            let is_mine = rules::is_mine(&hold.id, &acquire.id);
            if is_mine && !hold.is_offer {
                hold.expires = hold.expires.max(expires);
                return Answer::Granted(token(self.data.token));
            }
            if !is_mine && !acquire.by_force {
                let (left, holder) = (hold.expires - now, hold.holder);
                if acquire.waits {
                    self.queue(now, acquire.id);
                }
                return Answer::Busy(left, holder);
            }
        }
        self.data.queue.retain(|entry| entry.id != acquire.id);
        self.data.hold = Some(Hold {
            id: acquire.id,
            holder: acquire.holder,
            ttl: acquire.ttl,
            expires,
            is_offer: false,
        });
        // Counted on. What is adopted is as good as the date, which makes a fresh token.
        let date = u64::try_from(date.as_micros()).unwrap_or(u64::MAX);
        let at_least = acquire.adopts.map_or(date, FencingToken::as_u64);
        let next = rules::next_token(self.data.token, at_least, None).expect("numbers are left");
        self.data.token = next.as_u64();
        Answer::Granted(next)
    }

    fn queue(&mut self, now: Duration, id: Id) {
        let expires = now + ENTRY_TTL;
        match self.data.queue.iter_mut().find(|entry| entry.id == id) {
            Some(entry) => entry.expires = expires,
            None => self.data.queue.push(Entry { id, expires }),
        }
    }

    fn end(&mut self, now: Duration, id: Id) -> (Answer, Option<Id>) {
        self.data.ended.insert(id);
        self.data.queue.retain(|entry| entry.id != id);
        if !self.data.hold.is_some_and(|hold| rules::is_mine(&hold.id, &id)) {
            return (Answer::NotYours, None);
        }
        let entries = self.data.queue.iter();
        let next = who_is_next(entries.map(|entry| (entry.id, Some(entry.expires))), now);
        self.data.hold = next.map(|id| Hold {
            id,
            // Nobody's yet.
            holder: 0,
            ttl: GRACE,
            expires: now + GRACE,
            is_offer: true,
        });
        (Answer::Done, next)
    }

    fn held_by(&mut self, id: Id) -> Option<&mut Hold> {
        let hold = self.data.hold.as_mut();
        hold.filter(|hold| rules::is_mine(&hold.id, &id) && !hold.is_offer)
    }

    fn expire(&mut self, now: Duration) {
        self.data.hold = self.data.hold.filter(|hold| !rules::has_expired(hold.expires, now));
        self.data.queue.retain(|entry| !rules::has_expired(entry.expires, now));
    }
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a held name has a token")
}
