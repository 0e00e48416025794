//! The memory backend, whose answers a test chooses.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::backend::{AcquireRequest, Capabilities, DistributedLock, Lease, LockStatus};
use lock_core::{LockName, MemoryBackend, Result};
use tokio::runtime::Id;
use tokio::sync::Notify;
use tokio::time::Instant;

mod answering;
mod backend;

/// What core asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Acquire,
    Abandon,
    Renew,
    Release,
    Downgrade,
    /// Counted alone: it changes nothing.
    Status,
}

/// How the server answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An unknown outcome, as of all that fails here; it had no effect.
    Fail,
    FailAfter(Duration),
    /// An error that stays.
    Deny,
    /// An error that states that nothing was executed.
    NotExecuted,
    /// The same, and nothing was sent.
    NotSent,
    /// The hold is not ours, though it is.
    NotHeld,
    /// No effect. Fails when the test lets go.
    Hang,
    /// No effect. Of an acquire: fails as soon as the request is given up.
    GiveUp,
    Panic,
    /// There is not even a future. For an abandon.
    PanicAtOnce,
    /// Takes effect, and answers, so much later.
    DoAfter(Duration),
    DoThenFail,
    DoThenFailAfter(Duration),
    /// Takes effect. Fails when the test lets go.
    DoThenHang,
    /// Takes effect. Answers when the test lets go.
    DoThenHold,
    DoThenWait(Duration),
    DoThenPanic,
    /// A grant with the proof that another lease was armed.
    ArmsAnotherLease,
}

/// A clone is another client of the same server, with the same script.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<Script>);

struct Script {
    server: MemoryBackend,
    capabilities: Capabilities,
    /// How often a request yields before its effect, and after it.
    yields: usize,
    answers: Mutex<HashMap<Request, VecDeque<Answer>>>,
    hooks: Mutex<HashMap<(Request, String), Hook>>,
    losses: Mutex<Option<Losses>>,
    log: Mutex<Log>,
    /// How many requests hang at the moment.
    hung: AtomicUsize,
    let_go: Notify,
    /// How many polls of a request came on another runtime than its first one.
    moved: AtomicUsize,
    /// How a hold is passed on without the server.
    pass: Mutex<Pass>,
    /// Holds that were granted and not dropped yet.
    alive: AtomicUsize,
    renewed_after_release: AtomicBool,
    /// Of all that was granted or passed on.
    leases: Mutex<Vec<Lease>>,
}

/// How a hold is passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pass {
    /// As by a backend that cannot.
    #[default]
    Never,
    /// As by the memory backend.
    AsItIs,
    Panic,
}

/// What the requests were.
#[derive(Default)]
struct Log {
    sent: Vec<Request>,
    count: HashMap<Request, usize>,
    /// How many were dropped between their first poll and their answer.
    cut: HashMap<Request, usize>,
    released_on: Vec<Id>,
    first_acquire: Option<Instant>,
    /// When each renewal arrived, from the first acquire on.
    renewals: Vec<Duration>,
    last_request: Option<AcquireRequest>,
}

/// How many more answers may get lost, and whether this one does.
type Losses = (usize, fn() -> bool);

type Hook = Box<dyn FnOnce(Lease) -> BoxFuture<'static, Result<()>> + Send>;

impl Default for Scripted {
    fn default() -> Self {
        Self::new(MemoryBackend::new().capabilities(), 0)
    }
}

/// What the test says beforehand.
impl Scripted {
    pub(crate) fn new(capabilities: Capabilities, yields: usize) -> Self {
        Self(Arc::new(Script {
            server: MemoryBackend::new(),
            capabilities,
            yields,
            answers: Mutex::default(),
            hooks: Mutex::default(),
            losses: Mutex::default(),
            log: Mutex::default(),
            hung: AtomicUsize::new(0),
            let_go: Notify::new(),
            moved: AtomicUsize::new(0),
            pass: Mutex::default(),
            alive: AtomicUsize::new(0),
            renewed_after_release: AtomicBool::new(false),
            leases: Mutex::default(),
        }))
    }

    /// The server itself, as another process sees it.
    pub(crate) fn server(&self) -> &MemoryBackend {
        &self.0.server
    }

