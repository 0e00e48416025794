//! One task of a workload, and its locks.

use std::collections::VecDeque;

use crate::Mode;

/// One task's place.
pub(crate) struct Seat<L> {
    /// Of which client.
    pub(crate) client: usize,
    pub(crate) lock: L,
    /// Other names of its own, which follow in turn.
    pub(crate) others: VecDeque<L>,
    pub(crate) mode: Mode,
    /// The write side, and how many of a hundred acquires read.
    pub(crate) write: Option<(L, usize)>,
}

impl<L> Seat<L> {
    pub(crate) fn exclusive(client: usize, lock: L) -> Self {
        Self {
            client,
            lock,
            others: VecDeque::new(),
            mode: Mode::Exclusive,
            write: None,
        }
    }

    pub(crate) fn sharing(client: usize, lock: L, mode: Mode) -> Self {
        Self {
            mode,
            ..Self::exclusive(client, lock)
        }
    }

    /// Goes on with the name after this one.
    pub(crate) fn take_next_name(&mut self) {
        if let Some(next) = self.others.pop_front() {
            let last = std::mem::replace(&mut self.lock, next);
            self.others.push_back(last);
        }
    }
}
