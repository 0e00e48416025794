//! A lock server for one name, as small as it can be: the memory that the real ones keep in keys, rows or a map, and
//! what each request does to it. Every decision is a function of [`rules`]; what a [`Flaw`] does is marked.

use std::time::Duration;

use lock_core::backend::rules::{self, Moment};

use super::flaw::Flaw;
use super::id::{Id, Ids};
use super::request::{Reply, Request, Wake};

/// What the server keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server<T> {
    /// Who has the name, or is offered it.
    pub hold: Option<Hold<T>>,
    /// Who waits, in the order of their coming.
    pub places: Vec<Place<T>>,
    /// The last token.
    pub stored: u64,
    /// The tombstones.
    pub dead: Ids,
}

/// A hold, or an offer that its waiter has not confirmed yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold<T> {
    /// Whose it is.
    pub holder: Id,
    /// `None`: offered.
    pub token: Option<u64>,
    /// When it ends.
    pub expires: T,
    /// The longest that its holder has asked to hold it for at once.
    pub term: Duration,
}

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place<T> {
    /// Whose it is.
    pub holder: Id,
    /// When it ends unless it is refreshed.
    pub expires: T,
}

/// What a server is told when it is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How long an offer waits for its confirm.
    pub grace: Duration,
    /// How long a place lives without a refresh.
    pub place: Duration,
    /// Whether ended ids leave tombstones. Without, requests must arrive in order.
    pub tombstones: bool,
    /// What is wrong with it.
    pub flaw: Option<Flaw>,
}

impl<T: Moment> Server<T> {
    /// Answers a request at `now`, when the clock for tokens stands at `clock`. Whoever is woken goes to `wakes`.
    pub fn answer(
        &mut self,
        request: Request,
        (now, clock): (T, u64),
        set: &Settings,
        wakes: &mut Vec<Wake<T>>,
    ) -> Reply {
        self.forget_what_has_ended(now);
        let reply = match request {
            Request::Acquire { id, ttl, waits } => self.acquire((id, ttl, waits), (now, clock), set),
            Request::Renew { id, ttl } => self.renew(id, ttl, now, set),
            Request::Release(id) => self.end(id, false, now, set, wakes),
            Request::Abandon(id) => self.end(id, true, now, set, wakes),
            Request::HandOver { from, to, ttl } => self.hand_over(from, to, ttl, (now, clock), set),
        };
        debug_assert!(
            self.hold
                .as_ref()
                .is_none_or(|hold| !rules::has_expired(hold.expires, now))
        );
        reply
    }

    /// Who has the name at `now`, offers included.
    pub fn holder(&self, now: T) -> Option<&Hold<T>> {
        self.hold.as_ref().filter(|hold| !rules::has_expired(hold.expires, now))
    }

    fn acquire(&mut self, (id, ttl, waits): (Id, Duration, bool), (now, clock): (T, u64), set: &Settings) -> Reply {
        if self.dead.contains(id) {
            return Reply::Dead;
        }
        if let Some(hold) = &mut self.hold {
            if rules::is_mine(&hold.holder, &id) {
                hold.prolong(now, ttl);
                return self.confirm((id, hold_token(self)), clock, set);
            }
            match set.flaw {
                Some(Flaw::NotRepaired) => {}
                Some(Flaw::AskerCutsHolder) => hold.expires = rules::repaired(hold.expires, now, ttl),
                _ => hold.expires = rules::repaired(hold.expires, now, hold.term),
            }
            if waits {
                self.wait(id, now, set);
            }
            return Reply::Busy;
        }
        // Free: after an expiry whoever asks first is awake, and gets it. A release offers it to the next instead.
        self.hold = Some(Hold::new(id, None, now, ttl));
        self.confirm((id, None), clock, set)
    }

    /// Mints the token, unless this repeats a grant. The place has served its purpose.
    fn confirm(&mut self, (id, token): (Id, Option<u64>), clock: u64, set: &Settings) -> Reply {
        self.places.retain(|place| place.holder != id);
        let Some(token) = token.or_else(|| self.mint(clock, set)) else {
            return Reply::Busy;
        };
        if let Some(hold) = &mut self.hold {
            hold.token = Some(token);
        }
        Reply::Granted(token)
    }

    fn mint(&mut self, clock: u64, set: &Settings) -> Option<u64> {
        let clock = if set.flaw == Some(Flaw::CounterLost) { 0 } else { clock };
        self.stored = rules::next_token(self.stored, clock, None)?.as_u64();
        Some(self.stored)
    }

    fn wait(&mut self, id: Id, now: T, set: &Settings) {
        let expires = rules::prolonged(now, now, set.place);
        match self.places.iter_mut().find(|place| place.holder == id) {
            Some(place) => place.expires = expires,
            None => self.places.push(Place { holder: id, expires }),
        }
        if set.flaw == Some(Flaw::RefreshKeepsAll) {
            self.places.iter_mut().for_each(|place| place.expires = expires);
        }
    }

