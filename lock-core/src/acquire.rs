//! One acquire, from the local queue to the guard.

use std::pin::{Pin, pin};
use std::time::Duration;

use tracing::Instrument;

use crate::backend::{Attempt, Hold};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::locker::{Inner, Locker};
use crate::observe;
use crate::place::{Granted, Place};
use crate::plan::{Patience, Plan};
use crate::queue::{Answer, Entered, LastWord};
use crate::sync::oneshot;
use crate::sync::time::Instant;
use crate::sync::{Arc, Ordering};
use crate::work::{Work, pauses, until};

/// What an acquire came to.
pub(crate) enum Acquired {
    Guard(Guard),
    /// To those who ask once.
    Taken,
}

pub(crate) async fn acquire(handle: &Locker, plan: &Plan, patience: Patience) -> Result<Acquired> {
    let acquiring = async {
        let mut waiting = observe::Waiting::begin();
        let result = take_part(handle, plan, patience).await;
        waiting.ended(&plan.name, &result);
        result
    };
    // Where it is: it is large, and a span takes what it is given.
    pin!(acquiring).instrument(observe::acquire_span(plan)).await
}

async fn take_part(handle: &Locker, plan: &Plan, patience: Patience) -> Result<Acquired> {
    let locker = handle.inner();
    locker.keeper.ensure_running()?;
    let _acquiring = locker.keeper.acquiring();
    let closing = locker.closing.notified();
    tokio::pin!(closing);
    closing.as_mut().enable();
    locker.check_open()?;
    let limit = plan.time_limit(patience);
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let stopped = async {
        tokio::select! {
            biased;
            () = closing => Stop::Closing,
            () = until(deadline) => Stop::TooLate,
        }
    };
    tokio::pin!(stopped);
    let mut caller = Caller {
        locker,
        plan,
        patience,
        deadline,
        news: 0,
        stopped,
    };
    let mut answer = match locker.queues.enter(plan, patience, deadline)? {
        Entered::Turn(turn) => Answer::Turn(turn),
        Entered::Waiting(receiver, news) => {
            caller.news = news;
            caller.wait(receiver).await?
        }
        Entered::Shared(held) => return Ok(Acquired::Guard(Guard::new(held, locker.keeper.kept()))),
        Entered::Busy => Answer::Busy,
    };
    loop {
        locker.check_open()?;
        let mut place = match answer {
            Answer::Turn(turn) => Place::start(locker, plan, patience, deadline, turn),
            Answer::Place(place) => *place,
            Answer::Guard(guard) => return Ok(Acquired::Guard(guard)),
            Answer::Busy => return caller.taken(locker.queues.holder(&plan.name)),
            Answer::Failed(error) => return Err(error),
        };
        let hold = match caller.lead(&mut place).await? {
            Led::Granted(hold) => hold,
            Led::Taken(holder) => return caller.taken(holder),
        };
        answer = match place.into_guard(plan, (patience, deadline), hold)? {
            Granted::Guard(guard) => Answer::Guard(guard),
            Granted::OnOtherTerms(held, receiver) => {
                // If it was lost meanwhile, the keeper knows.
                if held.lease.begin_release() {
                    locker.keeper.push(Work::release(held));
                }
                caller.wait(receiver).await?
            }
        };
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Shorter than that of releases: after an outage, somebody waits.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Whoever acquires.
struct Caller<'a, F> {
    locker: &'a Arc<Inner>,
    plan: &'a Plan,
    patience: Patience,
    deadline: Option<Instant>,
    /// How much had been learned of the name when it came.
    news: u64,
    stopped: Pin<&'a mut F>,
}

/// Why an acquire ends without an answer.
enum Stop {
    Closing,
    TooLate,
}

/// What driving a place came to.
enum Led {
    Granted(Arc<dyn Hold>),
    /// To those who ask once.
    Taken(Option<Arc<str>>),
}

impl<F: Future<Output = Stop>> Caller<'_, F> {
    /// Waits for the turn, or for what else becomes of a place in the local queue.
    async fn wait(&mut self, receiver: oneshot::Receiver<Answer>) -> Result<Answer> {
        let stop = tokio::select! {
            biased;
            answer = receiver => return answer.map_err(|_| self.locker.shut_down()),
            stop = &mut self.stopped => stop,
        };
        match stop {
            Stop::Closing => Err(self.locker.shut_down()),
            Stop::TooLate => match self.locker.queues.last_word(&self.plan.name, self.news) {
                LastWord::Taken(_) if self.patience == Patience::Once => Ok(Answer::Busy),
                word => Err(self.too_late(word)),
            },
        }
    }

    /// Drives the place until the server grants it.
    async fn lead(&mut self, place: &mut Place) -> Result<Led> {
        let mut pauses = pauses(LONGEST_PAUSE);
        let mut last_error = None;
        loop {
            let may_overtake_release = !self.patience.is_patient() && place.may_overtake_release();
            let attempt = tokio::select! {
                biased;
                attempt = place.attempt() => attempt,
                stop = &mut self.stopped => return self.stop(&stop, last_error, place),
            };
            let pause = match attempt {
                Ok(Attempt::Granted(hold, _armed)) => {
                    self.locker.reached.store(true, Ordering::Relaxed);
                    self.locker.check_open()?;
                    return Ok(Led::Granted(hold));
                }
                Ok(Attempt::Busy(busy)) => {
                    self.locker.reached.store(true, Ordering::Relaxed);
                    last_error = None;
                    // A backend that says "at once" must not keep us spinning.
                    let pause = busy.ask_again.map(|pause| pause.max(SHORTEST_PAUSE));
                    place.refused(busy);
                    if !self.patience.is_patient() {
                        place.nothing_left();
                        if !may_overtake_release {
                            return Ok(Led::Taken(place.holder()));
                        }
                        // Perhaps taken by this process's own hold, whose release was sent again or had to wait.
                        let answered = place.releases_answered();
                        tokio::select! {
                            biased;
                            _ = answered => continue,
                            stop = &mut self.stopped => return self.stop(&stop, None, place),
                        }
                    }
                    pause
                }
                // Granted, and over before we got to know.
                Err(error) if error.is_lost() => {
                    place.anew(self.plan, self.patience, self.deadline);
                    continue;
                }
                Err(error) => {
                    last_error = Some(self.failed(place, error)?);
                    None
                }
            };
            let pause = pause
                .or_else(|| pauses.next())
                .and_then(|pause| Instant::now().checked_add(pause));
            tokio::select! {
                biased;
                stop = &mut self.stopped => return self.stop(&stop, last_error, place),
                () = until(pause) => {}
            }
        }
    }

    /// The error, to be tried again; or, as an error, what no trying mends.
    fn failed(&self, place: &mut Place, error: Error) -> Result<Error> {
        let error = error.about(&self.plan.name);
        place.attempt_failed(&error);
        let reached = self.reached(place);
        if self.patience.is_patient() && reached && error.is_retryable() {
            observe::acquire_failed(&self.plan.name, &error);
            return Ok(error);
        }
        let is_everybodys = match error.kind() {
            // That its own time was up is no news to those who wait for longer.
            ErrorKind::Unavailable => !reached && !place.request.is_given_up(),
            kind => kind == ErrorKind::Denied,
        };
        place.failed(&error, is_everybodys);
        Err(error)
    }

    /// Whether the server was there once, so that it is worth waiting for. A connection that was cut before the first
    /// answer counts.
    fn reached(&self, place: &Place) -> bool {
        if place.request.was_connected() {
            self.locker.reached.store(true, Ordering::Relaxed);
        }
        self.locker.reached.load(Ordering::Relaxed)
    }

    /// The name is taken: an error to those who gave a limit, were it of zero.
    fn taken(&self, holder: Option<Arc<str>>) -> Result<Acquired> {
        match self.patience {
            Patience::Once => Ok(Acquired::Taken),
            Patience::Within(_) | Patience::Forever => Err(self.too_late(LastWord::Taken(holder))),
        }
    }

    fn stop(&self, stop: &Stop, last_error: Option<Error>, place: &Place) -> Result<Led> {
        match stop {
            Stop::Closing => Err(self.locker.shut_down()),
            Stop::TooLate => match place.last_word(last_error, self.news) {
                LastWord::Taken(holder) if !self.patience.is_patient() => Ok(Led::Taken(holder)),
                word => Err(self.too_late(word)),
            },
        }
    }

    /// The error of an acquire whose time is up.
    fn too_late(&self, word: LastWord) -> Error {
        let limit = match self.patience {
            Patience::Within(limit) => limit,
            Patience::Once | Patience::Forever => self.plan.time_limit(self.patience).unwrap_or_default(),
        };
        let error = match word {
            LastWord::Taken(holder) => {
                let error = Error::new(ErrorKind::TimedOut, format!("not acquired within {limit:?}"));
                match holder {
                    Some(holder) => error.with_holder(holder),
                    None => error,
                }
            }
            LastWord::Failed(cause) => {
                let message = format!("not acquired within {limit:?}, as the lock server cannot be asked");
                Error::new(ErrorKind::Unavailable, message).with_source(cause)
            }
            LastWord::Nothing => {
                let limit = self.plan.time_limit(self.patience).unwrap_or_default();
                let message = format!("the lock server did not answer within {limit:?}: check that it is there");
                Error::new(ErrorKind::Unavailable, message)
            }
        };
        error.with_name(&self.plan.name)
    }
}
