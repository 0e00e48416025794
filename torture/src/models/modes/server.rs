//! The server: holders and offers, one queue for all modes, and what each request does to them.

use lock_core::backend::{Mode, rules};

use super::message::{Kind, Reply, Request};
use super::{ENTRY_TTL, GRACE, TTL};
use crate::models::id::{Id, Ids};
use crate::models::mutant::Mutant;
use crate::models::server_rules::who_is_next;
use crate::models::time::{Time, units};

/// The name at the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// Who holds it, and whom it is offered to.
    pub holders: Vec<Holder>,
    /// Who waits, in the order of their coming. Whom it is offered to stays until the confirm.
    pub queue: Vec<Entry>,
    /// The tombstones.
    pub dead: Ids,
    stored: u64,
}

/// A hold or an offer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Whose it is.
    pub id: Id,
    /// How it is held.
    pub kind: Kind,
    /// `None`: offered.
    pub token: Option<u64>,
    /// When it ends.
    pub expires: Time,
    /// Of an upgraded hold: the id and the token of that which it replaced.
    pub replaced: Option<(Id, u64)>,
}

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Whose it is.
    pub id: Id,
    /// How it asks.
    pub kind: Kind,
    /// When it ends unless it is refreshed.
    pub expires: Time,
    /// The hold that it is to replace.
    pub replaces: Option<Id>,
    /// Whether its owner let an offer lapse, and has not asked since. Then it stands in nobody's way.
    pub lapsed: bool,
}

impl Server {
    /// Answers a request at `now`. Whoever is to look goes to `wakes`, with the time.
    pub fn answer(
        &mut self,
        request: Request,
        now: Time,
        mutant: Option<Mutant>,
        wakes: &mut Vec<(Id, Time)>,
    ) -> Reply {
        self.clean_up(now);
        match request {
            Request::Acquire(id, kind, replaces) => self.acquire((id, kind, replaces), now, mutant, wakes),
            Request::Renew(id) => self.renew(id, now, mutant),
            Request::Release(id) => self.end(id, now, mutant, wakes),
            Request::Abandon(id, replaces) => self.abandon(id, replaces, now, mutant, wakes),
            Request::Downgrade(id) => self.downgrade(id, now, mutant, wakes),
        }
    }

    /// Forgets what has expired. Who let an offer lapse is passed over until it asks again.
    pub fn clean_up(&mut self, now: Time) {
        for offer in self.holders.iter().filter(|holder| holder.token.is_none()) {
            let entry = self.queue.iter_mut().find(|entry| entry.id == offer.id);
            if let Some(entry) = entry.filter(|_| rules::has_expired(offer.expires, now)) {
                entry.lapsed = true;
            }
        }
        self.holders.retain(|holder| !rules::has_expired(holder.expires, now));
        self.queue.retain(|entry| !rules::has_expired(entry.expires, now));
    }

    /// Offers the name to all at the head of the queue that fit together with who holds it. Returns them.
    pub fn admit(&mut self, now: Time, mutant: Option<Mutant>) -> Vec<Id> {
        let mut admitted = Vec::new();
        let passed_over = |entry: &&Entry| !entry.lapsed;
        for entry in self.queue.iter().filter(passed_over) {
            if self.holders.iter().any(|holder| holder.id == entry.id) {
                continue;
            }
            if !self.fits(entry.kind, entry.replaces, mutant) {
                match mutant {
                    Some(Mutant::ReadersPassWriters) if entry.kind == Kind::Exclusive => continue,
                    Some(Mutant::SmallPassesLarge) if matches!(entry.kind, Kind::Permits(..)) => continue,
                    _ => break,
                }
            }
            admitted.push(entry.id);
            self.holders.push(Holder {
                id: entry.id,
                kind: entry.kind,
                token: None,
                expires: rules::prolonged(now, now, units(GRACE)),
                replaced: None,
            });
        }
        admitted
    }

