//! What an acquire says of a server that has fallen silent, or never spoke.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Busy, Capabilities, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, LockName, Locker, MemoryBackend, Result};

use super::{scripted, seconds};
use crate::scripted::{Answer, Request};

#[tokio::test(start_paused = true)]
async fn a_try_that_was_not_answered_is_no_news() {
    let (backend, locks) = scripted();
    locks.connect().await.unwrap();
    let lock = locks.lock("a");
    // The waiter is behind the try, and behind its undoing.
    backend.next(Request::Acquire, [Answer::Hang; 2]);
    let (tried, waited) = tokio::join!(lock.try_acquire(), lock.acquire_within(seconds(6)));
    assert_eq!(tried.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn what_was_heard_before_the_silence_is_no_last_word() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a");
    let guard = lock.acquire().await.unwrap();
    let wait = |limit| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire_within(limit).await.map(drop) })
    };
    let (next, last) = (wait(seconds(20)), wait(seconds(8)));
    tokio::task::yield_now().await;
    // Passed on while the server lived; then it does not answer the one who has the turn, nor who waits behind it.
    backend.next(Request::Release, [Answer::Hang]);
    backend.next(Request::Acquire, [Answer::Hang; 2]);
    guard.release().await.unwrap_err();
    for waiter in [last, next] {
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
}

/// Never grants anything.
#[derive(Debug)]
enum Useless {
    /// Ends with its caller's time.
    GivesUp,
    /// Each grant has ended before it is answered.
    Loses(AtomicUsize),
}

#[async_trait]
impl DistributedLock for Useless {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn connect(&self) -> Result<()> {
        Ok(())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        match self {
            Self::GivesUp => {
                request.given_up().await;
                Ok(Attempt::Busy(Busy::new()))
            }
            Self::Loses(asked) => {
                assert!(asked.fetch_add(1, Ordering::SeqCst) < 100, "asked without a pause");
                Err(Error::new(ErrorKind::Lost, "it was granted, and is over"))
            }
        }
    }

    async fn abandon(&self, _request: &AcquireRequest) -> Result<()> {
        Ok(())
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        MemoryBackend::new().status(name).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_one_who_has_given_up_is_no_last_word() {
    let locks = Locker::new(Useless::GivesUp);
    locks.connect().await.unwrap();
    let lock = locks.lock("a");
    for limit in [Duration::ZERO, seconds(2)] {
        let error = lock.acquire_within(limit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "within {limit:?}");
    }
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn grants_that_are_over_are_asked_for_with_pauses() {
    let locks = Locker::new(Useless::Loses(AtomicUsize::new(0)));
    locks.connect().await.unwrap();
    let error = locks.lock("a").acquire_within(seconds(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
