//! A lock server for one name, as small as it can be: the memory that the real ones keep in keys, rows or a map, and
//! what each request does to it. Every decision is a function of [`rules`]; what a [`Mutant`] does is marked.

use std::time::Duration;

use lock_core::backend::rules::{self, Moment};

use super::id::{Id, Ids};
use super::mutant::Mutant;
use super::request::{Reply, Request, Wake};
use super::server_rules::{may_take, repaired, who_is_next};

/// The state of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerModel<T> {
    /// Who has the name, or is offered it.
    pub hold: Option<Hold<T>>,
    /// Who waits, in the order of their coming.
    pub queue: Vec<QueueEntry<T>>,
    /// The last token.
    pub stored: u64,
    /// The tombstones.
    pub dead: Ids,
    /// Whose processes the server cannot reach, and knows it: their inboxes have no subscriber.
    pub unreachable: Ids,
}

/// A hold, or an offer that its waiter has not confirmed yet, or what keeps a name taken after a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold<T> {
    /// Whose it is, or was.
    pub holder: Id,
    /// `None`: offered.
    pub token: Option<u64>,
    /// When it ends.
    pub expires: T,
    /// The longest that its holder has asked to hold it for at once.
    pub term: Duration,
    /// Nobody's any more: until then the name is kept, and from then until it ends it is the first waiter's.
    pub kept: Option<T>,
}

/// A waiter's entry in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueEntry<T> {
    /// Whose it is.
    pub holder: Id,
    /// When it ends unless it is refreshed.
    pub expires: T,
}

/// The settings of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The time for which an offer waits for its confirm.
    pub grace: Duration,
    /// The time for which an entry lives without a refresh.
    pub entry_ttl: Duration,
    /// The longest that any entry lives.
    pub longest_entry_ttl: Duration,
    /// Whether ended ids leave tombstones. Without, requests must arrive in order.
    pub tombstones: bool,
    /// The number of tokens after its own that a grant reserves.
    pub reserved: u64,
    /// The bug of the server, if it has one.
    pub mutant: Option<Mutant>,
}

/// In which way whatever an id has ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Release,
    Keep(Duration),
    Abandon,
}

