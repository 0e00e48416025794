//! One acquire, from the local queue to the guard.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::{
    AcquireRequest, Attempt, Busy, DistributedLock, Hold, RequestControl, RequestOptions, Terms, Wait,
};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::held::{Held, RenewalPlan};
use crate::locker::{Inner, Locker};
use crate::name::LockName;
use crate::queue::{Answer, Progress, Turn};
use crate::sync::{Arc, Ordering};
use crate::work::{Request, Undo, Work, pauses, until};

/// What an acquire asks for, checked against what the backend can do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: LockName,
    pub(crate) ttl: Duration,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) fixed: bool,
}

/// How long an acquire may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// It asks once; the time is for the answer.
    Once(Duration),
    Within(Duration),
    Forever,
}

impl Patience {
    fn limit(self) -> Option<Duration> {
        match self {
            Self::Once(limit) | Self::Within(limit) => Some(limit),
            Self::Forever => None,
        }
    }

    fn wait(self) -> Wait {
        match self {
            Self::Once(_) => Wait::No,
            Self::Within(_) => Wait::Until,
            Self::Forever => Wait::Forever,
        }
    }
}

/// `None` when the name is taken, to those who ask once.
pub(crate) async fn acquire(handle: &Locker, plan: &Plan, patience: Patience) -> Result<Option<Guard>> {
    let locker = handle.inner();
    locker.keeper.ensure_running()?;
    let _acquiring = locker.keeper.acquiring();
    let closing = locker.closing.notified();
    tokio::pin!(closing);
    locker.check_open()?;
    let deadline = patience.limit().and_then(|limit| Instant::now().checked_add(limit));
    let expired = until(deadline);
    tokio::pin!(expired);

    let turn = match locker.queues.enter(&plan.name, patience.wait() != Wait::No) {
        Ok(turn) => turn,
        Err(answer) => tokio::select! {
            biased;
            answer = answer => match answer {
                Ok(Answer::Turn(turn)) => turn,
                Ok(Answer::Busy) => return Ok(None),
                Ok(Answer::Failed(error)) => return Err(error),
                Err(_) => return Err(locker.shut_down()),
            },
            () = &mut closing => return Err(locker.shut_down()),
            () = &mut expired => return Err(too_late(locker, plan, patience, None, locker.queues.holder(&plan.name))),
        },
    };

    locker.check_open()?;
    let mut undone = Undone::start(locker, plan, patience, deadline, turn);
    let mut pauses = pauses();
    let mut last_error = None;
    loop {
        let attempt = tokio::select! {
            biased;
            attempt = undone.attempt() => attempt,
            () = &mut closing => return Err(locker.shut_down()),
            () = &mut expired => {
                let holder = undone.request.last_busy().and_then(|busy| busy.holder);
                return Err(too_late(locker, plan, patience, last_error, holder));
            }
        };
        let pause = match attempt {
            Ok(Attempt::Granted(hold, _armed)) => {
                locker.reached.store(true, Ordering::Relaxed);
                locker.check_open()?;
                return undone.into_guard(handle, plan, hold).map(Some);
            }
            Ok(Attempt::Busy(busy)) => {
                locker.reached.store(true, Ordering::Relaxed);
                last_error = None;
                if patience.wait() == Wait::No {
                    undone.refused(busy);
                    undone.nothing_left();
                    return Ok(None);
                }
                // A backend that says "at once" must not keep us spinning.
                let pause = busy.ask_again.map(|pause| pause.max(Duration::from_millis(1)));
                undone.refused(busy);
                pause
            }
            // Granted, and over before we got to know.
            Err(error) if error.is_lost() => {
                let Some(turn) = undone.turn.take() else {
                    return Err(error);
                };
                undone = Undone::start(locker, plan, patience, deadline, turn);
                continue;
            }
            Err(error) => {
                let error = error.about(&plan.name);
                undone.in_doubt();
                let reached = locker.reached.load(Ordering::Relaxed);
                if patience.wait() == Wait::No || !reached || !error.is_retryable() {
                    undone.failed(&error, reached);
                    return Err(error);
                }
                tracing::debug!(name = %plan.name, %error, "acquire failed; trying again");
                last_error = Some(error);
                None
            }
        };
        let pause = pause
            .or_else(|| pauses.next())
            .and_then(|pause| Instant::now().checked_add(pause));
        tokio::select! {
            biased;
            () = &mut closing => return Err(locker.shut_down()),
            () = &mut expired => {
                let holder = undone.request.last_busy().and_then(|busy| busy.holder);
                return Err(too_late(locker, plan, patience, last_error, holder));
            }
            () = until(pause) => {}
        }
    }
}

