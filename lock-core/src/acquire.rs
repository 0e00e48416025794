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
use crate::queue::{Answer, Entered};
use crate::sync::oneshot;
use crate::sync::time::Instant;
use crate::sync::{Arc, Ordering};
use crate::work::{Work, pauses, until};

/// `None` when the name is taken, to those who ask once.
pub(crate) async fn acquire(handle: &Locker, plan: &Plan, patience: Patience) -> Result<Option<Guard>> {
    let acquiring = async {
        let mut waiting = observe::Waiting::begin();
        let result = take_part(handle, plan, patience).await;
        waiting.ended(&plan.name, &result);
        result
    };
    // Where it is: it is large, and a span takes what it is given.
    pin!(acquiring).instrument(observe::acquire_span(plan)).await
}

async fn take_part(handle: &Locker, plan: &Plan, patience: Patience) -> Result<Option<Guard>> {
    let locker = handle.inner();
    locker.keeper.ensure_running()?;
    let _acquiring = locker.keeper.acquiring();
    let closing = locker.closing.notified();
    tokio::pin!(closing);
    closing.as_mut().enable();
    locker.check_open()?;
    let deadline = patience.limit().and_then(|limit| Instant::now().checked_add(limit));
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
        stopped,
    };
    let mut answer = match locker.queues.enter(plan, patience, deadline)? {
        Entered::Turn(turn) => Answer::Turn(turn),
        Entered::Waiting(receiver) => caller.wait(receiver).await?,
        Entered::Shared(held) => return Ok(Some(Guard::new(held, locker.keeper.kept()))),
        Entered::Busy => return Ok(None),
    };
    loop {
        locker.check_open()?;
        let mut place = match answer {
            Answer::Turn(turn) => Place::start(locker, plan, patience, deadline, turn),
            Answer::Place(place) => *place,
            Answer::Guard(guard) => return Ok(Some(guard)),
            Answer::Busy => return Ok(None),
            Answer::Failed(error) => return Err(error),
        };
        let Some(hold) = caller.lead(&mut place).await? else {
            return Ok(None);
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

/// Whoever acquires.
struct Caller<'a, F> {
    locker: &'a Arc<Inner>,
    plan: &'a Plan,
    patience: Patience,
    deadline: Option<Instant>,
    stopped: Pin<&'a mut F>,
}

/// Why an acquire ends without an answer.
enum Stop {
    Closing,
    TooLate,
}

impl<F: Future<Output = Stop>> Caller<'_, F> {
    /// Waits for the turn, or for what else becomes of a place in the local queue.
    async fn wait(&mut self, receiver: oneshot::Receiver<Answer>) -> Result<Answer> {
        tokio::select! {
            biased;
            answer = receiver => answer.map_err(|_| self.locker.shut_down()),
            stop = &mut self.stopped => Err(self.stop(&stop, None, None)),
        }
    }

    /// Drives the place until the server grants it. `None` when the name is taken, to those who ask once.
    async fn lead(&mut self, place: &mut Place) -> Result<Option<Arc<dyn Hold>>> {
        let mut pauses = pauses();
        let mut last_error = None;
        loop {
            let attempt = tokio::select! {
                biased;
                attempt = place.attempt() => attempt,
                stop = &mut self.stopped => return Err(self.stop(&stop, last_error, Some(place))),
            };
            let pause = match attempt {
                Ok(Attempt::Granted(hold, _armed)) => {
                    self.locker.reached.store(true, Ordering::Relaxed);
                    self.locker.check_open()?;
                    return Ok(Some(hold));
                }
                Ok(Attempt::Busy(busy)) => {
                    self.locker.reached.store(true, Ordering::Relaxed);
                    last_error = None;
                    // A backend that says "at once" must not keep us spinning.
                    let pause = busy.ask_again.map(|pause| pause.max(SHORTEST_PAUSE));
                    place.refused(busy);
                    if !self.patience.is_patient() {
                        place.nothing_left();
                        return Ok(None);
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
                stop = &mut self.stopped => return Err(self.stop(&stop, last_error, Some(place))),
                () = until(pause) => {}
            }
        }
    }

    /// The error, to be tried again; or, as an error, what no trying mends.
    fn failed(&self, place: &mut Place, error: Error) -> Result<Error> {
        let error = error.about(&self.plan.name);
        place.in_doubt();
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

    fn stop(&self, stop: &Stop, cause: Option<Error>, place: Option<&Place>) -> Error {
        match stop {
            Stop::Closing => self.locker.shut_down(),
            Stop::TooLate => {
                let holder = match place {
                    Some(place) => place.holder(),
                    None => self.locker.queues.holder(&self.plan.name),
                };
                self.too_late(cause, holder)
            }
        }
    }

    /// The error of an acquire whose time is up: a server that never answered is not a lock that is taken.
    fn too_late(&self, cause: Option<Error>, holder: Option<Arc<str>>) -> Error {
        let limit = self.patience.limit().unwrap_or_default();
        let reached = self.locker.reached.load(Ordering::Relaxed);
        let error = if self.patience.is_patient() && reached {
            Error::new(ErrorKind::TimedOut, format!("not acquired within {limit:?}"))
        } else {
            let message = format!("the lock server did not answer within {limit:?}");
            Error::new(ErrorKind::Unavailable, message)
        };
        let error = error.with_name(&self.plan.name);
        let error = match holder {
            Some(holder) => error.with_holder(holder),
            None => error,
        };
        match cause {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }
}