impl<T: Moment> ServerModel<T> {
    /// Answers a request at `now`, when the clock for tokens stands at `clock`. Whoever is woken goes to `wakes`.
    pub fn answer(
        &mut self,
        request: Request,
        (now, clock): (T, u64),
        set: &Settings,
        wakes: &mut Vec<Wake<T>>,
    ) -> Reply {
        self.hold.take_if(|hold| rules::has_expired(hold.expires, now));
        let reply = match request {
            Request::Acquire { id, ttl, waits } => self.acquire((id, ttl, waits), (now, clock), set),
            Request::Renew { id, ttl } => self.renew(id, ttl, now, set),
            Request::Release(id) => self.end(id, End::Release, now, set, wakes),
            Request::Keep { id, .. } if set.mutant == Some(Mutant::KeepForgotten) => {
                self.end(id, End::Release, now, set, wakes)
            }
            Request::Keep { id, time } => self.end(id, End::Keep(time), now, set, wakes),
            Request::Abandon(id) => self.end(id, End::Abandon, now, set, wakes),
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

    /// When somebody who was answered "busy" has to look for himself, and how many come before.
    pub fn taken(&self, id: Id, now: T) -> Option<(T, usize)> {
        let hold = self.hold.as_ref()?;
        let ahead = self.queue.iter().position(|entry| entry.holder == id)?;
        match hold.kept.filter(|kept| !rules::has_expired(*kept, now)) {
            Some(kept) => Some((kept, ahead)),
            // It is offered to one of those ahead, or reserved for one.
            None if hold.token.is_none() || hold.kept.is_some() => Some((hold.expires, ahead.saturating_sub(1))),
            None => Some((hold.expires, ahead)),
        }
    }

    fn acquire(&mut self, (id, ttl, waits): (Id, Duration, bool), (now, clock): (T, u64), set: &Settings) -> Reply {
        if self.dead.contains(id) {
            return Reply::Dead;
        }
        let next = self.next(now, None);
        if let Some(hold) = &mut self.hold {
            if hold.is_held_by(id) {
                hold.prolong(now, ttl);
                return self.confirm((id, hold_token(self)), clock, set);
            }
            hold.repair(now, ttl, set);
            let is_reserved = hold.kept.is_some_and(|kept| rules::has_expired(kept, now));
            if !(hold.is_offered_to(id) || is_reserved && may_take(&id, next.as_ref())) {
                if waits {
                    hold.reserve(now, set);
                    self.wait(id, now, set);
                }
                return Reply::Busy;
            }
        }
        // Free: after an expiry whoever asks first is awake, and gets it. A release offers it to the next instead.
        self.hold = Some(Hold::new(id, None, now, ttl));
        self.confirm((id, None), clock, set)
    }

    /// Mints the token, unless this repeats a grant. The queue entry has served its purpose.
    fn confirm(&mut self, (id, token): (Id, Option<u64>), clock: u64, set: &Settings) -> Reply {
        self.queue.retain(|entry| entry.holder != id);
        let Some(token) = token.or_else(|| self.mint(clock, set)) else {
            return Reply::Busy;
        };
        if let Some(hold) = &mut self.hold {
            hold.token = Some(token);
        }
        Reply::Granted(token)
    }

    fn mint(&mut self, clock: u64, set: &Settings) -> Option<u64> {
        let clock = if set.mutant == Some(Mutant::CounterLost) {
            0
        } else {
            clock
        };
        let token = rules::next_token(self.stored, clock, None)?.as_u64();
        self.stored = token + set.reserved;
        Some(token)
    }

    fn wait(&mut self, id: Id, now: T, set: &Settings) {
        self.queue.retain(|entry| !rules::has_expired(entry.expires, now));
        let expires = rules::prolonged(now, now, set.entry_ttl);
        match self.queue.iter_mut().find(|entry| entry.holder == id) {
            Some(entry) => entry.expires = expires,
            None => self.queue.push(QueueEntry { holder: id, expires }),
        }
        // From before the clock was set back.
        for entry in &mut self.queue {
            entry.expires = repaired(entry.expires, now, set.longest_entry_ttl);
        }
        if set.mutant == Some(Mutant::RefreshKeepsAll) {
            self.queue.iter_mut().for_each(|entry| entry.expires = expires);
        }
    }

    fn renew(&mut self, id: Id, ttl: Duration, now: T, set: &Settings) -> Reply {
        if set.mutant == Some(Mutant::RenewalResurrects) && self.hold.is_none() {
            self.hold = Some(Hold::new(id, Some(self.stored), now, ttl));
        }
        let finds_kept = set.mutant == Some(Mutant::KeptIsRenewed);
        let is_mine = |hold: &&mut Hold<T>| hold.is_mine(id) || finds_kept && rules::is_mine(&hold.holder, &id);
        let Some(hold) = self.hold.as_mut().filter(is_mine) else {
            return Reply::NotYours;
        };
        match set.mutant {
            Some(Mutant::RenewalShortens) => hold.expires = rules::prolonged(now, now, ttl),
            Some(Mutant::RenewalAdds) => hold.expires = rules::prolonged(hold.expires, hold.expires, ttl),
            Some(Mutant::LastTermCuts) => {
                hold.prolong(now, ttl);
                hold.term = ttl;
            }
            _ => hold.prolong(now, ttl),
        }
        Reply::Done
    }

    fn end(&mut self, id: Id, how: End, now: T, set: &Settings, wakes: &mut Vec<Wake<T>>) -> Reply {
        let abandons = how == End::Abandon;
        if set.tombstones && !(abandons && set.mutant == Some(Mutant::NoTombstone)) {
            self.dead.insert(id);
        }
        let waited = self.queue.len();
        self.queue.retain(|entry| entry.holder != id);
        let left = self.queue.len() < waited;
        let deletes_any = set.mutant == Some(Mutant::DeletesWithoutCompare);
        let hold = self.hold.take_if(|hold| deletes_any || hold.is_mine(id));
        let had_it = hold.is_some();
        match (hold, how, &self.hold) {
            (Some(hold), End::Keep(time), _) => self.keep(hold, time, now, set, wakes),
            (Some(_), ..) => self.offer(now, set, wakes),
            (None, _, Some(hold)) if left => self.relieve(hold, now, set, wakes),
            // Whoever was to look has gone without looking. No offer: its grace might be wasted on who let one lapse.
            (None, _, None) if left && set.mutant != Some(Mutant::LeavesAFreeName) => {
                self.tell_two([now, now], now, wakes)
            }
            _ => {}
        }
        if abandons || had_it {
            Reply::Done
        } else {
            Reply::NotYours
        }
    }

    /// The first two are to look again, at these times.
    fn tell_two(&self, at: [T; 2], now: T, wakes: &mut Vec<Wake<T>>) {
        let head = self.next(now, None);
        let looks = [head, self.next(now, head).filter(|_| head.is_some())];
        let told = looks.into_iter().zip(at);
        wakes.extend(told.filter_map(|(id, at)| Some(Wake::StandBy(id?, at))));
    }

    /// Somebody has left who was perhaps to look: there must be another one as long as nobody has confirmed.
    fn relieve(&self, hold: &Hold<T>, now: T, set: &Settings, wakes: &mut Vec<Wake<T>>) {
        let (ends, is_offer) = (hold.kept.unwrap_or(hold.expires), hold.token.is_none());
        match set.mutant {
            Some(Mutant::StandByNotRelieved) if is_offer => {}
            _ if is_offer => self.tell_stand_by(hold.holder, ends, now, set, wakes),
            _ => self.tell_two([ends, rules::prolonged(ends, ends, set.grace)], now, wakes),
        }
    }

    /// The hold has ended, and the name stays taken.
    fn keep(&mut self, hold: Hold<T>, time: Duration, now: T, set: &Settings, wakes: &mut Vec<Wake<T>>) {
        let kept = rules::prolonged(now, now, time);
        let is_reserved = self.next(now, None).is_some() && set.mutant != Some(Mutant::KeptForAnyone);
        let reserved = rules::prolonged(now, now, time + set.grace);
        let (expires, kept) = (if is_reserved { reserved } else { kept }, Some(kept));
        self.hold = Some(Hold {
            expires,
            term: time,
            kept,
            ..hold
        });
        self.tell_two([kept.unwrap_or(now), reserved], now, wakes);
    }

    /// The name has become free while it was somebody's: offers it to whose turn it is.
    fn offer(&mut self, now: T, set: &Settings, wakes: &mut Vec<Wake<T>>) {
        let Some(next) = self.next(now, None) else { return };
        let until = rules::prolonged(now, now, set.grace);
        self.hold = Some(Hold::new(next, None, now, set.grace));
        wakes.push(Wake::Offer(next));
        self.tell_stand_by(next, until, now, set, wakes);
        if set.mutant == Some(Mutant::LeavesAtGrant) {
            self.queue.retain(|entry| entry.holder != next);
        }
    }

    fn tell_stand_by(&self, offered: Id, until: T, now: T, set: &Settings, wakes: &mut Vec<Wake<T>>) {
        if let Some(stand_by) = self
            .next(now, Some(offered))
            .filter(|_| set.mutant != Some(Mutant::NoStandBy))
        {
            wakes.push(Wake::StandBy(stand_by, until));
        }
    }

    /// Whose turn it is, apart from one who is offered it already.
    fn next(&self, now: T, apart_from: Option<Id>) -> Option<Id> {
        let may_be = |id: Id| Some(id) != apart_from && !self.unreachable.contains_any_of(id.client());
        let others = self.queue.iter().filter(|entry| may_be(entry.holder));
        who_is_next(others.map(|entry| (entry.holder, Some(entry.expires))), now)
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
            kept: None,
        }
    }

    fn is_mine(&self, id: Id) -> bool {
        self.kept.is_none() && rules::is_mine(&self.holder, &id)
    }

    fn is_held_by(&self, id: Id) -> bool {
        self.is_mine(id) && self.token.is_some()
    }

    fn is_offered_to(&self, id: Id) -> bool {
        self.is_mine(id) && self.token.is_none()
    }

    /// After the server's clock was set back.
    fn repair(&mut self, now: T, asked: Duration, set: &Settings) {
        let term = match set.mutant {
            Some(Mutant::NotRepaired) => return,
            Some(Mutant::AskerCutsHolder) => asked,
            _ => self.term,
        };
        match &mut self.kept {
            Some(_) if set.mutant == Some(Mutant::KeptNotRepaired) => {}
            Some(kept) => {
                let sooner = repaired(*kept, now, term);
                if sooner < *kept {
                    (*kept, self.expires) = (sooner, sooner);
                }
            }
            None => self.expires = repaired(self.expires, now, term),
        }
    }

    /// Somebody waits: once the name is not kept any more, it is for the first of those for a while.
    fn reserve(&mut self, now: T, set: &Settings) {
        let kept = self.kept.filter(|kept| !rules::has_expired(*kept, now));
        if let Some(kept) = kept.filter(|_| set.mutant != Some(Mutant::KeptForAnyone)) {
            self.expires = rules::prolonged(self.expires, kept, set.grace);
        }
    }

    fn prolong(&mut self, now: T, ttl: Duration) {
        self.expires = rules::prolonged(self.expires, now, ttl);
        self.term = self.term.max(ttl);
    }
}

fn hold_token<T>(server: &ServerModel<T>) -> Option<u64> {
    server.hold.as_ref().and_then(|hold| hold.token)
}
