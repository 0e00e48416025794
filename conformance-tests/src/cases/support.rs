//! Helpers that several cases need.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lock_core::{Error, LostCause, Release};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::context::Cx;
use crate::subject::{Ask, Subject, SubjectGuard};
use crate::verdict::{OrFail, Stop, Verdict, ensure};

/// Long enough for others to run meanwhile.
pub(crate) const LITTLE: Duration = Duration::from_millis(2);

/// Polls a future so many times at the most, and then drops it unfinished.
pub(crate) struct Polls<F> {
    future: Pin<Box<F>>,
    left: u32,
}

impl<F> Polls<F> {
    pub(crate) fn new(future: F, polls: u32) -> Self {
        Self {
            future: Box::pin(future),
            left: polls,
        }
    }
}

impl<F: Future> Future for Polls<F> {
    /// `None`: it was not done after that many polls.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl dyn SubjectGuard {
    /// Releases what must still be held, and what nobody shares.
    #[track_caller]
    pub(crate) fn released(self: Box<Self>) -> impl Future<Output = Verdict> {
        let at = Location::caller();
        async move {
            let release = self.release().await.or_fail("release")?;
            ensure!(
                release == Release::Released,
                "nobody shares it, and its release answered {release:?} (at {at})"
            );
            Ok(())
        }
    }
}

/// Whether a release counts whose reply got lost together with its connection. A server that executes it in several steps may notice
/// the end of the connection between them. Then a hold that is bound to the connection has ended by that, and not by its release.
pub(crate) fn counts(released: &Result<Release, Error>) -> bool {
    match released {
        Ok(release) => *release == Release::Released,
        Err(error) => {
            let cause = error.cause().and_then(|cause| cause.downcast_ref());
            cause == Some(&LostCause::Disconnected)
        }
    }
}

/// An acquire that was polled, so that it has its place in the order, and goes on in a task of its own.
#[derive(Debug)]
pub(crate) struct Began(JoinHandle<Acquired>);

pub(crate) type Acquired = lock_core::Result<Option<Box<dyn SubjectGuard>>>;

impl Began {
    pub(crate) async fn acquire(client: &Arc<dyn Subject>, ask: &Ask) -> Self {
        let (client, ask) = (client.clone(), ask.clone());
        let mut acquiring = Box::pin(async move { client.acquire(&ask).await });
        match timeout(LITTLE, &mut acquiring).await {
            Ok(acquired) => Self(tokio::spawn(std::future::ready(acquired))),
            Err(_) => Self(tokio::spawn(acquiring)),
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.0.is_finished()
    }

    /// Drops the acquire wherever it is.
    pub(crate) fn drop_it(self) {
        self.0.abort();
    }

    /// The result of the acquire.
    pub(crate) async fn ended(self) -> Result<Acquired, Stop> {
        self.0.await.map_err(|panic| Stop::assertion(panic.to_string()))
    }

    /// The result of the acquire, which must come soon.
    pub(crate) async fn end(self, cx: &Cx, what: &str) -> Result<Acquired, Stop> {
        cx.soon(what, self.ended()).await?
    }

    /// The grant, which must come soon.
    pub(crate) async fn granted(self, cx: &Cx, what: &str) -> Result<Box<dyn SubjectGuard>, Stop> {
        granted(self.end(cx, what).await?)
    }
}

/// The guard that a waiter must have got.
pub(crate) fn granted(acquired: Acquired) -> Result<Box<dyn SubjectGuard>, Stop> {
    let acquired = acquired.or_fail("wait")?;
    acquired.ok_or_else(|| Stop::assertion("a waiter was told busy"))
}

/// Whether a future is still pending after this time.
pub(crate) async fn is_pending<F: Future + Unpin>(future: &mut F, time: Duration) -> bool {
    timeout(time, future).await.is_err()
}

/// Does the work on a thread without a runtime.
pub(crate) fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Stop> {
    let done = std::thread::spawn(work).join();
    done.map_err(|_| Stop::assertion("a thread of the case panicked"))
}
