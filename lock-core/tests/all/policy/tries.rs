//! A try beside other work of its process on the same lock.

use std::time::Duration;

use lock_core::backend::Busy;
use lock_core::{Error, ErrorKind, Locker};
use tokio::time::{Instant, sleep};

use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request};

const NOW: Answer = Answer::DoAfter(Duration::ZERO);

#[tokio::test(start_paused = true)]
async fn every_try_waits_for_the_release_before_it() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a");
    // The release reaches the server after both tries.
    backend.next(Request::Release, [Answer::DoAfter(seconds(1))]);
    drop(lock.acquire().await.unwrap());
    sleep(Duration::from_millis(100)).await;
    let try_it = || {
        let lock = lock.clone();
        tokio::spawn(async move { lock.try_acquire().await })
    };
    let first = try_it();
    sleep(Duration::from_millis(100)).await;
    let second = try_it();
    sleep(Duration::from_millis(100)).await;
    first.abort();
    assert!(second.await.unwrap().unwrap().is_some(), "nobody else wants it");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_asks_again_forgets_the_first_answer() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a");
    backend.next(Request::Release, [Answer::DoAfter(seconds(1))]);
    drop(lock.acquire().await.unwrap());
    sleep(Duration::from_millis(100)).await;
    backend.next(Request::Acquire, [NOW, Answer::Hang]);
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "the server did not answer it");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_never_answered_delays_no_try_after_its_lease() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a");
    backend.next(Request::Release, [Answer::Hang]);
    drop(lock.acquire().await.unwrap());
    sleep(TTL).await;
    backend.server().hold_elsewhere("a", seconds(60)).unwrap();
    let started = Instant::now();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_try_beside_a_waiter_knows_that_the_connection_is_down() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("a", seconds(600)).unwrap();
    let lock = locks.lock("a");
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.map(drop) }
    });
    sleep(seconds(1)).await;
    let request = backend.last_request();
    request.note_unreachable(Error::new(ErrorKind::Unavailable, "the line is cut"));
    tokio::task::yield_now().await;
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // As soon as the server has answered again, so is a try that came before.
    let tried = tokio::spawn(async move { lock.try_acquire().await });
    sleep(seconds(1)).await;
    let started = Instant::now();
    request.note_busy(Busy::new().with_holder("elsewhere"));
    assert!(tried.await.unwrap().unwrap().is_none());
    assert_eq!(started.elapsed(), Duration::ZERO);
    waiting.abort();
}

/// The entry of a wait that timed out stands before the try at the server, until it is undone.
#[tokio::test(start_paused = true)]
async fn a_try_after_a_wait_that_timed_out_waits_for_its_undo() {
    let (backend, locks) = scripted();
    let semaphore = locks.semaphore("a", 2);
    let guard = semaphore.permits(1).acquire().await.unwrap();
    let elsewhere = Locker::new(backend.server().clone());
    let theirs = elsewhere.semaphore("a", 2).permits(1).acquire().await.unwrap();
    backend.next(Request::Abandon, [Answer::DoAfter(seconds(1))]);
    let waited = semaphore.permits(2).acquire_within(seconds(1)).await;
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(backend.waiting("a").await, 1, "its undo has not arrived");
    theirs.release().await.unwrap();
    let tried = semaphore.permits(1).try_acquire().await.unwrap();
    assert!(tried.is_some(), "a permit is free, and nobody else wants it");
    drop(guard);
}
