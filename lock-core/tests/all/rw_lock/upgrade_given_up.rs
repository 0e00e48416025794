//! Upgrades whose time is up at a backend that waits and then answers "busy", whatever the server would have said.

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Busy, Capabilities, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, HoldState, LockName, Locker, MemoryBackend, Result, UpgradableGuard};
use tokio::time::Instant;

use super::{TTL, seconds};

/// What the backend reports while it waits.
#[derive(Clone, Copy, Debug)]
enum Noted {
    Nothing,
    Busy,
    Unreachable,
    BusyThenUnreachable,
}

/// The memory backend, at which every upgrade waits until it is given up.
#[derive(Debug)]
struct GivesUp(MemoryBackend, Noted);

#[async_trait]
impl DistributedLock for GivesUp {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        if request.replaces().is_none() {
            return self.0.acquire(request).await;
        }
        request.sending();
        if let Noted::Busy | Noted::BusyThenUnreachable = self.1 {
            request.note_busy(Busy::new().with_holder("a reader"));
        }
        if let Noted::Unreachable | Noted::BusyThenUnreachable = self.1 {
            request.note_unreachable(Error::new(ErrorKind::Unavailable, "the connection was cut"));
        }
        request.given_up().await;
        Ok(Attempt::Busy(Busy::new()))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await
    }
}

async fn reading(noted: Noted) -> (Locker, UpgradableGuard) {
    let locks = Locker::new(GivesUp(MemoryBackend::new(), noted)).with_ttl(TTL);
    let guard = locks.rw_lock("a").upgradable().acquire().await.unwrap();
    (locks, guard)
}

#[tokio::test(start_paused = true)]
async fn a_busy_that_means_given_up_is_no_answer() {
    for noted in [Noted::Nothing, Noted::Unreachable, Noted::BusyThenUnreachable] {
        let (locks, mut guard) = reading(noted).await;
        let began = Instant::now();
        let error = guard.upgrade_within(seconds(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{noted:?}");
        assert_eq!(began.elapsed(), seconds(1), "{noted:?}");
        let error = guard.try_upgrade().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{noted:?}");
        assert_eq!(guard.state(), HoldState::Held, "{noted:?}");
        guard.release().await.unwrap();
        locks.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_that_means_given_up_leaves_the_answer_before_it() {
    let (_locks, mut guard) = reading(Noted::Busy).await;
    let began = Instant::now();
    let error = guard.upgrade_within(seconds(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("a reader")));
    assert_eq!(began.elapsed(), seconds(1));
    assert!(!guard.try_upgrade().await.unwrap(), "the server has said so");
    assert_eq!(guard.state(), HoldState::Held);
}
