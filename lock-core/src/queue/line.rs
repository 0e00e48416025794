//! The waiters of one line, in order. It counts the kinds that are looked up, so that a grant need not look at all
//! waiters.

use std::collections::{HashMap, VecDeque};

use super::waiter::Waiter;
use crate::reentry::ReentryKey;

#[derive(Debug)]
pub(super) struct Line<W> {
    waiters: VecDeque<W>,
    impatient: usize,
    keys: HashMap<ReentryKey, usize>,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self {
            waiters: VecDeque::new(),
            impatient: 0,
            keys: HashMap::new(),
        }
    }
}

impl<W: Waiter> Line<W> {
    pub(super) fn push_back(&mut self, waiter: W) {
        // Callers that have gone are skipped in their turn. Here they are removed, so that they do not make the queue
        // grow.
        if self.waiters.len() == self.waiters.capacity() {
            let mut waiters = std::mem::take(self).waiters;
            waiters.retain(|waiter| !waiter.is_gone());
            // Twice the space, so that the next caller does not check all waiters again.
            self.waiters.reserve(2 * waiters.len());
            waiters.into_iter().for_each(|waiter| self.add(waiter));
        }
        self.add(waiter);
    }

    pub(super) fn push_front(&mut self, waiter: W) {
        self.count(&waiter);
        self.waiters.push_front(waiter);
    }

    pub(super) fn pop_front(&mut self) -> Option<W> {
        let first = self.waiters.pop_front()?;
        self.discount(&first);
        Some(first)
    }

    /// Takes the first waiter that `who` chooses and that is still there out of the queue, if it `may` have the hold.
    pub(super) fn take_first(&mut self, who: impl Fn(&W) -> bool, may: impl FnOnce(&W) -> bool) -> Option<W> {
        while self.waiters.front().is_some_and(W::is_gone) {
            self.pop_front();
        }
        let first = self
            .waiters
            .iter()
            .position(|waiter| who(waiter) && !waiter.is_gone())?;
        if !may(&self.waiters[first]) {
            return None;
        }
        let first = self.waiters.remove(first)?;
        self.discount(&first);
        Some(first)
    }

    /// Takes out of the queue all callers that do not wait, and all with this key.
    pub(super) fn drain_impatient(&mut self, key: Option<&ReentryKey>) -> Vec<W> {
        if self.impatient == 0 && key.is_none_or(|key| !self.keys.contains_key(key)) {
            return Vec::new();
        }
        self.drain_those(|waiter| !waiter.is_patient() || (key.is_some() && waiter.reentry() == key))
    }

    /// Takes all callers with this key out of the queue.
    pub(super) fn drain_key(&mut self, key: &ReentryKey) -> Vec<W> {
        match self.keys.contains_key(key) {
            true => self.drain_those(|waiter| waiter.reentry() == Some(key)),
            false => Vec::new(),
        }
    }

    /// Takes the first `at_most` waiters that `who` chooses and that are still there out of the queue.
    pub(super) fn drain_first(&mut self, at_most: usize, who: impl Fn(&W) -> bool) -> Vec<W> {
        let (mut chosen, mut index) = (Vec::new(), 0);
        while chosen.len() < at_most
            && let Some(waiter) = self.waiters.get(index)
        {
            let is_gone = waiter.is_gone();
            if !is_gone && !who(waiter) {
                index += 1;
            } else if let Some(waiter) = self.waiters.remove(index) {
                self.discount(&waiter);
                chosen.extend(Some(waiter).filter(|_| !is_gone));
            }
        }
        chosen
    }

    fn drain_those(&mut self, mut who: impl FnMut(&W) -> bool) -> Vec<W> {
        let mut chosen = Vec::new();
        for waiter in std::mem::take(self).waiters {
            match who(&waiter) {
                true => chosen.push(waiter),
                false => self.add(waiter),
            }
        }
        chosen
    }

    /// Everybody, out of the queue.
    pub(super) fn drain(&mut self) -> Vec<W> {
        std::mem::take(self).waiters.into()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    fn add(&mut self, waiter: W) {
        self.count(&waiter);
        self.waiters.push_back(waiter);
    }

    fn count(&mut self, waiter: &W) {
        self.impatient += usize::from(!waiter.is_patient());
        if let Some(key) = waiter.reentry() {
            *self.keys.entry(key.clone()).or_default() += 1;
        }
    }

    fn discount(&mut self, waiter: &W) {
        self.impatient -= usize::from(!waiter.is_patient());
        if let Some(key) = waiter.reentry()
            && let Some(count) = self.keys.get_mut(key)
        {
            *count -= 1;
            if *count == 0 {
                self.keys.remove(key);
            }
        }
    }
}
