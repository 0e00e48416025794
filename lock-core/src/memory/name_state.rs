//! The state of one name at a lock server, and the effect of each request on it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backend::Mode;
use crate::backend::rules::{self, Moment};

/// The state of one name at a lock server: its holds and its queue.
///
/// It is plain data without a clock. Each method takes the moment `now` at which the server executes a request. `H` is a holder
/// id and `T` a [`Moment`]. `G` is the data of a hold, such as its token, and `Q` the data of a queue entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NameState<H, T, G, Q> {
    /// The holds of the name.
    pub holds: Vec<HoldRecord<H, T, G>>,
    /// The waiters, in the order in which the name is granted.
    pub queue: VecDeque<QueueEntry<H, T, Q>>,
}

/// The hold that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted<H> {
    /// The holder id that asks.
    pub holder: H,
    /// The mode for which it asks.
    pub mode: Mode,
    /// The hold that it upgrades.
    pub replaces: Option<H>,
}

/// A hold, as the server keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldRecord<H, T, G> {
    /// The holder id that has it.
    pub holder: H,
    /// The mode in which the name is held.
    pub mode: Mode,
    /// The end of the hold unless it is renewed.
    pub expires: T,
    /// The data that the server keeps with it.
    pub grant: G,
    /// The hold that it replaced, as long as it can be given back.
    pub replaced: Option<Box<Self>>,
}

/// A waiter's entry in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueEntry<H, T, Q> {
    /// The hold for which it waits.
    pub wanted: Wanted<H>,
    /// The end of the entry unless its waiter refreshes it. `None`: it ends when its waiter leaves.
    pub expires: Option<T>,
    /// The data that the server keeps with it.
    pub with: Q,
}

/// The decision of a server on a request to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Grant it.
    Grant,
    /// Prolong the hold: an earlier request of this holder id was granted.
    Repeat,
    /// Refuse it, or let it wait.
    Refuse,
    /// End it: there is no hold that it could upgrade.
    NothingToReplace,
}

impl<H, T, G, Q> Default for NameState<H, T, G, Q> {
    fn default() -> Self {
        Self {
            holds: Vec::new(),
            queue: VecDeque::new(),
        }
    }
}

impl<H: Copy + PartialEq, T: Moment, G, Q> NameState<H, T, G, Q> {
    /// Returns whether nobody holds the name and nobody waits.
    pub fn is_free(&self) -> bool {
        self.holds.is_empty() && self.queue.is_empty()
    }

    /// Drops holds and queue entries that have expired.
    pub fn forget_expired(&mut self, now: T) {
        let is_live = |end| !rules::has_expired(end, now);
        self.holds.retain(|hold| is_live(hold.expires));
        self.queue.retain(|entry| entry.expires.is_none_or(is_live));
    }

    /// The hold of this holder id.
    pub fn hold_of(&mut self, holder: H) -> Option<&mut HoldRecord<H, T, G>> {
        self.holds.iter_mut().find(|hold| rules::is_mine(&hold.holder, &holder))
    }

    /// Decides on a request. `admits` returns whether the queue admits it: usually [`admits`](Self::admits).
    pub fn decide(&mut self, wanted: &Wanted<H>, admits: impl FnOnce(&Self, &Wanted<H>) -> bool) -> Decision {
        if self.hold_of(wanted.holder).is_some() {
            return Decision::Repeat;
        }
        if wanted.replaces.is_some_and(|base| self.hold_of(base).is_none()) {
            return Decision::NothingToReplace;
        }
        match admits(self, wanted) {
            true => Decision::Grant,
            false => Decision::Refuse,
        }
    }

    /// Returns whether the request may have the name now: see [`rules::admits`]. An upgrade goes before all queue
    /// entries.
    pub fn admits(&self, wanted: &Wanted<H>) -> bool {
        let place = self.queue.iter().position(|entry| entry.wanted.holder == wanted.holder);
        let before = match (place, wanted.replaces) {
            (Some(place), _) => place,
            (None, Some(_)) => 0,
            (None, None) => self.queue.len(),
        };
        let before = self.queue.iter().take(before).map(|entry| entry.wanted.mode);
        rules::admits(self.held(wanted.replaces), before, wanted.mode)
    }

    /// Returns whether the request fits with all holds of the name, whatever the queue.
    pub fn fits(&self, wanted: &Wanted<H>) -> bool {
        rules::fits(self.held(wanted.replaces), wanted.mode)
    }

    /// The first queue entries that may have the name now, together, of those that `waits` selects. An entry that may not stops
    /// all behind it. An entry whose holder id holds the name already is passed over.
    pub fn admitted(&self, waits: impl Fn(&QueueEntry<H, T, Q>) -> bool) -> Vec<&QueueEntry<H, T, Q>> {
        let mut admitted: Vec<&QueueEntry<H, T, Q>> = Vec::new();
        for entry in self.queue.iter().filter(|entry| waits(entry)) {
            let wanted = &entry.wanted;
            if self.holds.iter().any(|hold| hold.holder == wanted.holder) {
                continue;
            }
            let beside = admitted.iter().map(|entry| entry.wanted.mode);
            if !rules::fits(self.held(wanted.replaces).chain(beside), wanted.mode) {
                break;
            }
            admitted.push(entry);
        }
        admitted
    }

    /// The modes of all holds but that which is to be replaced.
    fn held(&self, replaced: Option<H>) -> impl Iterator<Item = Mode> {
        let others = self.holds.iter().filter(move |hold| Some(hold.holder) != replaced);
        others.map(|hold| hold.mode)
    }

