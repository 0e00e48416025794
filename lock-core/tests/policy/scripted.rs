//! The memory backend, with the answers to some requests changed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, HandOver, Hold, LockStatus, ReleaseOptions, ReleaseOutcome,
    Renewal,
};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Locker, MemoryBackend, Result};
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Fail,
    /// An error that states that nothing was executed.
    NotExecuted,
    Refuse,
    Hang,
    HangThenFail(Duration),
    /// Takes effect, and answers, so much later.
    HangThenDo(Duration),
    DoThenFail,
    DoThenHang,
    DoThenDelay,
}

/// What went to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Acquire,
    Renew,
    Release,
    HandOver,
    Abandon,
}

#[derive(Clone, Default)]
pub(crate) struct Scripted(Arc<Script>);

#[derive(Default)]
struct Script {
    server: MemoryBackend,
    started: Mutex<Option<Instant>>,
    acquires: Mutex<VecDeque<Answer>>,
    renewals: Mutex<VecDeque<Answer>>,
    releases: Mutex<VecDeque<Answer>>,
    hand_overs: Mutex<VecDeque<Answer>>,
    sent: Mutex<Vec<Sent>>,
    renewed: Mutex<Vec<Duration>>,
    without_hand_over: AtomicBool,
    fail_before_sending: AtomicBool,
    last_request: Mutex<Option<AcquireRequest>>,
    abandons: AtomicUsize,
    hung: AtomicUsize,
    let_go: Notify,
}

impl Scripted {
    pub(crate) fn next_acquires(&self, answers: impl IntoIterator<Item = Answer>) {
        self.0.acquires.lock().unwrap().extend(answers);
    }

    pub(crate) fn next_renewals(&self, answers: impl IntoIterator<Item = Answer>) {
        self.0.renewals.lock().unwrap().extend(answers);
    }

    pub(crate) fn next_releases(&self, answers: impl IntoIterator<Item = Answer>) {
        self.0.releases.lock().unwrap().extend(answers);
    }

    pub(crate) fn next_hand_overs(&self, answers: impl IntoIterator<Item = Answer>) {
        self.0.hand_overs.lock().unwrap().extend(answers);
    }

    /// A locker of a backend that cannot hand over.
    pub(crate) fn without_hand_over(&self) -> Locker {
        self.0.without_hand_over.store(true, Ordering::SeqCst);
        Locker::new(self.clone())
    }

    /// Whether every acquire fails for want of a connection.
    pub(crate) fn fail_before_sending(&self, fail: bool) {
        self.0.fail_before_sending.store(fail, Ordering::SeqCst);
    }

    /// What was acquired with last.
    pub(crate) fn last_request(&self) -> AcquireRequest {
        self.0
            .last_request
            .lock()
            .unwrap()
            .clone()
            .expect("an acquire came before")
    }

    /// From here on, acquires are answered as they come.
    pub(crate) fn clear(&self) {
        self.0.acquires.lock().unwrap().clear();
    }

    /// All that went to the server since this was asked last.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.0.sent.lock().unwrap())
    }

    /// The server itself, as another process sees it.
    pub(crate) fn server(&self) -> &MemoryBackend {
        &self.0.server
    }

    /// When each renewal arrived, from the first acquire on.
    pub(crate) fn renewals(&self) -> Vec<Duration> {
        self.0.renewed.lock().unwrap().clone()
    }

    pub(crate) fn abandons(&self) -> usize {
        self.0.abandons.load(Ordering::SeqCst)
    }

    /// How many requests hang at the moment.
    pub(crate) fn hung(&self) -> usize {
        self.0.hung.load(Ordering::SeqCst)
    }

    /// Ends all that hang.
    pub(crate) fn let_go(&self) {
        self.0.let_go.notify_waiters();
    }
}

impl Script {
    fn sent(&self, what: Sent) {
        self.sent.lock().unwrap().push(what);
    }

    async fn hang(&self) {
        struct Hung<'a>(&'a AtomicUsize);
        impl Drop for Hung<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.hung.fetch_add(1, Ordering::SeqCst);
        let _hung = Hung(&self.hung);
        self.let_go.notified().await;
    }

    async fn run<T>(
        &self,
        answers: &Mutex<VecDeque<Answer>>,
        refusal: Option<T>,
        act: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let answer = answers.lock().unwrap().pop_front();
        match answer {
            None => return act.await,
            Some(Answer::Fail) => {}
            Some(Answer::NotExecuted) => {
                return Err(Error::new(ErrorKind::Unavailable, "scripted refusal").not_executed());
            }
            Some(Answer::Refuse) => return Ok(refusal.expect("a request that can be refused")),
            Some(Answer::Hang) => self.hang().await,
            Some(Answer::HangThenFail(time)) => tokio::time::sleep(time).await,
            Some(Answer::HangThenDo(time)) => {
                tokio::time::sleep(time).await;
                return act.await;
            }
            Some(Answer::DoThenFail) => drop(act.await?),
            Some(Answer::DoThenDelay) => {
                let answer = act.await?;
                self.hang().await;
                return Ok(answer);
            }
            Some(Answer::DoThenHang) => {
                drop(act.await?);
                self.hang().await;
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "scripted failure"))
    }
}

#[async_trait]
impl DistributedLock for Scripted {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.0.server.capabilities();
        capabilities.hand_over &= !self.0.without_hand_over.load(Ordering::SeqCst);
        capabilities
    }

    async fn connect(&self) -> Result<()> {
        self.0.server.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.0.started.lock().unwrap().get_or_insert_with(Instant::now);
        self.0.sent(Sent::Acquire);
        *self.0.last_request.lock().unwrap() = Some(request.clone());
        if self.0.fail_before_sending.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "there is no connection").not_executed());
        }
        request.sending();
        let act = async {
            request.note_connected();
            self.0.server.acquire(request).await
        };
        let attempt = self.0.run(&self.0.acquires, None, act).await?;
        Ok(match attempt {
            Attempt::Granted(hold, armed) => Attempt::Granted(Arc::new(ScriptedHold(self.0.clone(), hold)), armed),
            busy => busy,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.sent(Sent::Abandon);
        self.0.abandons.fetch_add(1, Ordering::SeqCst);
        self.0.server.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.server.status(name).await
    }
}

struct ScriptedHold(Arc<Script>, Arc<dyn Hold>);

#[async_trait]
impl Hold for ScriptedHold {
    fn token(&self) -> FencingToken {
        self.1.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let started = self.0.started.lock().unwrap().expect("an acquire came before");
        self.0.sent(Sent::Renew);
        self.0.renewed.lock().unwrap().push(started.elapsed());
        self.0
            .run(&self.0.renewals, Some(Renewal::Lost), self.1.renew(ttl))
            .await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        // As a driver does with its channels and timers, if not so often: more than tokio grants a task at once.
        for _ in 0..200 {
            tokio::task::coop::consume_budget().await;
        }
        self.0.sent(Sent::Release);
        self.0
            .run(&self.0.releases, Some(ReleaseOutcome::AlreadyLost), self.1.release(how))
            .await
    }

    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        self.0.sent(Sent::HandOver);
        next.sending();
        let handed = self
            .0
            .run(&self.0.hand_overs, Some(HandOver::AlreadyLost), self.1.hand_over(next))
            .await?;
        Ok(match handed {
            HandOver::Granted(hold, armed) => HandOver::Granted(Arc::new(ScriptedHold(self.0.clone(), hold)), armed),
            other => other,
        })
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl fmt::Debug for ScriptedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedHold")
    }
}
