//! The local queue: of this process's callers, one at a time has the turn to ask the server for a name, and with it
//! the process's place there. The others wait behind it, and cost the server nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fmt;

use foldhash::fast::RandomState;

use self::line::Line;
use crate::backend::AcquireRequest;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::held::Held;
use crate::name::LockName;
use crate::place::Place;
use crate::plan::{Patience, Plan};
use crate::sync::oneshot;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, Weak};

mod line;

/// The queues of all names of one locker.
#[derive(Debug, Default)]
pub(crate) struct Queues(Mutex<HashMap<LockName, Queue, RandomState>>);

#[derive(Debug, Default)]
struct Queue {
    progress: Progress,
    waiting: Line,
    latest: Latest,
    /// The process's place at the server, or the request that is to have it.
    place: Option<AcquireRequest>,
}

/// How far whoever has the turn has come, which decides what a caller that does not wait is told.
#[derive(Clone, Debug, Default)]
pub(crate) enum Progress {
    /// Asking the server, which has not answered yet.
    #[default]
    Asking,
    /// The server said that somebody else has the name, with this label.
    Refused(Option<Arc<str>>),
    /// Holding. Weak, since the hold has the turn.
    Holding(Weak<Held>),
    /// Giving it back: the name is about to be free.
    Releasing,
}

impl Progress {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Holding(_))
    }
}

/// A caller in the queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) plan: Plan,
    pub(crate) patience: Patience,
    pub(crate) deadline: Option<Instant>,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// What a caller in the queue is told.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is your turn.
    Turn(Turn),
    /// It is your turn, and here is the process's place, whose first owner has gone.
    Place(Box<Place>),
    /// You have it.
    Guard(Guard),
    /// The name is taken; for callers that do not wait.
    Busy,
    /// Nobody gets it, as whoever had the turn found out for everybody.
    Failed(Error),
}

/// What comes of entering.
pub(crate) enum Entered {
    /// Nobody is before us.
    Turn(Turn),
    /// Dropping the receiver leaves the queue.
    Waiting(oneshot::Receiver<Answer>),
    /// The hold of the same re-entry key, in which we share now.
    Shared(Arc<Held>),
    Busy,
}

/// Until when somebody waits. It never becomes earlier when a waiter leaves, which costs nobody anything.
#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    forever: bool,
    deadline: Option<Instant>,
}

impl Latest {
    fn add(&mut self, deadline: Option<Instant>) {
        self.forever |= deadline.is_none();
        self.deadline = self.deadline.max(deadline);
    }

    fn deadline(self) -> Option<Instant> {
        self.deadline.filter(|_| !self.forever)
    }
}

/// The right to ask the server for a name, and to hold it. Dropping it passes it on.
pub(crate) struct Turn(Option<(Arc<Queues>, LockName)>);

impl Queues {
    /// The turn at once, a share in the hold of the same re-entry key, or a place in the queue.
    ///
    /// # Errors
    /// When the hold of the same key is held on other terms.
    pub(crate) fn enter(
        self: &Arc<Self>,
        plan: &Plan,
        patience: Patience,
        deadline: Option<Instant>,
    ) -> Result<Entered> {
        // Dropped after the lock: it may be the last that keeps a hold, and its turn comes back here.
        let held;
        let mut queues = self.0.lock();
        let queue = match queues.entry(plan.name.clone()) {
            MapEntry::Vacant(vacant) => {
                let mut queue = Queue::default();
                queue.latest.add(deadline);
                vacant.insert(queue);
                return Ok(Entered::Turn(Turn(Some((self.clone(), plan.name.clone())))));
            }
            MapEntry::Occupied(occupied) => occupied.into_mut(),
        };
        if let (Progress::Holding(holding), true) = (&queue.progress, plan.reentry.is_some()) {
            held = holding.upgrade();
            // In one step with entering: a hold that begins after that lets us in.
            let shared = held
                .as_ref()
                .filter(|held| plan.may_share(&held.plan) && held.is_shared());
            if let Some(held) = shared {
                plan.check_shared(&held.plan)?;
                if held.share() {
                    return Ok(Entered::Shared(held.clone()));
                }
            }
        }
        if queue.progress.is_busy() && !patience.is_patient() {
            return Ok(Entered::Busy);
        }
        let (sender, receiver) = oneshot::channel();
        queue.push(Waiting {
            plan: plan.clone(),
            patience,
            deadline,
            answer: sender,
        });
        Ok(Entered::Waiting(receiver))
    }

