//! The turn: the right of one caller to ask the server for a name, and to hold it.

use std::fmt;

use super::Queues;
use super::last_word::Since;
use super::state::{LeaderState, Queue};
use super::waiter::Waiter;
use crate::backend::AcquireRequest;
use crate::error::Error;
use crate::name::LockName;
use crate::reentry::ReentryKey;
use crate::sync::time::Instant;
use crate::sync::{Arc, oneshot};

/// The right to ask the server for a name, and to hold it. Dropping it passes it on.
pub(crate) struct Turn<W: Waiter>(pub(super) Option<(Arc<Queues<W>>, LockName)>);

/// A release that goes on although the turn was passed on. Dropped when it is over.
#[derive(Debug)]
pub(crate) struct UnansweredRelease<W: Waiter> {
    queues: Arc<Queues<W>>,
    name: LockName,
}

impl<W: Waiter> Turn<W> {
    /// The last attempt failed, and the server is asked anew.
    pub(crate) fn attempt_failed(&self, why: &Error) {
        self.change(|queue| {
            queue.leader = LeaderState::Asking;
            queue.failure = Some(why.clone());
        });
    }

    /// The name is about to be free.
    pub(crate) fn releasing(&self) {
        self.change(|queue| {
            // What the server never answered is no news.
            queue.news += u64::from(queue.leader.is_busy());
            queue.leader = LeaderState::Releasing;
        });
    }

    /// Counts a release that is not answered yet, for as long as the value lives: the turn may be passed on before.
    pub(crate) fn release_goes_on(&self) -> Option<UnansweredRelease<W>> {
        let (queues, name) = self.0.as_ref()?;
        self.change(|queue| queue.releases.unanswered += 1)?;
        Some(UnansweredRelease {
            queues: queues.clone(),
            name: name.clone(),
        })
    }

    /// Whether a release of this process is under way, which a request that is sent now may overtake.
    pub(crate) fn may_overtake_release(&self) -> bool {
        self.change(|queue| queue.releases.unanswered > 0).unwrap_or_default()
    }

    /// Is closed as soon as no release of this process is under way.
    pub(crate) fn releases_answered(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.change(|queue| match queue.releases.unanswered {
            0 => drop(sender),
            _ => queue.releases.refused.push(sender),
        });
        receiver
    }

    /// Whether the server answered somebody since this caller came, whose request is unanswered.
    pub(crate) fn has_news(&self, since: Since, request: &AcquireRequest) -> bool {
        self.change(|queue| since.has_news(queue.news, Some(request)))
            .unwrap_or_default()
    }

    /// This request of the next one in the queue asks for the name.
    pub(crate) fn asks(&self, request: &AcquireRequest) {
        self.change(|queue| queue.request = Some(request.clone()));
    }

    /// The request is shared by all who wait: it waits for as long as any of them, and those who come yet prolong it.
    pub(crate) fn shares(&self, request: &AcquireRequest) {
        self.change(|queue| {
            request.wait_until(queue.latest.deadline());
            queue.request = Some(request.clone());
        });
    }

    /// The server refused: those who do not wait are told.
    pub(crate) fn refused(&self, holder: Option<Arc<str>>) {
        let impatient = self.change(|queue| {
            queue.learned(LeaderState::Refused(holder));
            queue.line.drain_impatient(None)
        });
        impatient.unwrap_or_default().into_iter().for_each(W::refuse);
    }

    /// The name is held: those who do not wait are to be told, and those with the hold's re-entry key share in it.
    pub(crate) fn holding(&self, hold: &Arc<W::Hold>, label: Option<Arc<str>>, key: Option<&ReentryKey>) -> Vec<W> {
        let chosen = self.change(|queue| {
            queue.learned(LeaderState::Holding(Arc::downgrade(hold), label));
            queue.request = None;
            queue.line.drain_impatient(key)
        });
        chosen.unwrap_or_default()
    }

    /// Fails everybody in the queue: they would only find out the same, one after the other.
    pub(crate) fn fail_all(&self, error: &Error) {
        for waiter in self.change(|queue| queue.line.drain()).unwrap_or_default() {
            waiter.fail(error.clone());
        }
    }

    /// The first in the queue that is still there, out of it.
    pub(crate) fn next(&self) -> Option<W> {
        self.change(|queue| queue.line.take_first(|_| true))?
    }

    /// The first that waits, out of the queue, and until when somebody waits.
    pub(crate) fn next_patient(&self) -> Option<(W, Option<Instant>)> {
        self.change(|queue| {
            let next = queue.line.take_first(W::is_patient)?;
            Some((next, queue.latest.deadline()))
        })?
    }

    /// Puts it before all others.
    pub(crate) fn put_first(&self, waiter: W) {
        self.change(|queue| queue.line.push_front(waiter));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Queue<W>) -> T) -> Option<T> {
        let (queues, name) = self.0.as_ref()?;
        queues.0.lock().get_mut(name).map(change)
    }
}

impl<W: Waiter> Drop for Turn<W> {
    fn drop(&mut self) {
        let Some((queues, name)) = self.0.take() else { return };
        while let Some(waiter) = queues.pop(&name) {
            match waiter.take_turn(Turn(Some((queues.clone(), name.clone())))) {
                // It has gone, and its turn must not pass itself on as well.
                Err(mut unused) => drop(unused.0.take()),
                Ok(()) => return,
            }
        }
    }
}

impl<W: Waiter> Drop for UnansweredRelease<W> {
    fn drop(&mut self) {
        let mut queues = self.queues.0.lock();
        let Some(queue) = queues.get_mut(&self.name) else {
            return;
        };
        queue.releases.unanswered -= 1;
        if queue.releases.unanswered > 0 {
            return;
        }
        let refused = std::mem::take(&mut queue.releases.refused);
        if !queue.is_led {
            queues.remove(&self.name);
        }
        drop(queues);
        drop(refused);
    }
}

impl<W: Waiter> fmt::Debug for Turn<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn")
            .field(&self.0.as_ref().map(|(_, name)| name))
            .finish()
    }
}
