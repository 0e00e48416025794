//! What ought to be: this process's line, and the server's queue.

use std::collections::{BTreeMap, BTreeSet};

use lock_core::backend::{Mode, rules};

use super::{JOINS, Line, Patience, STEP, TTL};

/// Somebody at the server.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    mode: Mode,
    first: usize,
    pub(super) members: BTreeSet<usize>,
    joined: u32,
    since: u64,
}

/// An entry in the server's queue: of a caller, or of this process's line of readers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    mode: Mode,
    owner: Option<usize>,
    here: bool,
}

/// What ought to be.
#[derive(Debug)]
pub(super) struct Model {
    line: Line,
    pub(super) holds: Vec<Hold>,
    /// The shared hold that readers may join, by the number of its first member.
    latest: Option<usize>,
    pub(super) queue: Vec<Place>,
    /// Those of this process who wait: readers, and those who do not ask for permits.
    waiting: Vec<(usize, u32)>,
    /// Whose request closes the line of permits.
    closer: Option<usize>,
    /// When whose time is up.
    until: BTreeMap<u64, usize>,
    now: u64,
}

impl Model {
    pub(super) fn new(line: Line) -> Self {
        Self {
            line,
            holds: Vec::new(),
            latest: None,
            queue: Vec::new(),
            waiting: Vec::new(),
            closer: None,
            until: BTreeMap::new(),
            now: 0,
        }
    }

    pub(super) fn holding(&self) -> BTreeSet<usize> {
        self.holds.iter().flat_map(|hold| hold.members.clone()).collect()
    }

    pub(super) fn all_waiting(&self) -> BTreeSet<usize> {
        let at_server = self.queue.iter().filter_map(|place| place.owner);
        at_server.chain(self.waiting.iter().map(|(id, _)| *id)).collect()
    }

    pub(super) fn come(&mut self, id: usize, take: u32, patience: Patience) {
        let line = self.line;
        match line {
            Line::Readers if self.join(id) => return,
            Line::Readers => {
                if self.waiting.is_empty() {
                    self.ask(None, take);
                } else if patience == Patience::Once {
                    return;
                }
                self.waiting.push((id, take));
                self.admit();
            }
            Line::Permits if self.closer.is_some() => {
                if patience != Patience::Once {
                    self.waiting.push((id, take));
                }
            }
            Line::Permits => {
                self.ask(Some(id), take);
                self.admit();
                let refused = self.queue.iter().any(|place| place.owner == Some(id));
                self.closer = Some(id).filter(|_| refused && patience != Patience::Once);
            }
        }
        match patience {
            Patience::Once => self.leave(id),
            Patience::Within(_) => drop(self.until.insert(self.now + limit(id, patience), id)),
            Patience::Forever => {}
        }
    }

    pub(super) fn come_elsewhere(&mut self, id: usize, take: Option<u32>) {
        self.queue.push(Place {
            mode: take.map_or(Mode::Exclusive, |take| self.line.mode(take)),
            owner: Some(id),
            here: false,
        });
        self.admit();
    }

    fn join(&mut self, id: usize) -> bool {
        let latest = self.latest;
        let hold = self.holds.iter_mut().find(|hold| Some(hold.first) == latest);
        let Some(hold) = hold.filter(|_| self.waiting.is_empty()) else {
            return false;
        };
        let joins = hold.joined < JOINS && self.now < hold.since + TTL / 3;
        if joins {
            hold.joined += 1;
            hold.members.insert(id);
        }
        joins
    }

    fn ask(&mut self, owner: Option<usize>, take: u32) {
        self.queue.push(Place {
            mode: self.line.mode(take),
            owner,
            here: true,
        });
    }

    /// Those at the front of the server's queue that fit, and what follows from that here.
    fn admit(&mut self) {
        let mut asked = Vec::new();
        while let Some(first) = self.queue.first().copied()
            && rules::fits(self.holds.iter().map(|hold| hold.mode), first.mode)
        {
            self.queue.remove(0);
            let members = match first.owner {
                Some(owner) => vec![owner],
                None => {
                    let most = self.waiting.len().min(JOINS as usize + 1);
                    self.waiting.drain(..most).map(|(id, _)| id).collect()
                }
            };
            if first.owner.is_none() {
                self.latest = members.first().copied();
                if let Some((_, take)) = self.waiting.first() {
                    self.ask(None, *take);
                }
            }
            self.holds.push(Hold::new(first.mode, &members, self.now));
            if first.owner.is_some() && first.owner == self.closer {
                asked.extend(self.open());
            }
        }
        self.close(&asked);
    }

    /// All who wait for permits ask.
    fn open(&mut self) -> Vec<usize> {
        self.closer = None;
        let waiting = std::mem::take(&mut self.waiting);
        for (id, take) in &waiting {
            self.ask(Some(*id), *take);
        }
        waiting.into_iter().map(|(id, _)| id).collect()
    }

    /// The first of those who asked and were refused closes the line.
    fn close(&mut self, asked: &[usize]) {
        let refused = |id: &&usize| self.queue.iter().any(|place| place.owner == Some(**id));
        self.closer = self.closer.or(asked.iter().find(refused).copied());
    }

    /// One who waits does so no more.
    pub(super) fn leave(&mut self, id: usize) {
        let mut asked = Vec::new();
        let place = self.queue.iter().position(|place| place.owner == Some(id));
        if let Some(place) = place.filter(|place| self.queue[*place].here) {
            let first = self.waiting.first().copied();
            match first.filter(|(_, take)| self.line.mode(*take) == self.queue[place].mode) {
                Some((heir, _)) => {
                    self.waiting.remove(0);
                    self.queue[place].owner = Some(heir);
                    self.closer = self.closer.map(|closer| if closer == id { heir } else { closer });
                }
                None => {
                    self.queue.remove(place);
                    if self.closer == Some(id) {
                        asked = self.open();
                    }
                }
            }
        } else if let Some(place) = place {
            self.queue.remove(place);
        }
        self.waiting.retain(|(waiting, _)| *waiting != id);
        if self.waiting.is_empty() {
            self.queue.retain(|place| place.owner.is_some());
        }
        self.admit();
        self.close(&asked);
    }

    pub(super) fn release(&mut self, id: usize) {
        for hold in &mut self.holds {
            hold.members.remove(&id);
        }
        self.holds.retain(|hold| !hold.members.is_empty());
        self.admit();
    }

    pub(super) fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while let Some((until, id)) = self.until.pop_first() {
            if until > end {
                self.until.insert(until, id);
                break;
            }
            self.now = until;
            if self.all_waiting().contains(&id) {
                self.leave(id);
            }
        }
        self.now = end;
    }
}

impl Hold {
    fn new(mode: Mode, members: &[usize], now: u64) -> Self {
        Self {
            mode,
            first: members[0],
            members: members.iter().copied().collect(),
            joined: u32::try_from(members.len() - 1).unwrap(),
            since: now,
        }
    }
}

pub(super) fn limit(id: usize, patience: Patience) -> u64 {
    match patience {
        Patience::Within(steps) => STEP * steps + 2 * id as u64 + 1,
        Patience::Once | Patience::Forever => 0,
    }
}