    /// The next requests of this kind are answered like this.
    pub(crate) fn next(&self, request: Request, answers: impl IntoIterator<Item = Answer>) {
        self.0
            .answers
            .lock()
            .unwrap()
            .entry(request)
            .or_default()
            .extend(answers);
    }

    /// From here on, all requests are answered as they come.
    pub(crate) fn clear(&self) {
        self.0.answers.lock().unwrap().clear();
    }

    /// Whether the next request of this kind has an answer already.
    pub(crate) fn is_scripted(&self, request: Request) -> bool {
        let answers = self.0.answers.lock().unwrap();
        answers.get(&request).is_some_and(|answers| !answers.is_empty())
    }

    /// The next renewal or release of this name does this before its effect. An error is its answer.
    pub(crate) fn before<F>(&self, request: Request, name: &str, hook: impl FnOnce(Lease) -> F + Send + 'static)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let hook: Hook = Box::new(|lease| Box::pin(hook(lease)));
        self.0.hooks.lock().unwrap().insert((request, name.to_owned()), hook);
    }

    /// From here on the answers get lost of which `is_lost` says so, until there were so many.
    #[cfg(shuttle)]
    pub(crate) fn lose_answers(&self, at_most: usize, is_lost: fn() -> bool) {
        *self.0.losses.lock().unwrap() = Some((at_most, is_lost));
    }

    /// Tells all holders that their holds are lost, as a connection that ends does: also one that comes meanwhile.
    #[cfg(shuttle)]
    pub(crate) fn tell_of_losses(&self) {
        for at in 0.. {
            // None is kept locked while it is told.
            let lease = self.0.leases.lock().unwrap().get(at).cloned();
            match lease {
                Some(lease) => lease.lose(lock_core::LostCause::NotHeld),
                None => return,
            }
        }
    }

    /// From here on holds are passed on like this.
    pub(crate) fn pass(&self, pass: Pass) {
        *self.0.pass.lock().unwrap() = pass;
    }

    /// Ends all that hang.
    pub(crate) fn let_go(&self) {
        self.0.let_go.notify_waiters();
    }
}

/// What the test sees afterwards.
impl Scripted {
    /// All that went to the server since this was asked last.
    pub(crate) fn sent(&self) -> Vec<Request> {
        std::mem::take(&mut self.log().sent)
    }

    /// How often this was asked for.
    pub(crate) fn count(&self, request: Request) -> usize {
        self.log().count.get(&request).copied().unwrap_or_default()
    }

    /// How many of these were dropped half-way.
    pub(crate) fn cut(&self, request: Request) -> usize {
        self.log().cut.get(&request).copied().unwrap_or_default()
    }

    pub(crate) fn released_on(&self) -> Vec<Id> {
        self.log().released_on.clone()
    }

    pub(crate) fn renewals(&self) -> Vec<Duration> {
        self.log().renewals.clone()
    }

    #[cfg(shuttle)]
    pub(crate) fn renewed_after_release(&self) -> bool {
        self.0.renewed_after_release.load(Ordering::SeqCst)
    }

    /// What was acquired with last.
    pub(crate) fn last_request(&self) -> AcquireRequest {
        let last = self.log().last_request.clone();
        last.expect("an acquire came before")
    }

    pub(crate) fn hung(&self) -> usize {
        self.0.hung.load(Ordering::SeqCst)
    }

    pub(crate) fn moved(&self) -> usize {
        self.0.moved.load(Ordering::SeqCst)
    }

    pub(crate) fn alive(&self) -> usize {
        self.0.alive.load(Ordering::SeqCst)
    }

    pub(crate) async fn is_held(&self, name: &str) -> bool {
        self.status_of(name).await.is_held()
    }

    /// How many wait at the server.
    pub(crate) async fn waiting(&self, name: &str) -> usize {
        self.status_of(name).await.waiting.expect("the server knows")
    }

    pub(crate) async fn status_of(&self, name: &str) -> LockStatus {
        self.0.server.status(&LockName::new(name).unwrap()).await.unwrap()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.log.lock().unwrap()
    }
}
