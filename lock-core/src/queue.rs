//! The local queue: of this process's callers, one at a time has the turn to ask the server for a name, and with it
//! the process's place there. The others wait behind it, and cost the server nothing.

use std::collections::HashMap;
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
    /// Whether anybody has the turn. A queue without one is kept for the releases under way.
    is_led: bool,
    progress: Progress,
    waiting: Line,
    latest: Latest,
    /// The process's place at the server, or the request that is to have it.
    place: Option<AcquireRequest>,
    /// Counts what was learned of the name, so that a waiter can tell whether anything was since it came.
    news: u64,
    /// Why the last attempt failed, if it did.
    failure: Option<Error>,
    releases: Releases,
}

/// This process's releases of a name that passed the turn on before they were answered.
#[derive(Debug, Default)]
struct Releases {
    unanswered: usize,
    /// Tries that were refused meanwhile, and ask again when all are answered.
    refused: Vec<oneshot::Sender<()>>,
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

/// What is known of a name when a caller's time is up.
#[derive(Debug)]
pub(crate) enum LastWord {
    /// It is taken, by a holder of this label.
    Taken(Option<Arc<str>>),
    /// The server could not be asked, for this reason.
    Failed(Error),
    /// Nothing was learned since the caller came.
    Nothing,
}

/// What comes of entering.
pub(crate) enum Entered {
    /// Nobody is before us.
    Turn(Turn),
    /// Dropping the receiver leaves the queue. With the count of what was learned of the name until now.
    Waiting(oneshot::Receiver<Answer>, u64),
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

/// A release that goes on although the turn was passed on. Dropped when it is over.
#[derive(Debug)]
pub(crate) struct UnansweredRelease {
    queues: Arc<Queues>,
    name: LockName,
}

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
        let queue = queues.entry(plan.name.clone()).or_default();
        if !queue.is_led {
            queue.begin(deadline);
            return Ok(Entered::Turn(Turn(Some((self.clone(), plan.name.clone())))));
        }
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
        Ok(Entered::Waiting(receiver, queue.news))
    }

    /// The label of whoever has the name, as far as this process knows.
    pub(crate) fn holder(&self, name: &LockName) -> Option<Arc<str>> {
        match self.last_word(name, 0) {
            LastWord::Taken(label) => label,
            LastWord::Failed(_) | LastWord::Nothing => None,
        }
    }

    /// What is known of the name now, to a caller that came when `news` had been learned of it.
    pub(crate) fn last_word(&self, name: &LockName, news: u64) -> LastWord {
        let held;
        let queues = self.0.lock();
        let Some(queue) = queues.get(name) else {
            return LastWord::Nothing;
        };
        let unreachable = queue.place.as_ref().and_then(AcquireRequest::unreachable);
        if let Some(error) = unreachable.or_else(|| queue.failure.clone()) {
            return LastWord::Failed(error);
        }
        match &queue.progress {
            Progress::Refused(label) => LastWord::Taken(label.clone()),
            Progress::Holding(holding) => {
                held = holding.upgrade();
                LastWord::Taken(held.as_ref().and_then(|held| held.plan.label.clone()))
            }
            // It went from one to the next meanwhile: the server answers, and others were before us.
            Progress::Asking | Progress::Releasing if queue.news > news => LastWord::Taken(None),
            Progress::Asking | Progress::Releasing => LastWord::Nothing,
        }
    }

    /// The next one to have the turn; without one, and without releases under way, the queue is gone.
    fn pop(&self, name: &LockName) -> Option<Waiting> {
        let mut queues = self.0.lock();
        let queue = queues.get_mut(name)?;
        queue.progress = Progress::Asking;
        queue.place = None;
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.is_led = false;
            if queue.releases.unanswered == 0 {
                queues.remove(name);
            }
        }
        next
    }
}

impl Queue {
    /// The first one has the turn, and nobody waits.
    fn begin(&mut self, deadline: Option<Instant>) {
        let releases = std::mem::take(&mut self.releases);
        *self = Self {
            is_led: true,
            releases,
            ..Self::default()
        };
        self.latest.add(deadline);
    }

    /// The server said something of the name.
    fn learned(&mut self, progress: Progress) {
        self.progress = progress;
        self.news += 1;
        self.failure = None;
    }

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
    /// The last attempt failed, and the server is asked anew.
    pub(crate) fn attempt_failed(&self, why: &Error) {
        self.change(|queue| {
            queue.progress = Progress::Asking;
            queue.failure = Some(why.clone());
        });
    }

    /// The name is about to be free.
    pub(crate) fn releasing(&self) {
        self.change(|queue| {
            queue.progress = Progress::Releasing;
            queue.news += 1;
        });
    }

    /// Counts a release that is not answered yet, for as long as the value lives: the turn may be passed on before.
    pub(crate) fn release_goes_on(&self) -> Option<UnansweredRelease> {
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

    /// Whether anything was learned of the name since `news` had been.
    pub(crate) fn has_news_since(&self, news: u64) -> bool {
        self.change(|queue| queue.news > news).unwrap_or_default()
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
            queue.learned(Progress::Refused(holder));
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
            queue.learned(Progress::Holding(Arc::downgrade(held)));
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

impl Drop for UnansweredRelease {
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

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn")
            .field(&self.0.as_ref().map(|(_, name)| name))
            .finish()
    }
}

#[cfg(test)]
mod tests;
