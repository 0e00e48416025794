//! Those who wait, in order, and how many of them are of the kinds that are asked for: a grant must not look at
//! everybody who waits.

use std::collections::{HashMap, VecDeque};

use super::Waiting;
use crate::plan::Plan;
use crate::reentry::ReentryKey;

#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: VecDeque<Waiting>,
    impatient: usize,
    keys: HashMap<ReentryKey, usize>,
}

impl Line {
    pub(super) fn push_back(&mut self, waiting: Waiting) {
        // Those who have gone are skipped in their turn; here they must not make the queue grow.
        if self.waiting.len() == self.waiting.capacity() {
            let mut waiting = std::mem::take(self).waiting;
            waiting.retain(|waiting| !waiting.answer.is_closed());
            // Room for as many again, or the next one would look at everybody anew.
            self.waiting.reserve(2 * waiting.len());
            waiting.into_iter().for_each(|waiting| self.add(waiting));
        }
        self.add(waiting);
    }

    pub(super) fn push_front(&mut self, waiting: Waiting) {
        self.count(&waiting);
        self.waiting.push_front(waiting);
    }

    pub(super) fn pop_front(&mut self) -> Option<Waiting> {
        let first = self.waiting.pop_front()?;
        self.discount(&first);
        Some(first)
    }

    /// The first of those whom `who` chooses and who are still there, out of the queue.
    pub(super) fn take_first(&mut self, who: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
        while self.waiting.front().is_some_and(|waiting| waiting.answer.is_closed()) {
            self.pop_front();
        }
        let first = self
            .waiting
            .iter()
            .position(|waiting| who(waiting) && !waiting.answer.is_closed())?;
        let first = self.waiting.remove(first)?;
        self.discount(&first);
        Some(first)
    }

    /// Those who do not wait, out of the queue; and those who may share in what `plan` holds.
    pub(super) fn drain_impatient(&mut self, plan: Option<&Plan>) -> Vec<Waiting> {
        let key = plan.and_then(|plan| plan.reentry.as_ref());
        if self.impatient == 0 && key.is_none_or(|key| !self.keys.contains_key(key)) {
            return Vec::new();
        }
        let mut chosen = Vec::new();
        for waiting in std::mem::take(self).waiting {
            match !waiting.patience.is_patient() || plan.is_some_and(|plan| waiting.plan.may_share(plan)) {
                true => chosen.push(waiting),
                false => self.add(waiting),
            }
        }
        chosen
    }

    /// Everybody, out of the queue.
    pub(super) fn drain(&mut self) -> Vec<Waiting> {
        std::mem::take(self).waiting.into()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn add(&mut self, waiting: Waiting) {
        self.count(&waiting);
        self.waiting.push_back(waiting);
    }

    fn count(&mut self, waiting: &Waiting) {
        self.impatient += usize::from(!waiting.patience.is_patient());
        if let Some(key) = &waiting.plan.reentry {
            *self.keys.entry(key.clone()).or_default() += 1;
        }
    }

    fn discount(&mut self, waiting: &Waiting) {
        self.impatient -= usize::from(!waiting.patience.is_patient());
        if let Some(key) = &waiting.plan.reentry
            && let Some(count) = self.keys.get_mut(key)
        {
            *count -= 1;
            if *count == 0 {
                self.keys.remove(key);
            }
        }
    }
}
