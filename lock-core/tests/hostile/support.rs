//! A backend that yields before and after every effect, and does its worst when told to.

pub(crate) use std::collections::VecDeque;
pub(crate) use std::fmt;
pub(crate) use std::future::poll_fn;
pub(crate) use std::pin::pin;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::task::Poll;
pub(crate) use std::time::Duration;

pub(crate) use async_trait::async_trait;
pub(crate) use futures_util::FutureExt;
pub(crate) use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, HandOver, Hold, Lease, LockStatus, ReleaseOptions,
    ReleaseOutcome, Renewal,
};
pub(crate) use lock_core::{
    Ended, Error, ErrorKind, FencingToken, HoldState, LockName, Locker, LostCause, MemoryBackend, Result,
};
pub(crate) use tokio::runtime::Handle;
pub(crate) use tokio::task::yield_now;
pub(crate) use tokio::time::{sleep, timeout};

pub(crate) const TTL: Duration = Duration::from_secs(9);

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What a request does instead of being answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Never answers; takes no effect.
    Hang,
    /// Takes effect and never answers.
    DoThenHang,
    /// Takes effect and answers so much later.
    DoThenWait(Duration),
    /// Takes effect, and fails when the ttl is over.
    DoThenFailLate,
    /// Takes effect, and fails.
    DoThenFail,
    Fail,
    PanicBefore,
    DoThenPanic,
}

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) acts: Mutex<VecDeque<Act>>,
    /// How often it was asked.
    pub(crate) asked: AtomicUsize,
    /// How many were dropped between their first poll and their answer.
    pub(crate) cut: AtomicUsize,
    /// How many polls came on another runtime than the first one.
    pub(crate) moved: AtomicUsize,
}

impl Script {
    pub(crate) fn next(&self, acts: impl IntoIterator<Item = Act>) {
        self.acts.lock().unwrap().extend(acts);
    }

    pub(crate) async fn run<T>(&self, effect: impl Future<Output = Result<T>>) -> Result<T> {
        let here = || Handle::try_current().ok().map(|runtime| runtime.id());
        let began = here();
        let mut request = pin!(self.answer(effect));
        poll_fn(|context| {
            self.moved.fetch_add(usize::from(here() != began), Ordering::SeqCst);
            request.as_mut().poll(context)
        })
        .await
    }

    /// Yields before and after the effect, so that a caller can be cut off on either side of it.
    async fn answer<T>(&self, effect: impl Future<Output = Result<T>>) -> Result<T> {
        struct Cut<'a>(&'a AtomicUsize, bool);
        impl Drop for Cut<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(usize::from(self.1), Ordering::SeqCst);
            }
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut cut = Cut(&self.cut, true);
        let act = self.acts.lock().unwrap().pop_front();
        yield_now().await;
        let answer = match act {
            Some(Act::Hang) => std::future::pending().await,
            Some(Act::Fail) => Err(Error::new(ErrorKind::Unavailable, "scripted failure")),
            Some(Act::PanicBefore) => {
                cut.1 = false;
                panic!("planned: before")
            }
            _ => effect.await,
        };
        yield_now().await;
        match act {
            Some(Act::DoThenHang) => std::future::pending().await,
            Some(Act::DoThenWait(time)) => sleep(time).await,
            Some(Act::DoThenFailLate) => {
                sleep(TTL).await;
                cut.1 = false;
                return Err(Error::new(ErrorKind::Unavailable, "scripted failure"));
            }
            Some(Act::DoThenFail) => {
                cut.1 = false;
                return Err(Error::new(ErrorKind::Unavailable, "scripted failure"));
            }
            Some(Act::DoThenPanic) => {
                cut.1 = false;
                panic!("planned: after")
            }
            _ => {}
        }
        yield_now().await;
        cut.1 = false;
        answer
    }
}

#[derive(Clone, Default)]
pub(crate) struct Hostile(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) server: MemoryBackend,
    pub(crate) capabilities: Capabilities,
    pub(crate) acquire: Script,
    pub(crate) abandon: Script,
    pub(crate) renew: Script,
    pub(crate) release: Script,
    pub(crate) hand_over: Script,
    /// The next hold that is asked for its token panics.
    pub(crate) panic_in_token: AtomicBool,
    /// Holds that were granted and not dropped yet.
    pub(crate) alive: AtomicUsize,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            server: MemoryBackend::new(),
            capabilities: MemoryBackend::new().capabilities(),
            acquire: Script::default(),
            abandon: Script::default(),
            renew: Script::default(),
            release: Script::default(),
            hand_over: Script::default(),
            panic_in_token: AtomicBool::new(false),
            alive: AtomicUsize::new(0),
        }
    }
}

impl fmt::Debug for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hostile")
    }
}

#[async_trait]
impl DistributedLock for Hostile {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    async fn connect(&self) -> Result<()> {
        yield_now().await;
        self.0.server.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let effect = async {
            Ok(match self.0.server.acquire(request).await? {
                Attempt::Granted(hold, armed) => {
                    self.0.alive.fetch_add(1, Ordering::SeqCst);
                    Attempt::Granted(Arc::new(HostileHold(self.0.clone(), hold)), armed)
                }
                busy => busy,
            })
        };
        self.0.acquire.run(effect).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon.run(self.0.server.abandon(request)).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        yield_now().await;
        let status = self.0.server.status(name).await;
        yield_now().await;
        status
    }
}

pub(crate) struct HostileHold(Arc<Parts>, Arc<dyn Hold>);

impl fmt::Debug for HostileHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostileHold")
    }
}

impl Drop for HostileHold {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Hold for HostileHold {
    fn token(&self) -> FencingToken {
        assert!(!self.0.panic_in_token.swap(false, Ordering::SeqCst), "planned");
        self.1.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        self.0.renew.run(self.1.renew(ttl)).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.0.release.run(self.1.release(how)).await
    }

    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        let effect = async {
            Ok(match self.1.hand_over(next).await? {
                HandOver::Granted(hold, armed) => {
                    self.0.alive.fetch_add(1, Ordering::SeqCst);
                    HandOver::Granted(Arc::new(HostileHold(self.0.clone(), hold)), armed)
                }
                other => other,
            })
        };
        self.0.hand_over.run(effect).await
    }
}

pub(crate) fn hostile() -> (Hostile, Locker) {
    let backend = Hostile::default();
    let locks = Locker::new(backend.clone()).with_ttl(TTL);
    (backend, locks)
}

impl Hostile {
    /// How many polls of requests came on another runtime than their first one.
    pub(crate) fn moved(&self) -> usize {
        let Parts {
            acquire,
            abandon,
            renew,
            release,
            hand_over,
            ..
        } = &*self.0;
        let scripts = [acquire, abandon, renew, release, hand_over];
        scripts.map(|script| script.moved.load(Ordering::SeqCst)).iter().sum()
    }

    pub(crate) async fn is_held(&self, name: &str) -> bool {
        let name = LockName::new(name).unwrap();
        self.0.server.status(&name).await.unwrap().is_held()
    }

    pub(crate) async fn places(&self, name: &str) -> usize {
        let name = LockName::new(name).unwrap();
        self.0.server.status(&name).await.unwrap().waiting.unwrap()
    }
}

/// Polls it so often, then drops it; true when it was ready by then.
pub(crate) async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let ready = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = ready {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

/// One that is driven all the time.
pub(crate) fn driven() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// One that is driven while something blocks on it.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}