    /// The label of whoever has the name, as far as this process knows.
    pub(crate) fn holder(&self, name: &LockName) -> Option<Arc<str>> {
        let held;
        let queues = self.0.lock();
        match &queues.get(name)?.progress {
            Progress::Refused(label) => label.clone(),
            Progress::Holding(holding) => {
                held = holding.upgrade();
                held.as_ref()?.plan.label.clone()
            }
            _ => None,
        }
    }

    /// The next one to have the turn; without one the queue is gone.
    fn pop(&self, name: &LockName) -> Option<Waiting> {
        let mut queues = self.0.lock();
        let queue = queues.get_mut(name)?;
        queue.progress = Progress::Asking;
        queue.place = None;
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queues.remove(name);
        }
        next
    }
}

impl Queue {
    fn push(&mut self, waiting: Waiting) {
        if waiting.patience.is_patient() {
            self.latest.add(waiting.deadline);
            if let Some(place) = &self.place {
                place.wait_until(self.latest.deadline());
            }
        }
        self.waiting.push_back(waiting);
    }
}

impl Turn {
    /// The server is being asked anew, or the name is about to be free.
    pub(crate) fn progress(&self, progress: Progress) {
        self.change(|queue| queue.progress = progress);
    }

    /// The place is everybody's who waits: it waits for as long as any of them, and those who come yet prolong it.
    pub(crate) fn shares(&self, place: &AcquireRequest) {
        self.change(|queue| {
            place.wait_until(queue.latest.deadline());
            queue.place = Some(place.clone());
        });
    }

    /// The server refused: those who do not wait are told.
    pub(crate) fn refused(&self, holder: Option<Arc<str>>) {
        let impatient = self.change(|queue| {
            queue.progress = Progress::Refused(holder);
            queue.waiting.drain_impatient(None)
        });
        for waiting in impatient.unwrap_or_default() {
            // Nobody listens any more where it fails.
            let _ = waiting.answer.send(Answer::Busy);
        }
    }

    /// The name is held: those who do not wait are to be told, and those with the hold's re-entry key share in it.
    pub(crate) fn holding(&self, held: &Arc<Held>) -> Vec<Waiting> {
        let chosen = self.change(|queue| {
            queue.progress = Progress::Holding(Arc::downgrade(held));
            queue.place = None;
            queue.waiting.drain_impatient(Some(&held.plan))
        });
        chosen.unwrap_or_default()
    }

    /// Fails everybody in the queue: they would only find out the same, one after the other.
    pub(crate) fn fail_all(&self, error: &Error) {
        for waiting in self.change(|queue| queue.waiting.drain()).unwrap_or_default() {
            let _ = waiting.answer.send(Answer::Failed(error.clone()));
        }
    }

    /// The first in the queue that is still there, out of it.
    pub(crate) fn next(&self) -> Option<Waiting> {
        self.change(|queue| queue.waiting.take_first(|_| true))?
    }

    /// The first that waits, out of the queue, and until when somebody waits.
    pub(crate) fn next_patient(&self) -> Option<(Waiting, Option<Instant>)> {
        self.change(|queue| {
            let next = queue.waiting.take_first(|waiting| waiting.patience.is_patient())?;
            Some((next, queue.latest.deadline()))
        })?
    }

    /// Puts it before all others.
    pub(crate) fn put_first(&self, waiting: Waiting) {
        self.change(|queue| queue.waiting.push_front(waiting));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        let (queues, name) = self.0.as_ref()?;
        queues.0.lock().get_mut(name).map(change)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some((queues, name)) = self.0.take() else { return };
        while let Some(waiting) = queues.pop(&name) {
            let turn = Turn(Some((queues.clone(), name.clone())));
            match waiting.answer.send(Answer::Turn(turn)) {
                // It has gone, and its turn must not pass itself on as well.
                Err(Answer::Turn(mut unused)) => drop(unused.0.take()),
                _ => return,
            }
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn")
            .field(&self.0.as_ref().map(|(_, name)| name))
            .finish()
    }
}

#[cfg(test)]
mod tests;
