//! What is done whether anybody waits for it or not: ending a hold, and undoing an acquire.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::future::{BoxFuture, FutureExt};
use tracing::Instrument;

use crate::backend::{AcquireRequest, Attempt, DistributedLock, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::held::Held;
use crate::observe::{self, Asked};
use crate::queue::Turn;
use crate::release::release;
use crate::runtime;
use crate::sync::time::{Instant, sleep, sleep_until};
use crate::sync::{Arc, Mutex, RuntimeId};

/// Something for the keeper to finish.
pub(crate) enum Work {
    /// A release that has begun, or is to begin.
    Release(Arc<Held>, Option<Request<()>>),
    /// An acquire that nobody waits for any more.
    Undo(Undo),
}

pub(crate) struct Undo {
    pub(crate) backend: Arc<dyn DistributedLock>,
    pub(crate) request: AcquireRequest,
    /// The acquire, where it is still under way.
    pub(crate) attempt: Option<Request<Attempt>>,
    pub(crate) turn: Option<Turn>,
}

/// What is left of a [`Work`] whose futures died with their runtime.
pub(crate) enum Task {
    Release(Arc<Held>),
    Undo(Arc<dyn DistributedLock>, AcquireRequest),
}

impl Work {
    pub(crate) fn release(held: Arc<Held>) -> Self {
        Self::Release(held, None)
    }

    pub(crate) fn task(&self) -> Task {
        match self {
            Self::Release(held, _) => Task::Release(held.clone()),
            Self::Undo(undo) => Task::Undo(undo.backend.clone(), undo.request.clone()),
        }
    }

    pub(crate) fn again(task: Task) -> Self {
        match task {
            Task::Release(held) => Self::release(held),
            Task::Undo(backend, request) => Self::Undo(Undo {
                backend,
                request,
                attempt: None,
                turn: None,
            }),
        }
    }

    pub(crate) async fn finish(self) {
        match self {
            Self::Release(held, begun) => {
                let name = held.plan.name.clone();
                // One that began on another runtime is made anew, and so is one that panicked.
                let begun = match begun.and_then(Request::into_future_here) {
                    Some(begun) => AssertUnwindSafe(begun).catch_unwind().await.ok(),
                    None => None,
                };
                let result = match begun {
                    Some(result) => result,
                    // A panic in a hand-over leaves it unknown, to be undone by a second one.
                    None => match AssertUnwindSafe(release(held.clone())).catch_unwind().await {
                        Ok(result) => result,
                        Err(_) => release(held).await,
                    },
                };
                if let Err(error) = result {
                    observe::release_failed(&name, &error);
                }
            }
            Self::Undo(undo) => {
                let span = observe::abandon_span(undo.request.name());
                undo.finish().instrument(span).await;
            }
        }
    }
}

/// A request that outlives its caller; one that panicked is gone.
pub(crate) struct Request<T> {
    future: Option<BoxFuture<'static, Result<T>>>,
    /// Where it began: its timers and sockets are that runtime's.
    runtime: Option<RuntimeId>,
    pub(crate) is_over: bool,
}

impl<T> Request<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self {
            future: Some(Box::pin(future)),
            runtime: runtime::current_id(),
            is_over: false,
        }
    }

    /// One that was answered, to leave in the place of another.
    pub(crate) fn over() -> Self {
        Self {
            future: None,
            runtime: None,
            is_over: true,
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        // Out of its place while it is polled, so that a panic takes it along.
        let Some(mut future) = self.future.take() else {
            return Poll::Pending;
        };
        let answer = future.as_mut().poll(context);
        match answer {
            Poll::Pending => self.future = Some(future),
            Poll::Ready(_) => self.is_over = true,
        }
        answer
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.future.is_some()
    }

    /// Whether it began on the runtime that we are on.
    pub(crate) fn is_here(&self) -> bool {
        self.runtime == runtime::current_id()
    }

    /// What is left of it, if that can go on here.
    pub(crate) fn into_future_here(self) -> Option<BoxFuture<'static, Result<T>>> {
        let is_here = self.is_here();
        self.future.filter(|_| is_here)
    }
}

/// A panic of the backend is one more unknown outcome.
pub(crate) async fn answer<T>(request: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(request)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unexpected, "the backend panicked").retryable(true)))
}

impl Undo {
    /// Drives the acquire to its end, then abandons it, trying for as long as a hold of it might live. The name is the
    /// next local waiter's after that time at the latest.
    async fn finish(self) {
        let last_try = Instant::now().checked_add(self.request.longest_ttl());
        let turn = Mutex::new(self.turn);
        let undoing = async {
            if let Some(attempt) = self.attempt.and_then(Request::into_future_here)
                && let Ok(Attempt::Busy(_)) = answer(attempt).await
                && self.request.wait() == Wait::No
            {
                return;
            }
            if !self.request.was_sent() {
                return;
            }
            let mut pauses = pauses(LONGEST_PAUSE);
            loop {
                observe::asked(Asked::Abandon);
                let Err(error) = answer(self.backend.abandon(&self.request)).await else {
                    return;
                };
                let passed_on = turn.lock().take();
                drop(passed_on);
                if !error.is_retryable() || last_try.is_some_and(|last_try| Instant::now() >= last_try) {
                    observe::not_undone(self.request.name(), &error);
                    return;
                }
                sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
        };
        let passing_on = async {
            until(last_try).await;
            let passed_on = turn.lock().take();
            drop(passed_on);
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = undoing => {}
            () = passing_on => {}
        }
    }
}

/// For ever, without a time.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long to wait before each repetition of a failed request: from 25 ms to about `longest`, doubling, with jitter,
/// which adds up to as much again.
pub(crate) fn pauses(longest: Duration) -> impl Iterator<Item = Duration> + Send + use<> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(25))
        .with_max_delay(longest)
        .without_max_times();
    // A schedule of shuttle's has to go the same way each time.
    #[cfg(not(shuttle))]
    let pauses = pauses.with_jitter();
    pauses.build()
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.task().fmt(f)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release(held) => f.debug_tuple("Release").field(held).finish(),
            Self::Undo(_, request) => f.debug_tuple("Undo").field(request).finish(),
        }
    }
}
