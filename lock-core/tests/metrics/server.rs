//! The memory backend, with the answers to some requests changed.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, HandOver, Hold, Lease, LockStatus, ReleaseOptions,
    ReleaseOutcome, Renewal,
};
use lock_core::{Error, ErrorKind, FencingToken, LockName, LostCause, MemoryBackend, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Acquire,
    Renew,
    Release,
    HandOver,
    Abandon,
}

/// In place of what was asked for, which is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An error that passes.
    Fail,
    /// An error that stays.
    Deny,
    Hang,
    Panic,
    /// A panic without a future.
    PanicAtOnce,
    /// The hold is released, and the answer is that it was not ours.
    NotHeld,
    /// The hold is released.
    Yield,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Server(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    memory: MemoryBackend,
    answers: Mutex<Vec<(Request, Answer)>>,
    latest: Mutex<Option<Lease>>,
}

impl Server {
    /// What the next request of this kind that is not answered yet comes to.
    pub(crate) fn next(&self, request: Request, answer: Answer) {
        self.0.answers.lock().unwrap().push((request, answer));
    }

    /// The connection under the latest hold breaks.
    pub(crate) fn disconnect(&self) {
        let lease = self.0.latest.lock().unwrap().take();
        lease.expect("something was acquired").lose(LostCause::Disconnected);
    }

    fn take(&self, request: Request) -> Option<Answer> {
        let mut answers = self.0.answers.lock().unwrap();
        let found = answers.iter().position(|(of, _)| *of == request)?;
        Some(answers.remove(found).1)
    }

    async fn ask(&self, request: Request) -> Result<Option<Answer>> {
        come_to(self.take(request)).await
    }

    fn hold(&self, inner: Arc<dyn Hold>) -> Arc<dyn Hold> {
        Arc::new(ServerHold {
            server: self.clone(),
            inner,
        })
    }
}

/// What else than an error it comes to.
async fn come_to(answer: Option<Answer>) -> Result<Option<Answer>> {
    match answer {
        Some(Answer::Fail) => Err(Error::new(ErrorKind::Unavailable, "as told")),
        Some(Answer::Deny) => Err(Error::new(ErrorKind::Denied, "as told")),
        Some(Answer::Hang) => pending().await,
        Some(Answer::Panic) => panic!("as told"),
        other => Ok(other),
    }
}

#[async_trait]
impl DistributedLock for Server {
    fn capabilities(&self) -> Capabilities {
        self.0.memory.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.0.memory.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        request.sending();
        tokio::select! {
            biased;
            answer = self.ask(Request::Acquire) => drop(answer?),
            () = request.given_up() => return Err(Error::new(ErrorKind::Unavailable, "given up")),
        }
        let attempt = self.0.memory.acquire(request).await?;
        *self.0.latest.lock().unwrap() = Some(request.lease().clone());
        Ok(match attempt {
            Attempt::Granted(hold, armed) => Attempt::Granted(self.hold(hold), armed),
            busy => busy,
        })
    }

    fn abandon<'a, 'b, 'c>(&'a self, request: &'b AcquireRequest) -> BoxFuture<'c, Result<()>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        let answer = self.take(Request::Abandon);
        assert_ne!(answer, Some(Answer::PanicAtOnce), "as told");
        Box::pin(async move {
            come_to(answer).await?;
            self.0.memory.abandon(request).await
        })
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.memory.status(name).await
    }
}

#[derive(Debug)]
struct ServerHold {
    server: Server,
    inner: Arc<dyn Hold>,
}

#[async_trait]
impl Hold for ServerHold {
    fn token(&self) -> FencingToken {
        self.inner.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        match self.server.ask(Request::Renew).await? {
            Some(_not_held) => {
                self.inner.release(ReleaseOptions::default()).await?;
                Ok(Renewal::Lost)
            }
            None => self.inner.renew(ttl).await,
        }
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.server.ask(Request::Release).await?;
        self.inner.release(how).await
    }

    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        next.sending();
        let answer = self.server.ask(Request::HandOver).await?;
        if answer.is_some() {
            self.inner.release(ReleaseOptions::default()).await?;
        }
        Ok(match answer {
            Some(Answer::Yield) => HandOver::Yielded,
            Some(_not_held) => HandOver::AlreadyLost,
            None => match self.inner.hand_over(next).await? {
                HandOver::Granted(hold, armed) => HandOver::Granted(self.server.hold(hold), armed),
                other => other,
            },
        })
    }
}
