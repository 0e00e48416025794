//! What is done whether anybody waits for it or not: ending a hold, and undoing an acquire.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::time::{Instant, sleep};

use crate::backend::{AcquireRequest, Attempt, DistributedLock, ReleaseOptions, ReleaseOutcome, Wait};
use crate::error::{Error, ErrorKind, LostCause, Result};
use crate::held::Held;
use crate::queue::Turn;
use crate::sync::Arc;

/// Something for the keeper to finish.
pub(crate) enum Work {
    /// A release that has begun, or is to begin.
    Release(Arc<Held>, Option<BoxFuture<'static, Result<()>>>),
    /// An acquire that nobody waits for any more.
    Undo(Undo),
}

pub(crate) struct Undo {
    pub(crate) backend: Arc<dyn DistributedLock>,
    pub(crate) request: AcquireRequest,
    /// The acquire, where it is still under way.
    pub(crate) attempt: Option<BoxFuture<'static, Result<Attempt>>>,
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
                let name = held.name.clone();
                let result = match begun {
                    Some(begun) => begun.await,
                    None => release(held).await,
                };
                if let Err(error) = result {
                    tracing::debug!(%name, %error, "a release in the background failed; the hold ends by itself");
                }
            }
            Self::Undo(undo) => undo.finish().await,
        }
    }
}

/// Ends the hold, trying until its lease is long over. The name is the next local waiter's after the first try.
pub(crate) async fn release(held: Arc<Held>) -> Result<()> {
    let mut pauses = pauses();
    let mut earlier_unanswered = false;
    let last_try = held.end() + held.ttl;
    loop {
        let answer = held.hold.release(ReleaseOptions::default()).await;
        drop(held.take_turn());
        let error = match answer {
            Ok(ReleaseOutcome::Released) => {
                held.lease.finish_release(Ok(()));
                return Ok(());
            }
            // The earlier try did it, its answer got lost.
            Ok(ReleaseOutcome::AlreadyLost) if earlier_unanswered && Instant::now() < held.end() => {
                held.lease.finish_release(Ok(()));
                return Ok(());
            }
            Ok(ReleaseOutcome::AlreadyLost) => {
                held.lease.finish_release(Err(LostCause::NotHeld));
                let error = Error::new(ErrorKind::Lost, "the hold had ended before it was released");
                return Err(error.with_name(&held.name).with_source(LostCause::NotHeld));
            }
            Err(error) => error,
        };
        if !error.is_retryable() || Instant::now() >= last_try {
            held.lease.finish_release(Ok(()));
            return Err(error.about(&held.name));
        }
        tracing::debug!(name = %held.name, %error, "release unanswered; trying again");
        earlier_unanswered = true;
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

impl Undo {
    /// Drives the acquire to its end, then abandons it, trying for as long as a hold of it might live.
    async fn finish(self) {
        let Self {
            backend,
            request,
            attempt,
            turn,
        } = self;
        if let Some(attempt) = attempt
            && let Ok(Ok(Attempt::Busy(_))) = AssertUnwindSafe(attempt).catch_unwind().await
            && request.wait() == Wait::No
        {
            return;
        }
        let mut turn = turn;
        let mut pauses = pauses();
        let last_try = Instant::now() + request.ttl();
        loop {
            let Err(error) = backend.abandon(&request).await else {
                return;
            };
            drop(turn.take());
            if !error.is_retryable() || Instant::now() >= last_try {
                tracing::warn!(name = %request.name(), %error, "an acquire was not undone; what it left ends by itself");
                return;
            }
            sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }
}

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long to wait before each repetition of a failed request: from 25 ms to 1 s, doubling, with jitter.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> + Send + use<> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(25))
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
        .build()
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
