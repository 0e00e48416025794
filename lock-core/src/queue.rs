//! The local queue. Of this process's callers that want a name in one mode, one at a time has the turn: it asks the server,
//! and owns the process's request there. The others wait behind it in their line, and cost the server nothing. Each line
//! asks by itself: the server's queue decides between modes.
//!
//! The queue knows its waiters and holds only through the trait [`Waiter`].

use std::collections::HashMap;

use foldhash::fast::RandomState;

use self::last_word::{LastWord, Since};
pub(crate) use self::lines::LineKind;
use self::lines::Lines;
use self::releases::Answered;
use self::state::LeaderState;
pub(crate) use self::turn::{Detached, Turn, UnansweredRelease};
pub(crate) use self::waiter::Waiter;
use crate::backend::AcquireRequest;
use crate::error::Result;
use crate::name::LockName;
use crate::reentry::ReentryKey;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, Weak};

pub(crate) mod last_word;
mod line;
mod lines;
mod releases;
mod state;
mod turn;
mod waiter;

/// The lines of all names of one locker.
#[derive(Debug)]
pub(crate) struct Queues<W: Waiter>(Mutex<HashMap<LockName, Lines<W>, RandomState>>);

/// The result of entering the queue.
pub(crate) enum Admission<W: Waiter, R> {
    /// The caller may ask the server. With the count of answers about the name until now.
    Turn(Turn<W>, u64),
    /// The caller waits; dropping the receiver leaves the queue. With the same count.
    Waiting(R, u64),
    /// The caller shares the process's hold.
    Shared,
    /// The name is taken, and the caller does not wait.
    Busy,
}

/// A caller that enters.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) kind: LineKind,
    pub(crate) key: Option<&'a ReentryKey>,
    pub(crate) is_patient: bool,
    pub(crate) deadline: Option<Instant>,
}

/// Why a caller may share in a hold of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// It may have the hold's re-entry key.
    Reentry,
    /// Both are readers.
    Joining,
}

impl<W: Waiter> Default for Queues<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W: Waiter> Queues<W> {
    /// Enters a caller: it gets the turn at once, a share in a hold of the process, or an entry in the queue, which `wait`
    /// makes.
    ///
    /// `share` runs in one step with entering, so that a hold that begins later lets the caller in. It must not drop the
    /// reference that it upgrades: if that is the last one of a hold, its drop locks this queue again.
    ///
    /// # Errors
    /// Those of `share`.
    pub(crate) fn enter<R>(
        self: &Arc<Self>,
        entry: &Entry<'_>,
        mut share: impl FnMut(&Weak<W::Hold>, Sharing) -> Result<bool>,
        wait: impl FnOnce() -> (W, R),
    ) -> Result<Admission<W, R>> {
        let mut names = self.0.lock();
        let lines = names.entry(entry.name.clone()).or_default();
        if let Some(key) = entry.key {
            for hold in lines.held_with(key) {
                if share(hold, Sharing::Reentry)? {
                    return Ok(Admission::Shared);
                }
            }
        }
        if entry.kind == LineKind::Shared
            && let Some(hold) = lines.to_join()
            && share(hold, Sharing::Joining)?
        {
            return Ok(Admission::Shared);
        }
        let line = lines.line(entry.kind);
        if let Some(number) = line.begin(entry.kind, entry.deadline) {
            let turn = Turn::new(self, entry.name, entry.kind, number);
            return Ok(Admission::Turn(turn, line.news));
        }
        if line.leader.is_busy() && !entry.is_patient {
            return Ok(Admission::Busy);
        }
        let (waiter, receiver) = wait();
        line.push(waiter);
        Ok(Admission::Waiting(receiver, line.known_to_waiter()))
    }

    /// Notes the semaphore's limit that a caller states. Returns the limit of the caller before, if the name has been in use
    /// since.
    pub(crate) fn state_limit(&self, name: &LockName, limit: u32) -> Option<u32> {
        self.0.lock().get_mut(name)?.state_limit(limit)
    }

    /// The label of the holder, as far as this line knows it.
    pub(crate) fn holder(&self, name: &LockName, kind: LineKind) -> Option<Arc<str>> {
        match &self.0.lock().get(name)?.known_line(kind)?.leader {
            LeaderState::Refused(label) | LeaderState::Holding(_, label) => label.clone(),
            LeaderState::Asking | LeaderState::Releasing(_) => None,
        }
    }

    /// The last known state of the name, for a caller whose time is up.
    pub(crate) fn last_word(&self, name: &LockName, kind: LineKind, since: Since) -> LastWord {
        let names = self.0.lock();
        let Some(line) = names.get(name).and_then(|lines| lines.known_line(kind)) else {
            return LastWord::Nothing;
        };
        let unreachable = line.request.as_ref().and_then(AcquireRequest::unreachable);
        if let Some(error) = unreachable.or_else(|| line.failure.clone()) {
            return LastWord::Failed(error);
        }
        // The holder of the turn may not have seen the answer to its request yet.
        let noted = line.request.as_ref().and_then(AcquireRequest::last_busy);
        let silent_since = match (&line.leader, noted) {
            (LeaderState::Refused(label) | LeaderState::Holding(_, label), _) => return LastWord::Taken(label.clone()),
            (LeaderState::Asking, Some(busy)) => return LastWord::Taken(busy.holder),
            (LeaderState::Asking, None) => line.request.as_ref().map(AcquireRequest::made),
            (LeaderState::Releasing(since), _) => Some(*since),
        };
        // Other callers of this process had the turn meanwhile: the server answers, and they came first.
        match since.has_news(line.news, silent_since) {
            true => LastWord::Taken(None),
            false => LastWord::Nothing,
        }
    }

    /// The next one to have a turn of this line, after one with this number and release has `ended`.
    fn pass_on(&self, name: &LockName, kind: LineKind, ended: Option<(u64, Option<u64>)>) -> Option<(W, u64)> {
        let (mut next, mut answered) = (None, Answered::new());
        self.change(name, |lines| {
            if let Some((number, release)) = ended {
                lines.line(kind).end_turn(number);
                if let Some(round) = release {
                    answered = lines.releases.end(round);
                }
            }
            let line = lines.line(kind);
            // Mostly nobody waits, and a waiter is large to move.
            if !line.line.is_empty() {
                next = line.next_turn(kind);
            }
        });
        // Outside the lock.
        drop(answered);
        next
    }

    /// Changes the lines of a name, and removes the name if it is idle then.
    fn change<T>(&self, name: &LockName, change: impl FnOnce(&mut Lines<W>) -> T) -> Option<T> {
        let mut names = self.0.lock();
        let lines = names.get_mut(name)?;
        let result = change(lines);
        if lines.is_idle() {
            names.remove(name);
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests;
