//! `lock_core::Locker` as a subject.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Capabilities, DistributedLock, LockStatus, Mode};
use lock_core::{
    Ended, Error, ErrorKind, FencingToken, Guard, HoldState, Lock, Locker, MultiGuard, Release, Result, Term,
    UpgradableGuard, acquire_all, acquire_all_within, try_acquire_all,
};

use self::election::LockerCandidate;
use super::{Ask, Candidate, End, State, Subject, SubjectGuard, Task, WaitLimit};
use crate::yielding::Yielding;

mod election;

/// A [`Locker`] over a backend: what makes the subject cases test that backend.
#[derive(Debug, Clone)]
pub struct LockerSubject {
    locker: Locker,
    /// Whether the locks are the write sides of reader-writer locks.
    writes: bool,
    least_polls: u32,
}

#[derive(Debug)]
enum LockerGuard {
    Plain(Guard),
    Upgradable(UpgradableGuard),
    Term(Term),
}

impl LockerGuard {
    fn boxed(guard: Guard) -> Box<dyn SubjectGuard> {
        Box::new(Self::Plain(guard))
    }

    fn guard(&self) -> &Guard {
        match self {
            Self::Plain(guard) => guard,
            Self::Upgradable(guard) => guard,
            Self::Term(term) => term,
        }
    }
}

/// Small, so that cases reach the bound soon.
const PASSES: u32 = 6;

/// Over a backend that yields before and after each call.
const POLLS_OF_YIELDING: u32 = 3;

impl LockerSubject {
    /// A new client of this backend, with more places to be dropped at: see [`Yielding`].
    pub fn new(backend: Arc<dyn DistributedLock>) -> Self {
        Self::configured(backend, |locker| locker)
    }

    /// The same with a locker that `configure` has given other options, but for the passes in a row, of which the suite must know.
    pub fn configured(backend: Arc<dyn DistributedLock>, configure: impl FnOnce(Locker) -> Locker) -> Self {
        let mut subject = Self::from_locker(configure(Locker::new(Yielding::new(backend))));
        subject.least_polls = POLLS_OF_YIELDING;
        subject
    }

    /// One that passes a lock on among its own callers for ever, which the suite must catch.
    pub(crate) fn without_end(backend: Arc<dyn DistributedLock>) -> Self {
        let mut subject = Self::new(backend);
        subject.locker = subject.locker.with_passes(u32::MAX);
        subject
    }

    /// A locker with options of its own, but for the passes in a row, of which the suite must know. It is dropped where the backend
    /// lets it be: [`configured`](Self::configured) has more places.
    pub fn from_locker(locker: Locker) -> Self {
        Self {
            locker: locker.with_passes(PASSES),
            writes: false,
            least_polls: 1,
        }
    }

    /// The same where each lock is the write side of a [reader-writer lock](Locker::rw_lock).
    #[must_use]
    pub fn writing(mut self) -> Self {
        self.writes = true;
        self
    }
}

impl LockerSubject {
    /// In every mode but the upgradable one, which has a type of its own.
    fn lock(&self, ask: &Ask) -> Lock {
        let mut lock = match ask.mode {
            Mode::Shared => self.locker.rw_lock(&ask.name).read(),
            Mode::Permits(permits) => self.locker.semaphore(&ask.name, permits.of()).permits(permits.take()),
            _ if self.writes => self.locker.rw_lock(&ask.name).write(),
            _ => self.locker.lock(&ask.name),
        };
        lock = lock.ttl(ask.ttl);
        if let Some(label) = &ask.label {
            lock = lock.label(label.clone());
        }
        if ask.fixed {
            lock = lock.fixed_lease();
        }
        if let Some(minimum) = ask.minimum {
            lock = lock.hold_at_least(minimum);
        }
        if let Some(maximum) = ask.maximum {
            lock = lock.hold_at_most(maximum);
        }
        if let Some(key) = &ask.reentry {
            lock = lock.reentrant(key);
        }
        lock
    }

    async fn acquire_upgradable(&self, ask: &Ask) -> Result<Option<Box<dyn SubjectGuard>>> {
        let mut lock = self.locker.rw_lock(&ask.name).upgradable().ttl(ask.ttl);
        if let Some(label) = &ask.label {
            lock = lock.label(label.clone());
        }
        let guard = match ask.wait {
            WaitLimit::Try => lock.try_acquire().await?,
            WaitLimit::Within(time) => Some(lock.acquire_within(time).await?),
            WaitLimit::Forever => Some(lock.acquire().await?),
        };
        Ok(guard.map(|guard| Box::new(LockerGuard::Upgradable(guard)) as Box<dyn SubjectGuard>))
    }
}

