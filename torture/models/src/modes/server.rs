//! The server: holders and offers, one queue for all modes, and what each request does to them.

use lock_core::backend::{Mode, rules};
use lock_core::memory::{HoldRecord, NameState, QueueEntry, Wanted};

use super::message::{Reply, Request};
use super::{ENTRY_TTL, GRACE, TTL};
use crate::id::{Id, Ids};
use crate::mutant::Mutant;
use crate::server_rules::who_is_next;
use crate::time::{Time, units};

/// The name at the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// Who holds it and whom it is offered to; and who waits. Whom it is offered to stays in the queue until the confirm.
    pub name: NameState<Id, Time, Grant, Place>,
    /// The ids that were released or given up.
    pub dead: Ids,
    stored: u64,
}

/// A hold or an offer.
pub type Holder = HoldRecord<Id, Time, Grant>;

/// The token of a hold. `None`: it is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant(pub Option<u64>);

/// A place in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Whether the owner let an offer lapse, and has not asked since. Then the entry does not delay others.
    pub lapsed: bool,
}

type Entry = QueueEntry<Id, Time, Place>;

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
            Request::Acquire(holder, kind, replaces) => {
                let wanted = Wanted {
                    holder,
                    mode: kind.mode(),
                    replaces,
                };
                self.acquire(wanted, now, mutant, wakes)
            }
            Request::Renew(id) => self.renew(id, now, mutant),
            Request::Release(id) => self.end(id, now, mutant, wakes),
            Request::Abandon(id, replaces) => self.abandon(id, replaces, now, mutant, wakes),
            Request::Downgrade(id) => self.downgrade(id, now, mutant, wakes),
        }
    }

    /// Forgets what has expired. Who let an offer lapse is passed over until it asks again.
    pub fn clean_up(&mut self, now: Time) {
        let NameState { holds, queue } = &mut self.name;
        for offer in holds.iter().filter(|hold| is_offer(hold)) {
            let entry = queue.iter_mut().find(|entry| entry.wanted.holder == offer.holder);
            if let Some(entry) = entry.filter(|_| rules::has_expired(offer.expires, now)) {
                entry.with.lapsed = true;
            }
        }
        self.name.forget_expired(now);
    }

    /// Offers the name to all at the head of the queue that fit together with who holds it. Returns them.
    pub fn admit(&mut self, now: Time, mutant: Option<Mutant>) -> Vec<Id> {
        let mut admitted = Vec::new();
        while let Some(Wanted { holder, mode, .. }) = self.next(mutant) {
            admitted.push(holder);
            self.name.holds.push(HoldRecord {
                holder,
                mode,
                expires: rules::prolonged(now, now, units(GRACE)),
                grant: Grant(None),
                replaced: None,
            });
        }
        admitted
    }

    /// The next that is offered the name.
    fn next(&self, mutant: Option<Mutant>) -> Option<Wanted<Id>> {
        let passes = |entry: &Entry| match mutant {
            Some(Mutant::ReadersPassWriters) => entry.wanted.mode == Mode::Exclusive,
            Some(Mutant::SmallPassesLarge) => matches!(entry.wanted.mode, Mode::Permits(_)),
            _ => false,
        };
        let stands_in_the_way = |entry: &Entry| !passes(entry) || self.name.fits(&entry.wanted);
        let waits = |entry: &Entry| !entry.with.lapsed && stands_in_the_way(entry);
        if mutant != Some(Mutant::TwoUpgraders) {
            return Some(self.name.admitted(waits).first()?.wanted);
        }
        // All who hold it to upgrade it are taken for readers.
        let mut name = self.name.clone();
        let upgradable = name.holds.iter_mut().filter(|hold| hold.mode == Mode::Upgradable);
        upgradable.for_each(|hold| hold.mode = Mode::Shared);
        Some(name.admitted(waits).first()?.wanted)
    }

    fn acquire(&mut self, wanted: Wanted<Id>, now: Time, mutant: Option<Mutant>, wakes: &mut Vec<(Id, Time)>) -> Reply {
        let id = wanted.holder;
        if self.dead.contains(id) {
            return Reply::Lost;
        }
        let base_is_gone = wanted.replaces.is_some_and(|base| !self.holds(base)) && !self.holds(id);
        if base_is_gone && mutant != Some(Mutant::UpgradeOfNothing) {
            self.name.leave(id);
            self.admit_and_tell(now, mutant, wakes);
            return Reply::Lost;
        }
        if !self.holds(id) {
            self.enter(wanted, now);
            self.admit_and_tell(now, mutant, wakes);
        }
        if !self.holds(id) {
            return Reply::Busy(self.next_look(id, now));
        }
        // Confirmed or repeated.
        self.name.leave(id);
        self.name.renew(id, now, units(TTL));
        let base = wanted.replaces.filter(|_| !self.has_confirmed(id));
        let base = base.and_then(|base| self.name.end(base)).filter(|base| !is_offer(base));
        // A late repeat of its acquire must not take the name again.
        if let Some(base) = base.as_ref().filter(|_| mutant != Some(Mutant::ReplacedIsNotRetired)) {
            self.dead.insert(base.holder);
        }
        let kept = base.as_ref().and_then(|base| base.grant.0);
        let next = rules::next_token(self.stored, 0, None).map_or(self.stored, u64::from);
        let Some(hold) = self.name.hold_of(id) else {
            return Reply::Lost;
        };
        let token = match (hold.grant.0, kept) {
            (Some(token), _) => return Reply::Granted(token),
            (None, Some(kept)) if mutant == Some(Mutant::UpgradeKeepsToken) => kept,
            _ => {
                self.stored = next;
                next
            }
        };
        hold.grant = Grant(Some(token));
        // Nobody asks how long what it replaced would have lasted.
        let base = base.map(|base| Holder {
            expires: Time(0),
            ..base
        });
        hold.replaced = base.map(Box::new);
        Reply::Granted(token)
    }

    /// Enters the queue at its end, an upgrade at its head; or refreshes the entry.
    fn enter(&mut self, wanted: Wanted<Id>, now: Time) {
        let entry = self.name.enter(QueueEntry {
            wanted,
            expires: Some(rules::prolonged(now, now, units(ENTRY_TTL))),
            with: Place::default(),
        });
        entry.with.lapsed = false;
    }

    /// When something that stands in its way ends at the earliest.
    fn next_look(&self, id: Id, now: Time) -> Time {
        let ahead = self.name.queue.iter().take_while(|entry| entry.wanted.holder != id);
        let ends = ahead.filter_map(|entry| entry.expires);
        ends.chain(self.name.next_end()).min().unwrap_or(now)
    }

    fn admit_and_tell(&mut self, now: Time, mutant: Option<Mutant>, wakes: &mut Vec<(Id, Time)>) {
        // An upgrade of nothing can never be granted. Its client has seen its own lease end.
        let NameState { holds, queue } = &mut self.name;
        let holds = |id: Id| holds.iter().any(|hold| hold.holder == id);
        queue.retain(|entry| {
            let may_be = entry.wanted.replaces.is_none_or(holds);
            may_be || holds(entry.wanted.holder) || mutant == Some(Mutant::UpgradeOfNothing)
        });
        let mut admitted = self.admit(now, mutant);
        if mutant == Some(Mutant::OneIsTold) {
            admitted.truncate(1);
        }
        wakes.extend(admitted.into_iter().map(|id| (id, now)));
        // If an offer lapses, the next one has to look.
        let offers = self.name.holds.iter().filter(|hold| is_offer(hold));
        let waits = |entry: &&Entry| !entry.with.lapsed && !self.holds(entry.wanted.holder);
        let waiting = self.name.queue.iter().filter(waits);
        let stand_by = who_is_next(waiting.map(|entry| (entry.wanted.holder, entry.expires)), now);
        if let (Some(lapses), Some(stand_by)) = (offers.map(|offer| offer.expires).min(), stand_by) {
            wakes.push((stand_by, lapses));
        }
    }

    fn renew(&mut self, id: Id, now: Time, mutant: Option<Mutant>) -> Reply {
        if mutant == Some(Mutant::RenewsAll) {
            let holds = self.name.holds.iter_mut();
            holds.for_each(|hold| hold.expires = rules::prolonged(hold.expires, now, units(TTL)));
        }
        match self.has_confirmed(id) && self.name.renew(id, now, units(TTL)) {
            true => Reply::Done,
            false => Reply::Lost,
        }
    }

    fn end(&mut self, id: Id, now: Time, mutant: Option<Mutant>, wakes: &mut Vec<(Id, Time)>) -> Reply {
        self.dead.insert(id);
        self.name.leave(id);
        let held = self.name.end(id).is_some();
        if held && mutant == Some(Mutant::FirstReaderFrees) {
            self.name.holds.retain(|hold| hold.mode != Mode::Shared);
        }
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
            self.name.leave(id);
            return Reply::Done;
        }
        if replaces.is_some()
            && mutant != Some(Mutant::AbandonedUpgradeEndsAll)
            && let Some(base) = self.name.undo(id)
        {
            self.dead.remove(base);
        }
        self.end(id, now, mutant, wakes);
        Reply::Done
    }

    fn downgrade(&mut self, id: Id, now: Time, mutant: Option<Mutant>, wakes: &mut Vec<(Id, Time)>) -> Reply {
        if !self.has_confirmed(id) || !self.name.downgrade(id, now, units(TTL)) {
            return Reply::Lost;
        }
        match mutant {
            Some(Mutant::DowngradeTellsNobody) => {}
            // A shared hold of its own, which comes after the queue.
            Some(Mutant::DowngradeLetsWriterIn) => {
                let hold = self.name.end(id);
                let wanted = Wanted {
                    holder: id,
                    mode: Mode::Shared,
                    replaces: None,
                };
                self.enter(wanted, now);
                self.admit_and_tell(now, mutant, wakes);
                if let (Some(offer), Some(hold)) = (self.name.hold_of(id), hold) {
                    *offer = hold;
                    self.name.leave(id);
                }
            }
            _ => self.admit_and_tell(now, mutant, wakes),
        }
        Reply::Done
    }

    fn holds(&self, id: Id) -> bool {
        self.name.holds.iter().any(|hold| hold.holder == id)
    }

    fn has_confirmed(&self, id: Id) -> bool {
        self.name.holds.iter().any(|hold| hold.holder == id && !is_offer(hold))
    }
}

/// Whether the waiter has not confirmed the hold yet.
pub fn is_offer(hold: &Holder) -> bool {
    hold.grant == Grant(None)
}
