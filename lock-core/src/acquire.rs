//! One acquire, from the local queue to a share in a hold.

use std::pin::{Pin, pin};
use std::time::Duration;

use tracing::Instrument;

use self::pending::{Caller, Granted, PendingAcquire, Wakeup};
use self::shared::Shared;
use self::too_late::too_late;
use crate::backend::{Armed, Attempt, Hold, Mode};
use crate::background::call::pauses;
use crate::background::runner::ensure_running;
use crate::background::schedule::ScheduledHold;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::pass::Sequence;
use crate::hold::{ActiveHold, Share};
use crate::mutant::{Mutant, is_active};
use crate::observe;
use crate::options::CheckedLock;
use crate::options::wait::WaitLimit;
use crate::queue::last_word::{LastWord, Since};
use crate::queue::{Admission, Entry, Sharing};
use crate::sync::time::Instant;
use crate::sync::{Arc, oneshot};
use crate::time::{LeaseInstant, until};

mod at_server;
mod differing_limits;
pub(crate) mod pending;
pub(crate) mod shared;
mod too_late;

/// What an acquire came to.
pub(crate) enum Acquired {
    Share(Share<Caller>),
    /// To those who ask once.
    Taken,
}

pub(crate) async fn acquire(shared: &Arc<Shared>, lock: &CheckedLock, wait: WaitLimit) -> Result<Acquired> {
    let acquiring = async {
        let mut timer = observe::AcquireTimer::begin();
        let result = run(shared, lock, wait).await;
        let told = result.as_ref().map(|acquired| match acquired {
            Acquired::Share(share) => Some(share.hold().token()),
            Acquired::Taken => None,
        });
        timer.ended(&lock.name, told);
        result
    };
    let span = observe::acquire_span(&lock.name, lock.options.label.as_deref());
    // Where it is: it is large, and a span takes what it is given.
    pin!(acquiring).instrument(span).await
}

