//! The waiters of this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::LockName;
use lock_core::backend::{AcquireRequest, HolderId, Mode};
use lock_kit::pacing::{Wakes, longest_pause, pause};
use lock_kit::sweep::Sweep;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::Session;
use crate::protocol::lease_table::Taken;

/// The requests of this process that were refused and may ask again.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    waiters: HashMap<HolderId, Waiter>,
    /// The number of calls that woke somebody.
    calls: u64,
    sweep: Sweep,
}

#[derive(Debug)]
pub(super) struct Waiter {
    name: LockName,
    /// True if it waits to share the name.
    shares: bool,
    /// The number of its refusals.
    refused: u32,
    /// The holder's label, when it was asked for last.
    label: Option<Arc<str>>,
    asked: Instant,
    /// True if the row has its mark.
    pub(super) is_marked: bool,
    pub(super) entry: Option<Entry>,
    /// Notified when the name may be free.
    woken: Arc<Notify>,
}

/// A queue entry, a named lock.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The connection that has it, or over which a request for one may be under way.
    pub(super) session: Arc<Session>,
    /// `None` until the server has said which one it is.
    pub(super) number: Option<usize>,
}

/// By so much a question may be late.
const LATE: Duration = Duration::from_millis(250);

impl Waits {
    /// True if this request was refused before.
    pub(super) fn contains(&self, waiter: HolderId) -> bool {
        self.0.lock().waiters.contains_key(&waiter)
    }

    /// True if the holder's label has to be read: it may have changed.
    pub(super) fn needs_label(&self, waiter: HolderId) -> bool {
        const SOMETIMES: u32 = 16;
        let registry = self.0.lock();
        let waiter = registry.waiters.get(&waiter);
        waiter.is_none_or(|waiter| waiter.refused.is_multiple_of(SOMETIMES))
    }

    /// The label that was found when it was asked for last.
    pub(super) fn label(&self, waiter: HolderId) -> Option<Arc<str>> {
        self.0.lock().waiters.get(&waiter)?.label.clone()
    }

    /// Notes a refusal, and returns what is notified if the name may be free.
    pub(super) fn refused(&self, request: &AcquireRequest, label: Option<Arc<str>>, taken: Taken) -> Arc<Notify> {
        let now = Instant::now();
        let mut registry = self.0.lock();
        registry.sweep();
        let waiter = registry.waiters.entry(request.holder()).or_insert_with(|| Waiter {
            name: request.name().clone(),
            shares: request.mode() != Mode::Exclusive,
            refused: 0,
            label: None,
            asked: now,
            is_marked: false,
            entry: None,
            woken: Arc::default(),
        });
        waiter.refused = waiter.refused.saturating_add(1);
        waiter.label = label;
        waiter.asked = now;
        waiter.is_marked = taken.is_marked;
        waiter.woken.clone()
    }

    /// The pause before the next question, if the name stays taken for `rest`.
    pub(super) fn pause(&self, waiter: HolderId, rest: Duration, wakes: Wakes) -> Duration {
        let registry = self.0.lock();
        let waiter = registry.waiters.get(&waiter);
        let (refused, shares) = waiter.map_or((1, false), |waiter| (waiter.refused, waiter.shares));
        let longest = longest_pause(registry.waiters.len(), wakes, shares);
        pause(refused, longest, rest, wakes, rand::random())
    }

    pub(super) fn entry(&self, waiter: HolderId) -> Option<Entry> {
        self.0.lock().waiters.get(&waiter)?.entry.clone()
    }

    pub(super) fn take_entry(&self, waiter: HolderId) -> Option<Entry> {
        self.0.lock().waiters.get_mut(&waiter)?.entry.take()
    }

    /// Returns whether the waiter is there.
    pub(super) fn set_entry(&self, waiter: HolderId, entry: Option<Entry>) -> bool {
        let mut registry = self.0.lock();
        let waiter = registry.waiters.get_mut(&waiter);
        waiter.map(|waiter| waiter.entry = entry).is_some()
    }

    /// Notes the number of the entry that a waiter has asked for. False if nobody needs it any more.
    pub(super) fn number_entry(&self, waiter: HolderId, number: usize) -> bool {
        let mut registry = self.0.lock();
        let entry = registry
            .waiters
            .get_mut(&waiter)
            .and_then(|waiter| waiter.entry.as_mut());
        entry.map(|entry| entry.number = Some(number)).is_some()
    }

    /// All entries of a name that this connection has are given back: whoever had one looks for another at its next refusal.
    pub(super) fn forget_entries(&self, name: &LockName, session: &Arc<Session>) {
        for waiter in self.0.lock().waiters.values_mut() {
            let is_its = |entry: &mut Entry| Arc::ptr_eq(&entry.session, session);
            if waiter.name == *name {
                waiter.entry.take_if(is_its);
            }
        }
    }

    /// For how long the mark of a waiter stays in the row: until it has asked again.
    pub(super) fn mark_lasts(&self, wakes: Wakes, mode: Mode) -> Duration {
        longest_pause(self.0.lock().waiters.len(), wakes, mode != Mode::Exclusive) + LATE
    }

    pub(super) fn remove(&self, waiter: HolderId) -> Option<Waiter> {
        self.0.lock().waiters.remove(&waiter)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().waiters.is_empty()
    }

    /// The number of calls that woke somebody. A question that was answered meanwhile may have left the mark for which that was, and is
    /// asked again.
    pub(super) fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Counts a call, and returns the names of those who are called: their mark is in a row, or they have a queue entry.
    pub(super) fn called(&self) -> Vec<LockName> {
        let mut registry = self.0.lock();
        registry.calls += 1;
        let called = registry.waiters.values().filter(|waiter| waiter.is_called());
        called.map(|waiter| waiter.name.clone()).collect()
    }

    /// Has all ask.
    pub(super) fn wake_all(&self) {
        let mut registry = self.0.lock();
        registry.calls += 1;
        for waiter in registry.waiters.values() {
            waiter.woken.notify_one();
        }
    }

    /// Has those ask who are called, wait for a name, and `may_ask`.
    pub(super) fn wake(&self, may_ask: impl Fn(&LockName, HolderId) -> bool) {
        let registry = self.0.lock();
        for (holder, waiter) in &registry.waiters {
            if waiter.is_called() && may_ask(&waiter.name, *holder) {
                waiter.woken.notify_one();
            }
        }
    }
}

impl Waiter {
    fn is_called(&self) -> bool {
        self.is_marked || self.entry.is_some()
    }
}

impl Registry {
    fn sweep(&mut self) {
        self.sweep.run(&mut self.waiters, |waiter| waiter.asked);
    }
}

#[cfg(test)]
mod tests {
    use lock_core::backend::request::{RequestOptions, Terms};

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_left_without_a_word_are_forgotten() {
        let waits = Waits::default();
        let refuse = || {
            let terms = Terms::new(ms(1000));
            let (request, _control) = RequestOptions::new(LockName::new("a").unwrap(), terms).start();
            let taken = Taken {
                rest: ms(1),
                is_marked: false,
            };
            waits.refused(&request, None, taken);
        };
        (0..200).for_each(|_| refuse());
        tokio::time::advance(Duration::from_secs(1200)).await;
        (0..200).for_each(|_| refuse());
        assert!(waits.0.lock().waiters.len() <= 300, "{}", waits.0.lock().waiters.len());
    }
}
