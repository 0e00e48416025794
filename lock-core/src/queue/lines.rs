//! The lines of one name, one for each kind of mode, and what this process holds of it beside them.

use std::collections::HashMap;

use super::releases::Releases;
use super::state::{LeaderState, Queue};
use super::waiter::Waiter;
use crate::backend::Mode;
use crate::reentry::ReentryKey;
use crate::sync::{Arc, Weak};

/// The kinds of callers that stand in one line. Each line asks the server by itself, and the server's queue decides
/// between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// One caller has the turn, keeps it while it holds, and passes the hold on to the next one.
    Exclusive,
    /// One caller has the turn while it asks. With a grant the next ones enter as well.
    Shared,
    /// One caller has the turn, and keeps it while it holds.
    Upgradable,
    /// Several callers have a turn each while they ask.
    Permits,
}

/// The most requests for permits of one name that a process may have at the server.
pub(super) const MOST_PERMIT_REQUESTS: usize = 16;

impl LineKind {
    /// The most callers that may have a turn at the same time.
    pub(super) fn most_turns(self) -> usize {
        match self {
            Self::Exclusive | Self::Shared | Self::Upgradable => 1,
            Self::Permits => MOST_PERMIT_REQUESTS,
        }
    }
}

impl From<Mode> for LineKind {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive,
            Mode::Shared => Self::Shared,
            Mode::Upgradable => Self::Upgradable,
            Mode::Permits(_) => Self::Permits,
        }
    }
}

#[derive(Debug)]
pub(super) struct Lines<W: Waiter> {
    exclusive: Queue<W>,
    /// Made for the first caller who is not exclusive: a name that nobody shares does not pay for it.
    others: Option<Box<Others<W>>>,
    pub(super) releases: Releases,
}

#[derive(Debug)]
struct Others<W: Waiter> {
    shared: Queue<W>,
    upgradable: Queue<W>,
    permits: Queue<W>,
    /// The semaphore's limit in the latest request for permits.
    limit: Option<u32>,
    /// The number of holds of this process that have no turn.
    detached: usize,
    /// The latest shared hold without a re-entry key, for readers to join.
    latest: Option<Weak<W::Hold>>,
    /// The shared holds that have a re-entry key.
    keyed: HashMap<ReentryKey, Weak<W::Hold>>,
}

impl<W: Waiter> Default for Lines<W> {
    fn default() -> Self {
        Self {
            exclusive: Queue::default(),
            others: None,
            releases: Releases::default(),
        }
    }
}

impl<W: Waiter> Default for Others<W> {
    fn default() -> Self {
        Self {
            shared: Queue::default(),
            upgradable: Queue::default(),
            permits: Queue::default(),
            limit: None,
            detached: 0,
            latest: None,
            keyed: HashMap::new(),
        }
    }
}

impl<W: Waiter> Lines<W> {
    /// The line of this kind.
    pub(super) fn line(&mut self, kind: LineKind) -> &mut Queue<W> {
        match kind {
            LineKind::Exclusive => &mut self.exclusive,
            LineKind::Shared => &mut self.others().shared,
            LineKind::Upgradable => &mut self.others().upgradable,
            LineKind::Permits => &mut self.others().permits,
        }
    }

    /// The same, to look at; `None` if nobody ever stood in it.
    pub(super) fn known_line(&self, kind: LineKind) -> Option<&Queue<W>> {
        match kind {
            LineKind::Exclusive => Some(&self.exclusive),
            LineKind::Shared => self.others.as_ref().map(|others| &others.shared),
            LineKind::Upgradable => self.others.as_ref().map(|others| &others.upgradable),
            LineKind::Permits => self.others.as_ref().map(|others| &others.permits),
        }
    }

    /// Notes the limit of a request, and returns that of the request before, if any.
    pub(super) fn state_limit(&mut self, limit: u32) -> Option<u32> {
        self.others().limit.replace(limit)
    }

    /// The holds of this process that may have this key.
    pub(super) fn held_with(&self, key: &ReentryKey) -> impl Iterator<Item = &Weak<W::Hold>> {
        let others = self.others.as_deref();
        let leaders = [Some(&self.exclusive), others.map(|others| &others.upgradable)];
        let held = leaders.into_iter().flatten().filter_map(|line| match &line.leader {
            LeaderState::Holding(hold, _) => Some(hold),
            _ => None,
        });
        held.chain(others.and_then(|others| others.keyed.get(key)))
    }

    /// The shared hold that a reader may join: the latest, if nobody of this process is before the reader. A waiting upgradable
    /// reader is not, since both may hold the name together.
    pub(super) fn to_join(&self) -> Option<&Weak<W::Hold>> {
        let others = self.others.as_deref()?;
        let is_first = others.shared.is_free()
            && self.exclusive.request.is_none()
            && others.permits.request.is_none()
            && others.upgradable.upgrade.is_none();
        others.latest.as_ref().filter(|_| is_first)
    }

    /// The process holds the name without a turn: shared, with this key or for readers to join, or by permits.
    pub(super) fn detach(&mut self, kind: LineKind, hold: &Arc<W::Hold>, key: Option<&ReentryKey>) {
        let others = self.others();
        others.detached += 1;
        match key {
            _ if kind == LineKind::Permits => {}
            Some(key) => drop(others.keyed.insert(key.clone(), Arc::downgrade(hold))),
            None => others.latest = Some(Arc::downgrade(hold)),
        }
    }

    /// A hold without a turn is being released, or has ended.
    pub(super) fn strike_off(&mut self, hold: &Weak<W::Hold>, key: Option<&ReentryKey>) {
        let others = self.others();
        others.detached -= 1;
        if let Some(key) = key
            && others.keyed.get(key).is_some_and(|known| known.ptr_eq(hold))
        {
            others.keyed.remove(key);
        }
        others.latest.take_if(|known| known.ptr_eq(hold));
    }

    /// Those in the line of readers who have this key, out of it.
    pub(super) fn drain_readers(&mut self, key: &ReentryKey) -> Vec<W> {
        match &mut self.others {
            Some(others) => others.shared.line.drain_key(key),
            None => Vec::new(),
        }
    }

    /// True if this process waits for the name in a mode other than exclusive.
    pub(super) fn is_awaited_in_other_modes(&self) -> bool {
        let waits = |line: &Queue<W>| line.request.is_some();
        self.others
            .as_deref()
            .is_some_and(|others| waits(&others.shared) || waits(&others.upgradable) || waits(&others.permits))
    }

    /// True if nobody waits, holds or releases.
    pub(super) fn is_idle(&self) -> bool {
        let others_are_idle = |others: &Others<W>| {
            let lines = [&others.shared, &others.upgradable, &others.permits];
            others.detached == 0 && lines.into_iter().all(Queue::is_free)
        };
        self.exclusive.is_free() && self.releases.is_empty() && self.others.as_deref().is_none_or(others_are_idle)
    }

    fn others(&mut self) -> &mut Others<W> {
        self.others.get_or_insert_default()
    }
}
