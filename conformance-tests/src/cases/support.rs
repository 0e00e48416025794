//! Helpers that several cases need.

use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use lock_core::{Error, ErrorKind, LostCause, Release};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::context::Cx;
use crate::subject::{Ask, State, Subject, SubjectGuard};
use crate::verdict::{OrFail, Stop, Verdict, ensure, ensure_safe, ensure_safe_by_ttl};

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
    /// Whether its holder may still rely on it.
    pub(crate) fn believes(&self) -> bool {
        matches!(self.state(), State::Held | State::Suspect)
    }

    /// Fails unless it is lost, since a second one holds the name.
    #[track_caller]
    pub(crate) fn ensure_over(&self) -> Verdict {
        let state = self.state();
        ensure_safe!(!self.believes(), "a second one holds it, and the first says {state:?}");
        ensure!(state == State::Lost, "lost to a second one, and it says {state:?}");
        Ok(())
    }

    /// When it ends if nothing renews it.
    pub(crate) fn ends(&self) -> Instant {
        Instant::now() + self.valid_for()
    }

    /// Releases what must still be held, and what nobody shares.
    #[track_caller]
    pub(crate) fn released(self: Box<Self>) -> impl Future<Output = Verdict> {
        let (at, ends) = (Location::caller(), self.ends());
        async move {
            let release = released_by(ends, self.release().await)?;
            ensure!(
                release == Release::Released,
                "nobody shares it, and its release answered {release:?} (at {at})"
            );
            Ok(())
        }
    }
}

/// The result of a release. If the hold was over by itself before the release was answered, a machine that stood still explains an error.
#[track_caller]
pub(crate) fn released_by(ends: Instant, released: Result<Release, Error>) -> Result<Release, Stop> {
    let is_lost = matches!(&released, Err(error) if error.kind() == ErrorKind::Lost);
    let released = released.or_fail("release");
    released.map_err(|stop| stop.explained_if(is_lost || Instant::now() >= ends))
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
pub(crate) struct Began {
    acquiring: JoinHandle<Acquired>,
    was_granted: Arc<AtomicBool>,
}

pub(crate) type Acquired = lock_core::Result<Option<Box<dyn SubjectGuard>>>;

impl Began {
    pub(crate) async fn acquire(client: &Arc<dyn Subject>, ask: &Ask) -> Self {
        let (client, ask) = (client.clone(), ask.clone());
        let was_granted = Arc::new(AtomicBool::new(false));
        let granted = was_granted.clone();
        let mut acquiring = Box::pin(async move {
            let acquired = client.acquire(&ask).await;
            granted.store(matches!(acquired, Ok(Some(_))), Ordering::SeqCst);
            acquired
        });
        let acquiring = match timeout(LITTLE, &mut acquiring).await {
            Ok(acquired) => tokio::spawn(std::future::ready(acquired)),
            Err(_) => tokio::spawn(acquiring),
        };
        Self { acquiring, was_granted }
    }

    /// Fails if the acquire was granted, which means two holders but where a session renews, or has failed.
    #[track_caller]
    pub(crate) fn ensure_waiting(&self, when: &str) -> Verdict {
        let is_granted = self.was_granted.load(Ordering::SeqCst);
        ensure_safe_by_ttl!(!is_granted, "{when}, one who had to wait was granted");
        ensure!(!self.acquiring.is_finished(), "{when}, one who had to wait failed");
        Ok(())
    }

    /// Drops the acquire wherever it is, and returns when it is dropped. A guard that it has got is dropped as well.
    pub(crate) async fn drop_it(self) {
        self.acquiring.abort();
        self.acquiring.await.ok();
    }

    /// The result of the acquire.
    pub(crate) async fn ended(self) -> Result<Acquired, Stop> {
        self.acquiring.await.map_err(|panic| Stop::assertion(panic.to_string()))
    }

    /// The result of the acquire, which must come soon.
    pub(crate) async fn end(self, cx: &Cx, what: &str) -> Result<Acquired, Stop> {
        cx.soon(what, self.ended()).await?
    }

    /// The grant, which must come soon: nothing has to expire before.
    pub(crate) async fn granted(self, cx: &Cx, what: &str) -> Result<Box<dyn SubjectGuard>, Stop> {
        granted(cx.within(cx.freed_soon().await, what, self.ended()).await??)
    }
}

/// The guard that a waiter must have got.
pub(crate) fn granted(acquired: Acquired) -> Result<Box<dyn SubjectGuard>, Stop> {
    let acquired = acquired.or_fail("wait")?;
    acquired.ok_or_else(|| Stop::assertion("a waiter was told busy"))
}

/// The error of an acquire that must fail, since another one holds the name.
#[track_caller]
pub(crate) fn refused(acquired: Acquired, when: &str) -> Result<Error, Stop> {
    match acquired {
        Err(error) => Ok(error),
        Ok(Some(guard)) => Err(Stop::by_ttl(format!(
            "{when}: granted as well, token {}",
            guard.token()
        ))),
        Ok(None) => Err(Stop::assertion(format!("{when}: busy, without an error"))),
    }
}

/// Fails if this acquire ends within this time. The holder's ttl does not end meanwhile, so that a grant means two holders,
/// but where a session renews.
#[track_caller]
pub(crate) fn ensure_pending<'a, F: Future<Output = Acquired> + Unpin>(
    acquiring: &'a mut F,
    time: Duration,
    when: &'a str,
) -> impl Future<Output = Verdict> + use<'a, F> {
    let stop = |message| Stop::by_ttl(message);
    ensure_pending_or(stop, acquiring, time, when, Location::caller())
}