    /// Enters the queue, an upgrade at its head and others at its end; or moves the end of the entry that is there.
    pub fn enter(&mut self, entry: QueueEntry<H, T, Q>) -> &mut QueueEntry<H, T, Q> {
        let is_it = |other: &QueueEntry<H, T, Q>| other.wanted.holder == entry.wanted.holder;
        let place = match self.queue.iter().position(is_it) {
            Some(place) => {
                self.queue[place].expires = entry.expires;
                place
            }
            None => {
                let place = if entry.wanted.replaces.is_some() {
                    0
                } else {
                    self.queue.len()
                };
                self.queue.insert(place, entry);
                place
            }
        };
        &mut self.queue[place]
    }

    /// Leaves the queue. Returns the entry.
    pub fn leave(&mut self, holder: H) -> Option<QueueEntry<H, T, Q>> {
        let place = self.queue.iter().position(|entry| entry.wanted.holder == holder)?;
        self.queue.remove(place)
    }

    /// Adds a hold that ends at `expires`. An upgrade ends the hold that it replaces, until it is undone.
    pub fn grant(&mut self, wanted: &Wanted<H>, expires: T, grant: G) {
        self.leave(wanted.holder);
        let replaced = wanted.replaces.and_then(|base| self.end(base));
        self.holds.push(HoldRecord {
            holder: wanted.holder,
            mode: wanted.mode,
            expires,
            grant,
            replaced: replaced.map(Box::new),
        });
    }

    /// Prolongs the hold of this holder id. Returns whether there is one.
    pub fn renew(&mut self, holder: H, now: T, ttl: Duration) -> bool {
        let hold = self.hold_of(holder);
        hold.map(|hold| hold.expires = rules::prolonged(hold.expires, now, ttl))
            .is_some()
    }

    /// Makes the hold of this holder id a shared one, and prolongs it. Returns whether there is one.
    pub fn downgrade(&mut self, holder: H, now: T, ttl: Duration) -> bool {
        if let Some(hold) = self.hold_of(holder) {
            (hold.mode, hold.replaced) = (Mode::Shared, None);
        }
        self.renew(holder, now, ttl)
    }

    /// Ends the hold of this holder id, also for an upgrade of it that is undone later. Returns the hold.
    pub fn end(&mut self, holder: H) -> Option<HoldRecord<H, T, G>> {
        for hold in &mut self.holds {
            hold.replaced.take_if(|replaced| replaced.holder == holder);
        }
        let is_mine = |hold: &HoldRecord<H, T, G>| rules::is_mine(&hold.holder, &holder);
        Some(self.holds.remove(self.holds.iter().position(is_mine)?))
    }

    /// Ends the hold of a request. The hold that it replaced is back, and lasts as long as the upgrade would have. Returns whose
    /// hold is back.
    pub fn undo(&mut self, holder: H) -> Option<H> {
        let undone = self.end(holder)?;
        let replaced = undone.replaced?;
        let base = replaced.holder;
        self.holds.push(HoldRecord {
            expires: undone.expires,
            ..*replaced
        });
        Some(base)
    }

    /// Returns the end of the hold that ends first unless it is renewed.
    pub fn next_end(&self) -> Option<T> {
        self.holds.iter().map(|hold| hold.expires).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Name = NameState<char, Duration, (), ()>;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn wanted(holder: char, mode: Mode) -> Wanted<char> {
        Wanted {
            holder,
            mode,
            replaces: None,
        }
    }

    const UPGRADE: Wanted<char> = Wanted {
        holder: 'u',
        mode: Mode::Exclusive,
        replaces: Some('r'),
    };

    fn upgraded() -> Name {
        let mut name = Name::default();
        name.grant(&wanted('r', Mode::Upgradable), at(10), ());
        assert_eq!(name.decide(&UPGRADE, Name::admits), Decision::Grant);
        name.grant(&UPGRADE, at(20), ());
        name
    }

    #[test]
    fn an_upgrade_that_is_undone_gives_the_hold_back() {
        let mut name = upgraded();
        assert_eq!(name.undo('u'), Some('r'));
        assert_eq!((name.holds[0].mode, name.next_end()), (Mode::Upgradable, Some(at(20))));
    }

    #[test]
    fn a_hold_that_was_released_meanwhile_is_not_given_back() {
        let mut name = upgraded();
        assert_eq!(name.end('r'), None);
        assert_eq!(name.undo('u'), None);
        assert!(name.is_free());
    }

    #[test]
    fn a_downgraded_hold_gives_nothing_back() {
        let mut name = upgraded();
        assert!(name.downgrade('u', at(5), at(10)));
        assert_eq!((name.holds[0].mode, name.next_end()), (Mode::Shared, Some(at(20))));
        assert_eq!(name.undo('u'), None);
    }

    #[test]
    fn whoever_fits_is_admitted_in_order() {
        let mut name = Name::default();
        let entry = |holder, mode| QueueEntry {
            wanted: wanted(holder, mode),
            expires: Some(at(9)),
            with: (),
        };
        for (holder, mode) in [
            ('a', Mode::Shared),
            ('b', Mode::Shared),
            ('c', Mode::Exclusive),
            ('d', Mode::Shared),
        ] {
            name.enter(entry(holder, mode));
        }
        let admitted = |name: &Name| {
            let admitted = name.admitted(|_| true);
            admitted.iter().map(|entry| entry.wanted.holder).collect::<String>()
        };
        assert_eq!(admitted(&name), "ab");
        // A request that holds the name already is passed over.
        name.holds.push(HoldRecord {
            holder: 'a',
            mode: Mode::Shared,
            expires: at(9),
            grant: (),
            replaced: None,
        });
        assert_eq!(admitted(&name), "b");
        name.leave('c');
        assert_eq!(admitted(&name), "bd");
        name.enter(entry('b', Mode::Shared)).expires = Some(at(12));
        name.forget_expired(at(9));
        assert_eq!(admitted(&name), "b");
    }
}