#[async_trait]
impl Subject for LockerSubject {
    fn capabilities(&self) -> Capabilities {
        self.locker.capabilities()
    }

    fn passes(&self) -> u32 {
        PASSES
    }

    fn least_polls(&self) -> u32 {
        self.least_polls
    }

    async fn acquire(&self, ask: &Ask) -> Result<Option<Box<dyn SubjectGuard>>> {
        if ask.mode == Mode::Upgradable {
            return self.acquire_upgradable(ask).await;
        }
        let lock = self.lock(ask);
        let guard = match ask.wait {
            WaitLimit::Try => lock.try_acquire().await?,
            WaitLimit::Within(time) => Some(lock.acquire_within(time).await?),
            WaitLimit::Forever => Some(lock.acquire().await?),
        };
        Ok(guard.map(LockerGuard::boxed))
    }

    fn acquires_several(&self) -> bool {
        true
    }

    async fn acquire_all(&self, asks: &[Ask], wait: WaitLimit) -> Result<Option<Vec<Box<dyn SubjectGuard>>>> {
        let locks = asks.iter().map(|ask| self.lock(ask));
        let all = match wait {
            WaitLimit::Try => try_acquire_all(locks).await?,
            WaitLimit::Within(time) => Some(acquire_all_within(locks, time).await?),
            WaitLimit::Forever => Some(acquire_all(locks).await?),
        };
        let guards = |all: MultiGuard| all.into_guards().into_iter().map(LockerGuard::boxed).collect();
        Ok(all.map(guards))
    }

    fn candidate(&self, name: &str, ttl: Duration, value: &str) -> Option<Arc<dyn Candidate>> {
        let election = self.locker.election(name).ttl(ttl).value(value);
        Some(Arc::new(LockerCandidate(election)))
    }

    async fn status(&self, name: &str) -> Result<LockStatus> {
        self.locker.status(name).await
    }

    async fn shutdown(&self) -> Result<()> {
        self.locker.shutdown().await
    }
}

#[async_trait]
impl SubjectGuard for LockerGuard {
    fn token(&self) -> FencingToken {
        self.guard().token()
    }

    fn state(&self) -> State {
        match self.guard().state() {
            HoldState::Held => State::Held,
            HoldState::Suspect => State::Suspect,
            HoldState::Released => State::Released,
            // Whatever else a hold may become one day, it is not to be relied on.
            _ => State::Lost,
        }
    }

    fn valid_for(&self) -> Duration {
        self.guard().valid_for()
    }

    async fn lost(&self) {
        self.guard().lost().await;
    }

    fn watch(&self) -> Task<End> {
        let watch = self.guard().watch();
        Box::pin(async move {
            match watch.ended().await {
                Ended::Released => End::Released,
                _ => End::Lost,
            }
        })
    }

    async fn run(&self, work: Task<()>) -> bool {
        self.guard().run(work).await.is_ok()
    }

    async fn extend(&self, ttl: Duration) -> Result<()> {
        self.guard().extend(ttl).await
    }

    async fn downgrade(&mut self) -> Result<()> {
        match self {
            Self::Plain(guard) => guard.downgrade().await,
            Self::Upgradable(guard) => guard.downgrade().await,
            Self::Term(_) => Err(Error::new(ErrorKind::Unsupported, "a term is not downgraded")),
        }
    }

    async fn upgrade(&mut self, limit: Option<Duration>) -> Result<()> {
        match (self, limit) {
            (Self::Upgradable(guard), Some(limit)) => guard.upgrade_within(limit).await,
            (Self::Upgradable(guard), None) => guard.upgrade().await,
            (Self::Plain(_) | Self::Term(_), _) => Err(Error::new(ErrorKind::Unsupported, "it is not upgradable")),
        }
    }

    async fn release(self: Box<Self>) -> Result<Release> {
        match *self {
            Self::Plain(guard) => guard.release().await,
            Self::Upgradable(guard) => guard.release().await,
            Self::Term(term) => term.resign().await.map(|()| Release::Released),
        }
    }
}