    fn renew(&mut self, id: Id, ttl: Duration, now: T, set: &Settings) -> Reply {
        if set.flaw == Some(Flaw::RenewalResurrects) && self.hold.is_none() {
            self.hold = Some(Hold::new(id, Some(self.stored), now, ttl));
        }
        let Some(hold) = self.hold.as_mut().filter(|hold| rules::is_mine(&hold.holder, &id)) else {
            return Reply::NotYours;
        };
        match set.flaw {
            Some(Flaw::RenewalShortens) => hold.expires = rules::prolonged(now, now, ttl),
            Some(Flaw::RenewalAdds) => hold.expires = rules::prolonged(hold.expires, hold.expires, ttl),
            Some(Flaw::LastTermCuts) => {
                hold.prolong(now, ttl);
                hold.term = ttl;
            }
            _ => hold.prolong(now, ttl),
        }
        Reply::Done
    }

    fn end(&mut self, id: Id, abandons: bool, now: T, set: &Settings, wakes: &mut Vec<Wake<T>>) -> Reply {
        if set.tombstones && !(abandons && set.flaw == Some(Flaw::NoTombstone)) {
            self.dead.insert(id);
        }
        let waited = self.places.len();
        self.places.retain(|place| place.holder != id);
        let left = self.places.len() < waited;
        let deletes_any = set.flaw == Some(Flaw::DeletesWithoutCompare);
        let hold = self
            .hold
            .take_if(|hold| deletes_any || rules::is_mine(&hold.holder, &id));
        match &self.hold {
            _ if hold.is_some() => self.offer(now, set, wakes),
            // Perhaps that was the stand-by: there must be one as long as nobody has confirmed.
            Some(offer) if left && offer.token.is_none() && set.flaw != Some(Flaw::StandByNotRelieved) => {
                let until = offer.expires;
                self.tell_stand_by(offer.holder, until, now, set, wakes);
            }
            // Whoever was to look has gone without looking. No offer: its grace might be wasted on who let one lapse.
            None if left && set.flaw != Some(Flaw::LeavesAFreeName) => {
                let head = self.next(now, None);
                let looks = [head, self.next(now, head).filter(|_| head.is_some())];
                wakes.extend(looks.into_iter().flatten().map(|id| Wake::StandBy(id, now)));
            }
            _ => {}
        }
        if abandons || hold.is_some() {
            Reply::Done
        } else {
            Reply::NotYours
        }
    }

    /// The name has become free while it was somebody's: offers it to whose turn it is.
    fn offer(&mut self, now: T, set: &Settings, wakes: &mut Vec<Wake<T>>) {
        let Some(next) = self.next(now, None) else { return };
        let until = rules::prolonged(now, now, set.grace);
        self.hold = Some(Hold::new(next, None, now, set.grace));
        wakes.push(Wake::Offer(next));
        self.tell_stand_by(next, until, now, set, wakes);
        if set.flaw == Some(Flaw::LeavesAtGrant) {
            self.places.retain(|place| place.holder != next);
        }
    }

    fn tell_stand_by(&self, offered: Id, until: T, now: T, set: &Settings, wakes: &mut Vec<Wake<T>>) {
        if let Some(stand_by) = self
            .next(now, Some(offered))
            .filter(|_| set.flaw != Some(Flaw::NoStandBy))
        {
            wakes.push(Wake::StandBy(stand_by, until));
        }
    }

    /// Whose turn it is, apart from one who is offered it already.
    fn next(&self, now: T, apart_from: Option<Id>) -> Option<Id> {
        let others = self.places.iter().filter(|place| Some(place.holder) != apart_from);
        rules::who_is_next(others.map(|place| (place.holder, Some(place.expires))), now)
    }

    fn hand_over(&mut self, from: Id, to: Id, ttl: Duration, (now, clock): (T, u64), set: &Settings) -> Reply {
        if self.dead.contains(to) {
            return Reply::Dead;
        }
        let Some(hold) = &mut self.hold else {
            return Reply::NotYours;
        };
        if rules::is_mine(&hold.holder, &to) {
            hold.prolong(now, ttl);
            return self.confirm((to, hold_token(self)), clock, set);
        }
        if !rules::is_mine(&hold.holder, &from) {
            return Reply::NotYours;
        }
        let token = hold.token.filter(|_| set.flaw == Some(Flaw::HandOverKeepsToken));
        // A hold of its own: nobody believes in the giver's end any more.
        self.hold = Some(Hold::new(to, token, now, ttl));
        self.confirm((to, token), clock, set)
    }

    fn forget_what_has_ended(&mut self, now: T) {
        self.hold.take_if(|hold| rules::has_expired(hold.expires, now));
        self.places.retain(|place| !rules::has_expired(place.expires, now));
    }
}

impl<T: Moment> Hold<T> {
    /// One that begins now.
    pub fn new(holder: Id, token: Option<u64>, now: T, term: Duration) -> Self {
        let expires = rules::prolonged(now, now, term);
        Self {
            holder,
            token,
            expires,
            term,
        }
    }

    fn prolong(&mut self, now: T, ttl: Duration) {
        self.expires = rules::prolonged(self.expires, now, ttl);
        self.term = self.term.max(ttl);
    }
}

fn hold_token<T>(server: &Server<T>) -> Option<u64> {
    server.hold.as_ref().and_then(|hold| hold.token)
}