/// The error of an acquire whose time is up: a server that never answered is not a lock that is taken.
fn too_late(locker: &Inner, plan: &Plan, patience: Patience, cause: Option<Error>, holder: Option<Arc<str>>) -> Error {
    let limit = patience.limit().unwrap_or_default();
    let reached = locker.reached.load(Ordering::Relaxed);
    let error = if patience.wait() == Wait::No || !reached {
        Error::new(
            ErrorKind::Unavailable,
            format!("the lock server did not answer within {limit:?}"),
        )
    } else {
        Error::new(ErrorKind::TimedOut, format!("not acquired within {limit:?}"))
    };
    let error = error.with_name(&plan.name);
    let error = match holder {
        Some(holder) => error.with_holder(holder),
        None => error,
    };
    match cause {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

/// An acquire that is undone in the background unless it comes to something.
struct Undone<'a> {
    locker: &'a Inner,
    request: AcquireRequest,
    control: RequestControl,
    under_way: Option<Request<Attempt>>,
    /// `None` once there is nothing to undo.
    turn: Option<Turn>,
    /// Whether anything was sent.
    begun: bool,
    told_busy: bool,
}

impl<'a> Undone<'a> {
    fn start(locker: &'a Inner, plan: &Plan, patience: Patience, deadline: Option<Instant>, turn: Turn) -> Self {
        let mut terms = Terms::new(plan.ttl);
        if let Some(label) = &plan.label {
            terms = terms.label(label.clone());
        }
        if let Some(deadline) = deadline {
            terms = terms.time_left(deadline.saturating_duration_since(Instant::now()));
        }
        let options = RequestOptions::new(plan.name.clone(), terms)
            .wait(patience.wait())
            .fixed(plan.fixed);
        let (request, control) = options.start();
        Self {
            locker,
            request,
            control,
            under_way: None,
            turn: Some(turn),
            begun: false,
            told_busy: false,
        }
    }

    /// Asks the server, or goes on waiting for its answer.
    async fn attempt(&mut self) -> Result<Attempt> {
        if self.under_way.is_none() {
            self.begun = true;
            self.under_way = Some(ask(self.locker.backend.clone(), self.request.clone()));
        }
        if !self.told_busy {
            let request = self.request.clone();
            tokio::select! {
                biased;
                answer = poll_fn(|context| self.poll_attempt(context)) => return answer,
                () = request.noted_busy() => self.tell_busy(),
            }
        }
        poll_fn(|context| self.poll_attempt(context)).await
    }

    fn poll_attempt(&mut self, context: &mut Context<'_>) -> Poll<Result<Attempt>> {
        let Some(under_way) = &mut self.under_way else {
            return Poll::Pending;
        };
        let answer = under_way.poll(context);
        if answer.is_ready() {
            self.under_way = None;
        }
        answer
    }

    fn tell_busy(&mut self) {
        self.told_busy = true;
        self.locker.reached.store(true, Ordering::Relaxed);
        if let Some(turn) = &self.turn {
            let holder = self.request.last_busy().and_then(|busy| busy.holder);
            turn.progress(Progress::Refused(holder));
        }
    }

    /// What the server said before may not be true any more.
    fn in_doubt(&mut self) {
        self.request.forget_busy();
        self.told_busy = false;
        if let Some(turn) = &self.turn {
            turn.progress(Progress::Asking);
        }
    }

    fn refused(&mut self, busy: Busy) {
        self.request.note_busy(busy);
        self.tell_busy();
    }

    /// Nothing stays behind at the server.
    fn nothing_left(&mut self) {
        self.begun = false;
    }

    fn failed(&mut self, error: &Error, reached: bool) {
        let is_everybodys = match error.kind() {
            ErrorKind::Unavailable => !reached,
            kind => kind == ErrorKind::Denied,
        };
        if let Some(turn) = self.turn.take_if(|_| is_everybodys) {
            turn.fail_all(error);
        }
    }

    fn into_guard(mut self, handle: &Locker, plan: &Plan, hold: Arc<dyn Hold>) -> Result<Guard> {
        let locker = self.locker;
        let lease = self.request.lease().clone();
        // Until here it is undone, also when this panics.
        let token = hold.token();
        let Some(turn) = self.turn.take_if(|_| lease.end().is_some()) else {
            let message = "the backend granted without arming the lease of the request";
            return Err(Error::new(ErrorKind::Unexpected, message).with_name(&plan.name));
        };
        self.begun = false;
        turn.progress(Progress::Holding(plan.label.clone()));
        let renewal = match (plan.fixed, locker.capabilities.session_renewal) {
            (true, _) => RenewalPlan::Fixed,
            (false, true) => RenewalPlan::BySession,
            (false, false) => RenewalPlan::PerHold,
        };
        let terms = (plan.name.clone(), plan.ttl, renewal);
        let held = Held::new((hold, token, lease), terms, Arc::downgrade(&locker.keeper), turn);
        locker.keeper.schedule(&held, held.due_after(Instant::now()));
        Ok(Guard::new(held, locker.keeper.kept(), handle.limits()))
    }
}

impl Drop for Undone<'_> {
    fn drop(&mut self) {
        if !self.begun {
            return;
        }
        self.control.give_up();
        let attempt = self.under_way.take().and_then(|mut attempt| attempt.take());
        let turn = self.turn.take();
        if let Some(turn) = &turn {
            turn.progress(Progress::Releasing);
        }
        let (backend, request) = (self.locker.backend.clone(), self.request.clone());
        self.locker.keeper.push(Work::Undo(Undo {
            backend,
            request,
            attempt,
            turn,
        }));
    }
}

/// A future of its own, so that it can go on when its caller has gone.
fn ask(backend: Arc<dyn DistributedLock>, request: AcquireRequest) -> Request<Attempt> {
    Request::new(async move { backend.acquire(&request).await })
}