    /// Whether this fits with all who hold the name, apart from what it replaces.
    pub fn fits(&self, kind: Kind, replaces: Option<Id>, mutant: Option<Mutant>) -> bool {
        let others = self.holders.iter().filter(|holder| Some(holder.id) != replaces);
        let as_held = |holder: &Holder| match holder.kind {
            Kind::Upgradable if mutant == Some(Mutant::TwoUpgraders) => Mode::Shared,
            kind => kind.mode(),
        };
        rules::fits(others.map(as_held), kind.mode())
    }

    fn acquire(
        &mut self,
        (id, kind, replaces): (Id, Kind, Option<Id>),
        now: Time,
        mutant: Option<Mutant>,
        wakes: &mut Vec<(Id, Time)>,
    ) -> Reply {
        if self.dead.contains(id) {
            return Reply::Lost;
        }
        let base_is_gone = replaces.is_some_and(|base| !self.holds(base)) && !self.holds(id);
        if base_is_gone && mutant != Some(Mutant::UpgradeOfNothing) {
            self.queue.retain(|entry| entry.id != id);
            self.admit_and_tell(now, mutant, wakes);
            return Reply::Lost;
        }
        if !self.holds(id) {
            self.enter((id, kind, replaces), now);
            self.admit_and_tell(now, mutant, wakes);
        }
        let Some(at) = self.holders.iter().position(|holder| holder.id == id) else {
            return Reply::Busy(self.next_look(id, now));
        };
        // Confirmed or repeated.
        self.queue.retain(|entry| entry.id != id);
        let base = self.holders.iter().find(|holder| Some(holder.id) == replaces);
        let base = base.and_then(|base| Some((base.id, base.token?)));
        let holder = &mut self.holders[at];
        holder.expires = rules::prolonged(holder.expires, now, units(TTL));
        let token = match holder.token {
            Some(token) => token,
            None if base.is_some() && mutant == Some(Mutant::UpgradeKeepsToken) => {
                let token = base.map_or(0, |(_, token)| token);
                (holder.token, holder.replaced) = (Some(token), base);
                token
            }
            None => {
                self.stored = rules::next_token(self.stored, 0, None).map_or(self.stored, u64::from);
                holder.token = Some(self.stored);
                holder.replaced = base;
                self.stored
            }
        };
        self.holders.retain(|holder| Some(holder.id) != replaces);
        // A late repeat of its acquire must not take the name again.
        if let Some((base, _)) = base.filter(|_| mutant != Some(Mutant::ReplacedIsNotRetired)) {
            self.dead.insert(base);
        }
        Reply::Granted(token)
    }

