//! The local queue: of this process's callers, one at a time has the turn to ask the server for a name, and with it
//! the process's request there. The others wait behind it, and cost the server nothing.
//!
//! It knows nothing of who waits and of what is held, but what [`Waiter`] tells.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use self::last_word::{LastWord, Since};
use self::state::{LeaderState, Queue};
pub(crate) use self::turn::{Turn, UnansweredRelease};
pub(crate) use self::waiter::Waiter;
use crate::backend::AcquireRequest;
use crate::error::Result;
use crate::name::LockName;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, Weak};

pub(crate) mod last_word;
mod line;
mod state;
mod turn;
mod waiter;

/// The queues of all names of one locker.
#[derive(Debug)]
pub(crate) struct Queues<W: Waiter>(Mutex<HashMap<LockName, Queue<W>, RandomState>>);

/// What entering comes to.
pub(crate) enum Admission<W: Waiter, R> {
    /// Nobody is before us.
    Turn(Turn<W>),
    /// In the queue, which dropping the receiver leaves. With the count of what was learned of the name until now.
    Waiting(R, u64),
    /// The process's hold is shared.
    Shared,
    /// The name is taken, and the caller does not wait.
    Busy,
}

/// A caller that enters.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) is_patient: bool,
    pub(crate) deadline: Option<Instant>,
}

impl<W: Waiter> Default for Queues<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W: Waiter> Queues<W> {
    /// The turn at once, a share in what the process holds, or an entry in the queue, which `wait` makes.
    ///
    /// `share` is asked in one step with entering, so that a hold that begins after that lets us in. It may not drop
    /// what it upgrades: that may be the last that keeps a hold, and its turn comes back here.
    ///
    /// # Errors
    /// Those of `share`.
    pub(crate) fn enter<R>(
        self: &Arc<Self>,
        entry: &Entry<'_>,
        share: impl FnOnce(&Weak<W::Hold>) -> Result<bool>,
        wait: impl FnOnce() -> (W, R),
    ) -> Result<Admission<W, R>> {
        let mut queues = self.0.lock();
        let queue = queues.entry(entry.name.clone()).or_default();
        if !queue.is_led {
            queue.begin(entry.deadline);
            return Ok(Admission::Turn(Turn(Some((self.clone(), entry.name.clone())))));
        }
        if let LeaderState::Holding(hold, _) = &queue.leader
            && share(hold)?
        {
            return Ok(Admission::Shared);
        }
        if queue.leader.is_busy() && !entry.is_patient {
            return Ok(Admission::Busy);
        }
        let (waiter, receiver) = wait();
        queue.push(waiter);
        Ok(Admission::Waiting(receiver, queue.news))
    }

    /// The label of whoever has the name, as far as this process knows.
    pub(crate) fn holder(&self, name: &LockName) -> Option<Arc<str>> {
        match &self.0.lock().get(name)?.leader {
            LeaderState::Refused(label) | LeaderState::Holding(_, label) => label.clone(),
            LeaderState::Asking | LeaderState::Releasing => None,
        }
    }

    /// What is known of the name now, to this caller whose time is up.
    pub(crate) fn last_word(&self, name: &LockName, since: Since) -> LastWord {
        let queues = self.0.lock();
        let Some(queue) = queues.get(name) else {
            return LastWord::Nothing;
        };
        let unreachable = queue.request.as_ref().and_then(AcquireRequest::unreachable);
        if let Some(error) = unreachable.or_else(|| queue.failure.clone()) {
            return LastWord::Failed(error);
        }
        match &queue.leader {
            LeaderState::Refused(label) | LeaderState::Holding(_, label) => LastWord::Taken(label.clone()),
            // It went from one to the next meanwhile: the server answers, and others were before us.
            LeaderState::Asking | LeaderState::Releasing if since.has_news(queue.news, queue.request.as_ref()) => {
                LastWord::Taken(None)
            }
            LeaderState::Asking | LeaderState::Releasing => LastWord::Nothing,
        }
    }

    /// The next one to have the turn; without one, and without releases under way, the queue is gone.
    fn pop(&self, name: &LockName) -> Option<W> {
        let mut queues = self.0.lock();
        let queue = queues.get_mut(name)?;
        queue.leader = LeaderState::Asking;
        queue.request = None;
        let next = queue.line.pop_front();
        if next.is_none() {
            queue.is_led = false;
            if queue.releases.unanswered == 0 {
                queues.remove(name);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests;
