//! The local queue: of this process's callers, one at a time has the turn to ask the server for a name.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::fmt;

use tokio::sync::oneshot;

use crate::error::Error;
use crate::name::LockName;
use crate::sync::{Arc, Mutex};

/// The queues of all names of one locker.
#[derive(Debug, Default)]
pub(crate) struct Queues(Mutex<HashMap<LockName, Queue>>);

#[derive(Debug, Default)]
struct Queue {
    progress: Progress,
    waiting: VecDeque<Waiting>,
}

/// How far whoever has the turn has come, which decides what a caller that does not wait is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Asking the server, which has not answered yet.
    #[default]
    Asking,
    /// The server said that somebody else has the name, with this label.
    Refused(Option<Arc<str>>),
    /// Holding, under this label.
    Holding(Option<Arc<str>>),
    /// Giving it back: the name is about to be free.
    Releasing,
}

impl Progress {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Holding(_))
    }
}

#[derive(Debug)]
struct Waiting {
    /// Whether it waits for the turn, or only to learn whether the name is taken.
    patient: bool,
    answer: oneshot::Sender<Answer>,
}

/// What a caller in the queue is told.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is your turn.
    Turn(Turn),
    /// The name is taken; for callers that do not wait.
    Busy,
    /// The server cannot be reached, as whoever had the turn found out for everybody.
    Failed(Error),
}

/// The right to ask the server for a name, and to hold it. Dropping it passes it on.
pub(crate) struct Turn(Option<(Arc<Queues>, LockName)>);

impl Queues {
    /// The turn at once, or a place in the queue. Dropping the receiver leaves the queue.
    pub(crate) fn enter(self: &Arc<Self>, name: &LockName, patient: bool) -> Result<Turn, oneshot::Receiver<Answer>> {
        let mut queues = self.0.lock();
        let queue = match queues.entry(name.clone()) {
            MapEntry::Vacant(vacant) => {
                vacant.insert(Queue::default());
                return Ok(Turn(Some((self.clone(), name.clone()))));
            }
            MapEntry::Occupied(occupied) => occupied.into_mut(),
        };
        let (sender, receiver) = oneshot::channel();
        if queue.progress.is_busy() && !patient {
            // The receiver is in hand, so this arrives.
            let _ = sender.send(Answer::Busy);
        } else {
            // Those who have gone are skipped in their turn; here they must not make the queue grow.
            if queue.waiting.len() == queue.waiting.capacity() {
                queue.waiting.retain(|waiting| !waiting.answer.is_closed());
            }
            queue.waiting.push_back(Waiting {
                patient,
                answer: sender,
            });
        }
        Err(receiver)
    }

    /// The label of whoever has the name, as far as this process knows.
    pub(crate) fn holder(&self, name: &LockName) -> Option<Arc<str>> {
        match &self.0.lock().get(name)?.progress {
            Progress::Refused(label) | Progress::Holding(label) => label.clone(),
            _ => None,
        }
    }

    /// The next one to have the turn; without one the queue is gone.
    fn pop(&self, name: &LockName) -> Option<Waiting> {
        let mut queues = self.0.lock();
        let queue = queues.get_mut(name)?;
        queue.progress = Progress::Asking;
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queues.remove(name);
        }
        next
    }

    /// Those whom `who` chooses, out of the queue.
    fn drain(&self, name: &LockName, progress: Option<Progress>, who: impl Fn(&Waiting) -> bool) -> VecDeque<Waiting> {
        let mut queues = self.0.lock();
        let Some(queue) = queues.get_mut(name) else {
            return VecDeque::new();
        };
        if let Some(progress) = progress {
            queue.progress = progress;
        }
        if !queue.waiting.iter().any(&who) {
            return VecDeque::new();
        }
        let (chosen, rest) = std::mem::take(&mut queue.waiting).into_iter().partition(who);
        queue.waiting = rest;
        chosen
    }
}

impl Turn {
    /// Notes how far it has come, and tells those who do not wait that the name is taken, if it is.
    pub(crate) fn progress(&self, progress: Progress) {
        let is_busy = progress.is_busy();
        for waiting in self.drain(Some(progress), |waiting| is_busy && !waiting.patient) {
            // Nobody listens any more where it fails.
            let _ = waiting.answer.send(Answer::Busy);
        }
    }

    /// Fails everybody in the queue: they would only find out the same, one after the other.
    pub(crate) fn fail_all(&self, error: &Error) {
        for waiting in self.drain(None, |_| true) {
            let _ = waiting.answer.send(Answer::Failed(error.clone()));
        }
    }

    fn drain(&self, progress: Option<Progress>, who: impl Fn(&Waiting) -> bool) -> VecDeque<Waiting> {
        match &self.0 {
            Some((queues, name)) => queues.drain(name, progress, who),
            None => VecDeque::new(),
        }
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
