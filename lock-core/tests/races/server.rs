//! The memory backend, with a pause before and after each effect.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, HandOver, Hold, LockStatus, ReleaseOptions, ReleaseOutcome,
    Renewal,
};
use lock_core::{Error, ErrorKind, FencingToken, Guard, HoldState, LockName, Locker, MemoryBackend, Result};
use shuttle::rand::{Rng, thread_rng};

/// A clone is another client of the same server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    memory: MemoryBackend,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    answers_to_lose: AtomicUsize,
    believed: AtomicBool,
    renewed_after_release: AtomicBool,
}

impl Server {
    pub(crate) fn locker(&self) -> Locker {
        Locker::new(self.clone())
    }

    pub(crate) async fn is_free(&self, name: &str) -> bool {
        let status = self.memory.status(&LockName::new(name).unwrap()).await.unwrap();
        !status.is_held()
    }

    /// From here on, every fourth answer is lost, until there were three of them.
    pub(crate) fn lose_answers(&self) {
        self.seen.answers_to_lose.store(3, Ordering::SeqCst);
    }

    /// Whether any hold was renewed after its release had begun.
    pub(crate) fn renewed_after_release(&self) -> bool {
        self.seen.renewed_after_release.load(Ordering::SeqCst)
    }

    /// Uses what the guard protects: nobody else does meanwhile.
    pub(crate) async fn work(&self, guard: &Guard) {
        assert!(!self.seen.believed.swap(true, Ordering::SeqCst), "two believers");
        let _believing = Believing(&self.seen.believed);
        way().await;
        assert_eq!(guard.state(), HoldState::Held);
    }

    /// A request, an effect and an answer.
    async fn ask<T>(&self, effect: impl Future<Output = Result<T>>) -> Result<T> {
        way().await;
        let answer = effect.await;
        way().await;
        let to_lose = self.seen.answers_to_lose.load(Ordering::SeqCst);
        if to_lose > 0 && thread_rng().gen_ratio(1, 4) {
            self.seen.answers_to_lose.store(to_lose - 1, Ordering::SeqCst);
            return Err(Error::new(ErrorKind::Unavailable, "the answer was lost"));
        }
        answer
    }

    fn hold(&self, inner: Arc<dyn Hold>) -> Arc<dyn Hold> {
        Arc::new(Paused {
            inner,
            server: self.clone(),
            releasing: AtomicBool::new(false),
        })
    }
}

struct Believing<'a>(&'a AtomicBool);

impl Drop for Believing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// To the server, or back: others go on meanwhile, and whoever waits is asked again before the end of it.
async fn way() {
    let mut left = 2;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[async_trait]
impl DistributedLock for Server {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.memory.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        Ok(match self.ask(self.memory.acquire(request)).await? {
            Attempt::Granted(hold, armed) => Attempt::Granted(self.hold(hold), armed),
            other => other,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.ask(self.memory.abandon(request)).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.memory.status(name).await
    }
}

#[derive(Debug)]
struct Paused {
    inner: Arc<dyn Hold>,
    server: Server,
    releasing: AtomicBool,
}

#[async_trait]
impl Hold for Paused {
    fn token(&self) -> FencingToken {
        self.inner.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        if self.releasing.load(Ordering::SeqCst) {
            self.server.seen.renewed_after_release.store(true, Ordering::SeqCst);
        }
        self.server.ask(self.inner.renew(ttl)).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.releasing.store(true, Ordering::SeqCst);
        self.server.ask(self.inner.release(how)).await
    }

    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        self.releasing.store(true, Ordering::SeqCst);
        Ok(match self.server.ask(self.inner.hand_over(next)).await? {
            HandOver::Granted(hold, armed) => HandOver::Granted(self.server.hold(hold), armed),
            other => other,
        })
    }
}
