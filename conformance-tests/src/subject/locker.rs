//! `lock_core::Locker` as a subject.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Capabilities, DistributedLock, LockStatus};
use lock_core::{Ended, FencingToken, Guard, HoldState, Locker, Release, Result};

use super::{Ask, End, State, Subject, SubjectGuard, Task, WaitLimit};
use crate::yielding::Yielding;

/// A [`Locker`] over a backend: what makes the subject cases test that backend.
#[derive(Debug, Clone)]
pub struct LockerSubject {
    locker: Locker,
    /// Whether its locks are the write sides of reader-writer locks.
    writes: bool,
}

#[derive(Debug)]
struct LockerGuard(Guard);

/// Small, so that cases reach the bound soon.
const HAND_OVERS: u32 = 6;

impl LockerSubject {
    /// A new client of this backend, with more places to be dropped at: see [`Yielding`].
    pub fn new(backend: Arc<dyn DistributedLock>) -> Self {
        Self::from_locker(Locker::new(Yielding::new(backend)))
    }

    /// One that passes a lock on among its own callers for ever, which the suite must catch.
    pub(crate) fn without_end(backend: Arc<dyn DistributedLock>) -> Self {
        Self {
            locker: Locker::new(Yielding::new(backend)).with_hand_overs(u32::MAX),
            writes: false,
        }
    }

    /// A locker with options of its own, but for the hand-overs in a row, of which the suite must know.
    pub fn from_locker(locker: Locker) -> Self {
        Self {
            locker: locker.with_hand_overs(HAND_OVERS),
            writes: false,
        }
    }

    /// The same where each lock is the write side of a [reader-writer lock](Locker::rw_lock).
    #[must_use]
    pub fn writing(mut self) -> Self {
        self.writes = true;
        self
    }
}

#[async_trait]
impl Subject for LockerSubject {
    fn capabilities(&self) -> Capabilities {
        self.locker.capabilities()
    }

    fn hand_overs(&self) -> u32 {
        HAND_OVERS
    }

    async fn acquire(&self, ask: &Ask) -> Result<Option<Box<dyn SubjectGuard>>> {
        let mut lock = match self.writes {
            true => self.locker.rw_lock(&ask.name).write(),
            false => self.locker.lock(&ask.name),
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
        if let Some(key) = &ask.reentry {
            lock = lock.reentrant(key);
        }
        let guard = match ask.wait {
            WaitLimit::Try => lock.try_acquire().await?,
            WaitLimit::Within(time) => Some(lock.acquire_within(time).await?),
            WaitLimit::Forever => Some(lock.acquire().await?),
        };
        Ok(guard.map(|guard| Box::new(LockerGuard(guard)) as Box<dyn SubjectGuard>))
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
        self.0.token()
    }

    fn state(&self) -> State {
        match self.0.state() {
            HoldState::Held => State::Held,
            HoldState::Suspect => State::Suspect,
            HoldState::Released => State::Released,
            // Whatever else a hold may become one day, it is not to be relied on.
            _ => State::Lost,
        }
    }

    fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    async fn lost(&self) {
        self.0.lost().await;
    }

    fn watch(&self) -> Task<End> {
        let watch = self.0.watch();
        Box::pin(async move {
            match watch.ended().await {
                Ended::Released => End::Released,
                _ => End::Lost,
            }
        })
    }

    async fn run(&self, work: Task<()>) -> bool {
        self.0.run(work).await.is_ok()
    }

    async fn extend(&self, ttl: Duration) -> Result<()> {
        self.0.extend(ttl).await
    }

    async fn release(self: Box<Self>) -> Result<Release> {
        self.0.release().await
    }
}
