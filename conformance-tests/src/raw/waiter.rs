//! Requests that wait, each driven in a task of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::Result;
use lock_core::backend::request::RequestControl;
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Grant, drive, granted};
use crate::context::{LOOK_AGAIN, RawCx};
use crate::verdict::{OrFail, Stop, Verdict, ensure, ensure_safe_by_ttl};

/// A request that is being driven in a task of its own.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) request: AcquireRequest,
    pub(crate) control: RequestControl,
    backend: Arc<dyn DistributedLock>,
    driving: JoinHandle<Result<Attempt>>,
    was_granted: Arc<AtomicBool>,
}

impl RawCx {
    /// Starts to wait, and comes back when the server has said that the name is taken. Its holder's ttl does not end meanwhile, so that
    /// a grant means two holders, but where a session renews.
    pub(crate) async fn wait_for(
        &self,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        ttl: Duration,
    ) -> Result<Waiter, Stop> {
        let waiter = self.wait_out(backend, self.request(name, ttl)?).await?;
        if waiter.request.last_busy().is_none() {
            waiter.ensure_waiting("before it was told that the name is taken")?;
        }
        Ok(waiter)
    }

    /// Starts to wait with this request, and comes back when the server has said that the name is taken, or that it is not its turn: a
    /// grant may break the order alone.
    pub(crate) async fn wait_with(
        &self,
        backend: &Arc<dyn DistributedLock>,
        request: AcquireRequest,
        control: RequestControl,
    ) -> Result<Waiter, Stop> {
        let waiter = self.wait_out(backend, (request, control)).await?;
        if waiter.request.last_busy().is_none() {
            waiter.ensure_in_line("before it was told that the name is taken")?;
        }
        Ok(waiter)
    }

    /// Starts to wait for the end of a hold that is not renewed, and comes back when the server has said that the name is
    /// taken. On a busy machine the hold may end before that: then it comes back with the grant.
    pub(crate) async fn wait_out(
        &self,
        backend: &Arc<dyn DistributedLock>,
        (request, control): (AcquireRequest, RequestControl),
    ) -> Result<Waiter, Stop> {
        let waiter = self.go_on_waiting(backend, request, control);
        let answered = async {
            while waiter.request.last_busy().is_none() && waiter.is_waiting() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        self.soon("the waiter to be answered", answered).await?;
        Ok(waiter)
    }

    /// Starts to wait.
    pub(crate) fn start_waiting(
        &self,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        ttl: Duration,
    ) -> Result<Waiter, Stop> {
        let (request, control) = self.request(name, ttl)?;
        Ok(self.go_on_waiting(backend, request, control))
    }

    /// Drives a request in a task of its own, whether it was asked before or not.
    pub(crate) fn go_on_waiting(
        &self,
        backend: &Arc<dyn DistributedLock>,
        request: AcquireRequest,
        control: RequestControl,
    ) -> Waiter {
        let (asking, asked) = (backend.clone(), request.clone());
        let was_granted = Arc::new(AtomicBool::new(false));
        let granted = was_granted.clone();
        let driving = tokio::spawn(async move {
            let attempt = drive(&*asking, &asked).await;
            granted.store(matches!(attempt, Ok(Attempt::Granted(..))), Ordering::SeqCst);
            attempt
        });
        Waiter {
            request,
            control,
            backend: backend.clone(),
            driving,
            was_granted,
        }
    }
}

impl Waiter {
    /// The grant that must come within `bound`. On a busy machine a server may not answer in time. Then the request is sent again, as
    /// core does.
    pub(crate) async fn grant(self, cx: &RawCx, bound: Duration, what: &str) -> Result<Grant, Stop> {
        let Self {
            request,
            control,
            backend,
            driving,
            ..
        } = self;
        let (may_be_late, mut last) = (!cx.timing().paused, None);
        let granting = async {
            let mut driven = driving.await;
            while let Ok(Err(error)) = &driven
                && may_be_late
                && error.is_retryable()
            {
                last = Some(error.clone());
                sleep(LOOK_AGAIN).await;
                driven = Ok(drive(&*backend, &request).await);
            }
            driven
        };
        let driven = cx.within(bound, what, granting).await;
        let attempt = match (driven, last) {
            (Err(_), Some(error)) => return Err(Stop::error(&format!("{what}, for {bound:?}"), &error)),
            (driven, _) => driven?
                .map_err(|panic| Stop::assertion(panic.to_string()))?
                .or_fail(what)?,
        };
        match granted(attempt, request, control)? {
            Ok(grant) => Ok(grant),
            Err(busy) => Err(Stop::assertion(format!(
                "{what}: busy ({busy:?}), though nobody gave up"
            ))),
        }
    }

    /// The grant that must come soon: nothing has to expire before.
    pub(crate) async fn grant_soon(self, cx: &RawCx, what: &str) -> Result<Grant, Stop> {
        self.grant(cx, cx.freed_soon().await, what).await
    }

    /// The grant that must come within `bound`, when the hold of another one is over: its holder must not believe in it any more.
    pub(crate) async fn grant_after(
        self,
        first: &Grant,
        cx: &RawCx,
        bound: Duration,
        what: &str,
    ) -> Result<Grant, Stop> {
        let next = self.grant(cx, bound, what).await?;
        first.ensure_over("granted to the next one")?;
        Ok(next)
    }

    /// Whether the request still waits.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.driving.is_finished()
    }

    /// Fails if the request was granted, which means two holders but where a session renews, or has failed.
    #[track_caller]
    pub(crate) fn ensure_waiting(&self, when: &str) -> Verdict {
        ensure_safe_by_ttl!(!self.was_granted(), "{when}, one who had to wait was granted");
        self.ensure_in_line(when)
    }

    /// The same of a request for which there is room, but not before it is its turn: a grant breaks the order alone.
    #[track_caller]
    pub(crate) fn ensure_in_line(&self, when: &str) -> Verdict {
        ensure!(!self.was_granted(), "{when}, one who had to wait was granted");
        ensure!(self.is_waiting(), "{when}, one who had to wait failed");
        Ok(())
    }

    fn was_granted(&self) -> bool {
        self.was_granted.load(Ordering::SeqCst)
    }

    /// The result of the request, within `bound`.
    pub(crate) async fn ended(self, cx: &RawCx, bound: Duration, what: &str) -> Result<Result<Attempt>, Stop> {
        let attempt = cx.within(bound, what, self.driving).await?;
        attempt.map_err(|panic| Stop::assertion(panic.to_string()))
    }

    /// Gives up and has it undone, as core does.
    pub(crate) async fn abandon(self, cx: &RawCx, backend: &Arc<dyn DistributedLock>) -> Verdict {
        self.control.give_up();
        let ended = cx.soon("an acquire that was given up to end", self.driving).await?;
        // Granted, busy or failed: nobody believes it, so all three are undone.
        drop(ended);
        backend.abandon(&self.request).await.or_fail("abandon")
    }
}