async fn run(shared: &Arc<Shared>, lock: &CheckedLock, wait: WaitLimit) -> Result<Acquired> {
    ensure_running(&shared.keeper)?;
    let _in_flight = shared.keeper.in_flight();
    // Hears of a close from here on.
    let closing = shared.closing.notified();
    shared.check_open()?;
    let limit = wait.time_limit(lock.limits.operation_timeout);
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let stopped = async {
        tokio::select! {
            biased;
            () = closing => StopReason::Closing,
            () = until(deadline) => StopReason::TooLate,
        }
    };
    tokio::pin!(stopped);
    let mut acquire = Acquire {
        shared,
        lock,
        wait,
        deadline,
        news: 0,
        stopped,
    };
    let wakeup = acquire.enter().await?;
    shared.check_open()?;
    let mut pending = match wakeup {
        Wakeup::Turn(turn) => PendingAcquire::start((&shared.backend, &shared.keeper), lock, (wait, deadline), turn),
        Wakeup::Pending(pending) => *pending,
        Wakeup::Share(share) => return Ok(Acquired::Share(share)),
        Wakeup::Busy => return acquire.taken(shared.queues.holder(&lock.name, lock.options.mode.into())),
        Wakeup::Failed(error) => return Err(error),
    };
    match acquire.drive(&mut pending).await? {
        Driven::Granted(hold, armed) => Ok(Acquired::Share(acquire.accept(pending.granted(hold, &armed)?))),
        Driven::Taken(holder) => acquire.taken(holder),
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Shorter than that of releases: after an outage, somebody waits.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Whoever acquires.
struct Acquire<'a, F> {
    shared: &'a Arc<Shared>,
    lock: &'a CheckedLock,
    wait: WaitLimit,
    deadline: Option<Instant>,
    /// How much had been learned of the name when it came.
    news: u64,
    stopped: Pin<&'a mut F>,
}

/// Why an acquire ends without an answer.
enum StopReason {
    Closing,
    TooLate,
}

/// The outcome of a pending acquire.
enum Driven {
    Granted(Arc<dyn Hold>, Armed),
    /// To those who ask once.
    Taken(Option<Arc<str>>),
}

impl<F: Future<Output = StopReason>> Acquire<'_, F> {
    /// Enters the local queue, and waits until it is woken.
    async fn enter(&mut self) -> Result<Wakeup> {
        let lock = self.lock;
        let entry = Entry {
            name: &lock.name,
            kind: lock.options.mode.into(),
            key: lock.options.reentry_key.as_ref(),
            is_patient: self.wait.is_patient(),
            deadline: self.deadline,
        };
        // They outlive the lock of the queue: each may be the last that keeps its hold.
        let mut held = Vec::new();
        let admission = self.shared.queues.enter(
            &entry,
            |hold, sharing| {
                let Some(hold) = hold.upgrade() else { return Ok(false) };
                let shared = match sharing {
                    Sharing::Reentry => hold.admit(&lock.options),
                    Sharing::Joining => Ok(hold.join(&lock.options)),
                };
                held.push(hold);
                shared
            },
            || self.in_line(),
        )?;
        if let Mode::Permits(permits) = lock.options.mode {
            self.shared.state_limit(&lock.name, permits.of());
        }
        match (admission, held.pop()) {
            (Admission::Turn(turn, news), _) => {
                self.news = news;
                Ok(Wakeup::Turn(turn))
            }
            (Admission::Waiting(receiver, news), _) => {
                observe::contended_in_process();
                self.news = news;
                self.sleep(receiver).await
            }
            // The last one that was asked.
            (Admission::Shared, Some(hold)) => Ok(Wakeup::Share(Share::of(hold, &self.shared.keeper))),
            (Admission::Shared | Admission::Busy, _) => {
                observe::contended_in_process();
                Ok(Wakeup::Busy)
            }
        }
    }

    /// This caller as it stands in the local queue.
    fn in_line(&self) -> (Caller, oneshot::Receiver<Wakeup>) {
        let (wakeup, receiver) = oneshot::channel();
        let caller = Caller {
            lock: self.lock.clone(),
            wait: self.wait,
            deadline: self.deadline,
            asked: LeaseInstant::now(),
            wakeup,
        };
        (caller, receiver)
    }

    /// Takes what was granted. Another caller may have begun the request with another ttl or label: then the first renewal comes
    /// at once, and the ttl with it. An entry in the server's queue is worth more than a label.
    fn accept(&self, granted: Granted) -> Share<Caller> {
        let (backend, keeper) = (&self.shared.backend, &self.shared.keeper);
        let Granted { grant, turn, as_asked } = granted;
        let place = (turn, Sequence::first());
        let hold = ActiveHold::new(grant, self.lock.clone(), backend, Arc::downgrade(keeper), place);
        let share = Share::begin(hold.clone(), keeper);
        if !as_asked {
            let scheduled: Arc<dyn ScheduledHold> = hold;
            keeper.schedule(&scheduled, Instant::now());
        }
        share
    }

    /// Waits for the turn, or for what else becomes of an entry in the local queue.
    async fn sleep(&mut self, mut receiver: oneshot::Receiver<Wakeup>) -> Result<Wakeup> {
        let stop = tokio::select! {
            biased;
            answer = &mut receiver => return answer.map_err(|_| self.shared.shut_down()),
            stop = &mut self.stopped => stop,
        };
        // The line forgets what the server last said when its last waiter leaves. So this one stays until it has read that.
        let _in_line = (!is_active(Mutant::LeavesBeforeTheLastWord)).then_some(receiver);
        match stop {
            StopReason::Closing => Err(self.shared.shut_down()),
            StopReason::TooLate => {
                let kind = self.lock.options.mode.into();
                match self.shared.queues.last_word(&self.lock.name, kind, self.since()) {
                    LastWord::Taken(_) if self.wait == WaitLimit::Once => Ok(Wakeup::Busy),
                    word => Err(self.too_late(word)),
                }
            }
        }
    }

    /// Polls the pending acquire until the server grants it.
    async fn drive(&mut self, pending: &mut PendingAcquire) -> Result<Driven> {
        let mut pauses = pauses(LONGEST_PAUSE);
        let mut last_error = None;
        // Those that a try may overtake. Once they are answered, it asks again.
        let mut overtaken = match self.wait.is_patient() || is_active(Mutant::AsksOnce) {
            true => None,
            false => pending.releases_answered(),
        };
        loop {
            let attempt = tokio::select! {
                biased;
                attempt = pending.attempt() => attempt,
                stop = &mut self.stopped => return self.stop(&stop, pending.last_word(last_error, self.since())),
            };
            let pause = match self.if_kept(attempt) {
                Ok(Attempt::Granted(hold, armed)) => {
                    self.shared.backend.note_reached();
                    self.shared.check_open()?;
                    return Ok(Driven::Granted(hold, armed));
                }
                // The backend has given up, whatever the server would have said.
                Ok(Attempt::Busy(_)) if pending.is_given_up() => {
                    let stop = (&mut self.stopped).await;
                    return self.stop(&stop, pending.last_word(last_error, self.since()));
                }
                Err(error) if self.is_no_news(pending, &error) => {
                    pending.unanswered(&error);
                    let stop = (&mut self.stopped).await;
                    let word = match pending.last_word(last_error, self.since()) {
                        LastWord::Nothing if !self.wait.was_spent_waiting() => {
                            LastWord::Failed(error.about(&self.lock.name))
                        }
                        word => word,
                    };
                    return self.stop(&stop, word);
                }
                Ok(Attempt::Busy(busy)) => {
                    self.shared.backend.note_reached();
                    last_error = None;
                    // A backend that says "at once" must not keep us spinning.
                    let pause = busy.ask_again.map(|pause| pause.max(SHORTEST_PAUSE));
                    let holder = busy.holder.clone();
                    if let Some(answered) = overtaken.take() {
                        // Perhaps taken by this process's own hold, whose release was sent again or had to wait. Until that
                        // is known, nobody else in the queue is refused.
                        pending.nothing_left();
                        tokio::select! {
                            biased;
                            _closed = answered => continue,
                            stop = &mut self.stopped => return match stop {
                                StopReason::Closing => Err(self.shared.shut_down()),
                                StopReason::TooLate => Ok(Driven::Taken(holder)),
                            },
                        }
                    }
                    pending.refused(busy);
                    if !self.wait.is_patient() {
                        pending.nothing_left();
                        return Ok(Driven::Taken(holder));
                    }
                    pause
                }
                // Granted, and over before we got to know.
                Err(error) if error.is_lost() => {
                    pending.anew(self.lock, (self.wait, self.deadline));
                    last_error = Some(error.about(&self.lock.name));
                    None
                }
                Err(error) => {
                    last_error = Some(self.failed(pending, error)?);
                    None
                }
            };
            let pause = pause
                .or_else(|| pauses.next())
                .and_then(|pause| Instant::now().checked_add(pause));
            tokio::select! {
                biased;
                stop = &mut self.stopped => return self.stop(&stop, pending.last_word(last_error, self.since())),
                () = until(pause) => {}
            }
        }
    }

    /// Refuses a grant of a server that does not keep what is required: the backend may have connected to it just now. What was
    /// granted is then undone like any failed attempt.
    fn if_kept(&self, attempt: Result<Attempt>) -> Result<Attempt> {
        if let Ok(Attempt::Granted(..)) = &attempt {
            self.shared.backend.check_required(self.lock.required.as_ref())?;
        }
        attempt
    }

    /// Whether this only says that a waiting request was given up. Its backend had no time left to ask the server, and has
    /// [reported](crate::backend::AcquireRequest::note_unreachable) a server that cannot be asked.
    fn is_no_news(&self, pending: &PendingAcquire, error: &Error) -> bool {
        self.wait.is_patient() && pending.is_given_up() && error.is_retryable() && pending.was_reached()
    }

    /// The error, to be tried again; or, as an error, what no trying mends.
    fn failed(&self, pending: &mut PendingAcquire, error: Error) -> Result<Error> {
        let error = error.about(&self.lock.name);
        pending.attempt_failed(&error);
        let reached = pending.was_reached();
        if self.wait.is_patient() && reached && error.is_retryable() {
            observe::acquire_failed(&self.lock.name, &error);
            return Ok(error);
        }
        let is_everybodys = match error.kind() {
            // That its own time was up is no news to those who wait for longer.
            ErrorKind::Unavailable => !reached && !pending.is_given_up(),
            kind => kind == ErrorKind::Denied,
        };
        pending.failed(&error, is_everybodys);
        Err(error)
    }

    /// The name is taken: an error to those who gave a limit, were it of zero.
    fn taken(&self, holder: Option<Arc<str>>) -> Result<Acquired> {
        match self.wait {
            WaitLimit::Once => Ok(Acquired::Taken),
            WaitLimit::Within(_) | WaitLimit::Rest(_) | WaitLimit::Forever => {
                Err(self.too_late(LastWord::Taken(holder)))
            }
        }
    }

    fn stop(&self, stop: &StopReason, word: LastWord) -> Result<Driven> {
        match stop {
            StopReason::Closing => Err(self.shared.shut_down()),
            StopReason::TooLate => match word {
                LastWord::Taken(holder) if !self.wait.is_patient() => Ok(Driven::Taken(holder)),
                word => Err(self.too_late(word)),
            },
        }
    }

    fn since(&self) -> Since {
        let limit = self.wait.time_limit(self.lock.limits.operation_timeout);
        let half_time = self
            .deadline
            .zip(limit)
            .and_then(|(deadline, limit)| deadline.checked_sub(limit / 2));
        Since {
            news: self.news,
            half_time,
        }
    }

    fn too_late(&self, word: LastWord) -> Error {
        too_late(self.lock, self.wait, word)
    }
}

#[cfg(test)]
mod tests;