    /// Enters the queue at its end, an upgrade at its head; or refreshes the entry.
    fn enter(&mut self, (id, kind, replaces): (Id, Kind, Option<Id>), now: Time) {
        let expires = rules::prolonged(now, now, units(ENTRY_TTL));
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.id == id) {
            (entry.expires, entry.lapsed) = (expires, false);
            return;
        }
        let at = if replaces.is_some() { 0 } else { self.queue.len() };
        let entry = Entry {
            id,
            kind,
            expires,
            replaces,
            lapsed: false,
        };
        self.queue.insert(at, entry);
    }

    /// When something that stands in its way ends at the earliest.
    fn next_look(&self, id: Id, now: Time) -> Time {
        let ahead = self.queue.iter().take_while(|entry| entry.id != id);
        let ends = ahead.map(|entry| entry.expires);
        let ends = ends.chain(self.holders.iter().map(|holder| holder.expires));
        ends.min().unwrap_or(now)
    }

    fn admit_and_tell(&mut self, now: Time, mutant: Option<Mutant>, wakes: &mut Vec<(Id, Time)>) {
        // An upgrade of nothing can never be granted. Its client has seen its own lease end.
        let ids = self.holders.iter().map(|holder| holder.id).collect::<Vec<_>>();
        self.queue.retain(|entry| {
            let may_be = entry.replaces.is_none_or(|base| ids.contains(&base));
            may_be || ids.contains(&entry.id) || mutant == Some(Mutant::UpgradeOfNothing)
        });
        let mut admitted = self.admit(now, mutant);
        if mutant == Some(Mutant::OneIsTold) {
            admitted.truncate(1);
        }
        wakes.extend(admitted.into_iter().map(|id| (id, now)));
        // If an offer lapses, the next one has to look.
        let offers = self.holders.iter().filter(|holder| holder.token.is_none());
        let waits = |entry: &&Entry| !entry.lapsed && !self.holds(entry.id);
        let stand_by = who_is_next(
            self.queue
                .iter()
                .filter(waits)
                .map(|entry| (entry.id, Some(entry.expires))),
            now,
        );
        if let (Some(lapses), Some(stand_by)) = (offers.map(|offer| offer.expires).min(), stand_by) {
            wakes.push((stand_by, lapses));
        }
    }

    fn renew(&mut self, id: Id, now: Time, mutant: Option<Mutant>) -> Reply {
        let mut found = false;
        for holder in &mut self.holders {
            let is_mine = holder.id == id && holder.token.is_some();
            found |= is_mine;
            if is_mine || mutant == Some(Mutant::RenewsAll) {
                holder.expires = rules::prolonged(holder.expires, now, units(TTL));
            }
        }
        if found { Reply::Done } else { Reply::Lost }
    }

    fn end(&mut self, id: Id, now: Time, mutant: Option<Mutant>, wakes: &mut Vec<(Id, Time)>) -> Reply {
        self.dead.insert(id);
        self.queue.retain(|entry| entry.id != id);
        // It is not to be put back.
        for holder in &mut self.holders {
            holder.replaced.take_if(|(base, _)| *base == id);
        }
        let held = self.holds(id);
        let frees_all = held && mutant == Some(Mutant::FirstReaderFrees);
        self.holders
            .retain(|holder| holder.id != id && !(frees_all && holder.kind == Kind::Shared));
        self.admit_and_tell(now, mutant, wakes);
        if held { Reply::Done } else { Reply::Lost }
    }

    /// As a release. But of an upgrade that was granted, what it replaced is put back: its client still reads.
    fn abandon(
        &mut self,
        id: Id,
        replaces: Option<Id>,
        now: Time,
        mutant: Option<Mutant>,
        wakes: &mut Vec<(Id, Time)>,
    ) -> Reply {
        if mutant == Some(Mutant::CancelLeavesPermit) {
            self.dead.insert(id);
            self.queue.retain(|entry| entry.id != id);
            return Reply::Done;
        }
        let upgraded = self
            .holders
            .iter_mut()
            .find(|holder| holder.id == id && replaces.is_some());
        if let Some(holder) = upgraded.filter(|_| mutant != Some(Mutant::AbandonedUpgradeEndsAll))
            && let Some((base, token)) = holder.replaced.take()
        {
            (holder.id, holder.kind, holder.token) = (base, Kind::Upgradable, Some(token));
            self.dead.remove(base);
        }
        self.end(id, now, mutant, wakes);
        Reply::Done
    }

    fn downgrade(&mut self, id: Id, now: Time, mutant: Option<Mutant>, wakes: &mut Vec<(Id, Time)>) -> Reply {
        let is_mine = |holder: &Holder| holder.id == id && holder.token.is_some();
        let Some(at) = self.holders.iter().position(is_mine) else {
            return Reply::Lost;
        };
        let holder = &mut self.holders[at];
        holder.kind = Kind::Shared;
        holder.replaced = None;
        holder.expires = rules::prolonged(holder.expires, now, units(TTL));
        match mutant {
            Some(Mutant::DowngradeTellsNobody) => {}
            // A shared hold of its own, which comes after the queue.
            Some(Mutant::DowngradeLetsWriterIn) => {
                let hold = self.holders.remove(at);
                self.enter((id, Kind::Shared, None), now);
                self.admit_and_tell(now, mutant, wakes);
                if let Some(offer) = self.holders.iter_mut().find(|holder| holder.id == id) {
                    *offer = hold;
                    self.queue.retain(|entry| entry.id != id);
                }
            }
            _ => self.admit_and_tell(now, mutant, wakes),
        }
        Reply::Done
    }

    fn holds(&self, id: Id) -> bool {
        self.holders.iter().any(|holder| holder.id == id)
    }
}