/// The same beside a hold whose ttl may be over on a busy machine: then a grant does not mean two holders.
#[track_caller]
pub(crate) fn ensure_pending_beside<'a, F: Future<Output = Acquired> + Unpin>(
    first: &'a dyn SubjectGuard,
    acquiring: &'a mut F,
    time: Duration,
    when: &'a str,
) -> impl Future<Output = Verdict> + use<'a, F> {
    let stop = |message| Stop::second(first.believes(), message);
    ensure_pending_or(stop, acquiring, time, when, Location::caller())
}

async fn ensure_pending_or(
    stop: impl FnOnce(String) -> Stop,
    acquiring: impl Future<Output = Acquired>,
    time: Duration,
    when: &str,
    at: &Location<'_>,
) -> Verdict {
    match timeout(time, acquiring).await {
        Err(_) => Ok(()),
        Ok(Ok(Some(second))) => Err(stop(format!(
            "{when}, another one was granted, token {} (at {at})",
            second.token()
        ))),
        Ok(ended) => Err(Stop::assertion(format!(
            "{when}, one who had to wait ended with {ended:?} (at {at})"
        ))),
    }
}

/// Runs eight of them at a time, since each may need a connection of its own, and returns the first failure. Each time, they are polled in
/// this order: so they are sent in it.
pub(crate) async fn side_by_side<F: Future<Output = Verdict>>(all: impl IntoIterator<Item = F>) -> Verdict {
    let mut all = all.into_iter();
    loop {
        let mut left: Vec<_> = all.by_ref().take(8).map(Box::pin).collect();
        if left.is_empty() {
            return Ok(());
        }
        poll_fn(|context| {
            let mut failed = None;
            left.retain_mut(|one| match one.as_mut().poll(context) {
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(stop)) => {
                    failed.get_or_insert(stop);
                    false
                }
                Poll::Pending => true,
            });
            match failed {
                Some(stop) => Poll::Ready(Err(stop)),
                None if left.is_empty() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        })
        .await?;
    }
}

/// Awaits tasks that make many requests: the next one must end within three times the patience, and all in most of the time of a case.
pub(crate) async fn all_end(cx: &Cx, what: &str, mut tasks: JoinSet<Verdict>) -> Verdict {
    let all = async {
        while let Some(task) = cx.within(3 * cx.patience(), what, tasks.join_next()).await? {
            task.map_err(|panic| Stop::assertion(panic.to_string()))??;
        }
        Ok(())
    };
    cx.within(cx.timing().for_all_requests(), what, all).await?
}

/// Runs a case on a hold that ends if the machine stands still: up to so many times, each on another name, as long as it fails by
/// what that explains. Other failures are never repeated, and nothing is on paused time.
pub(crate) async fn in_one_of<F: Future<Output = Verdict>>(
    attempts: usize,
    cx: &Cx,
    case: impl Fn(&'static str) -> F,
) -> Verdict {
    const NAMES: [&str; 5] = ["a", "a2", "a3", "a4", "a5"];
    let last = if cx.timing().paused { 0 } else { attempts - 1 };
    for name in &NAMES[..last] {
        match case(name).await {
            Err(Stop::Failed(failure)) if failure.explained && !failure.safety => println!("again, after {failure}"),
            verdict => return verdict,
        }
    }
    case(NAMES[last]).await
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
