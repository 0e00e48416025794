//! Re-entry, and minimum holds.

use std::time::Duration;

use lock_core::{ErrorKind, HoldState, ReentryKey, Release};
use tokio::time::{Instant, sleep};

use super::several_callers::{acquire, status, waiting};
use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request};

#[tokio::test(start_paused = true)]
async fn a_re_entry_shares_the_hold_without_asking() {
    let (backend, locks) = scripted();
    let key = ReentryKey::new();
    let lock = locks.lock("a").reentrant(&key);
    let outer = lock.acquire().await.unwrap();
    backend.sent();
    let inner = lock.try_acquire().await.unwrap().expect("its own");
    assert_eq!((inner.token(), backend.sent()), (outer.token(), vec![]));
    let others = locks.lock("a").reentrant(&ReentryKey::new());
    assert!(others.try_acquire().await.unwrap().is_none());
    assert_eq!(outer.release().await.unwrap(), Release::StillShared);
    assert_eq!(inner.state(), HoldState::Held);
    assert!(status(&backend).await.is_held());
    assert_eq!(inner.release().await.unwrap(), Release::Released);
    assert!(!status(&backend).await.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_re_entry_while_suspect_does_not_wait_for_itself() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a").reentrant(&ReentryKey::new());
    let outer = lock.acquire().await.unwrap();
    backend.next(Request::Renew, [Answer::Fail]);
    sleep(Duration::from_millis(3001)).await;
    assert_eq!(outer.state(), HoldState::Suspect);
    let inner = lock.acquire().await.unwrap();
    assert_eq!(inner.token(), outer.token());
}

#[tokio::test(start_paused = true)]
async fn two_acquires_with_one_key_do_not_wait_for_each_other() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a").reentrant(&ReentryKey::new());
    let (one, other) = tokio::join!(lock.acquire(), lock.acquire());
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.token(), other.token());
    assert_eq!(backend.sent(), [Request::Acquire]);
    drop((one, other));
    locks.shutdown().await.unwrap();
    assert!(!status(&backend).await.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_re_entry_on_other_terms_is_refused() {
    let (_, locks) = scripted();
    let lock = locks.lock("a").reentrant(&ReentryKey::new());
    let queued = lock.clone().ttl(TTL * 3);
    let (guard, contradiction) = tokio::join!(lock.acquire(), queued.acquire());
    let contradictions = [
        contradiction,
        lock.clone().ttl(TTL * 2).acquire().await,
        lock.clone().fixed_lease().acquire().await,
        lock.clone().hold_at_least(TTL).acquire().await,
    ];
    for error in contradictions {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Misconfigured);
    }
    assert_eq!(
        guard.unwrap().release().await.unwrap(),
        Release::Released,
        "no share is left over"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_not_shared() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a").reentrant(&ReentryKey::new());
    let lost = lock.acquire().await.unwrap();
    backend.server().take_away("a").unwrap();
    let again = lock.acquire().await.unwrap();
    assert!(again.token() > lost.token());
    assert_eq!(again.release().await.unwrap(), Release::Released);
    assert!(lost.release().await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_minimum_hold_outlasts_its_guard() {
    let (backend, locks) = scripted();
    let started = Instant::now();
    let lock = locks.lock("a").hold_at_least(seconds(20));
    let guard = lock.acquire().await.unwrap();
    assert!(
        guard.valid_for() > TTL,
        "the server keeps it for the minimum from the start"
    );
    sleep(seconds(5)).await;
    guard.release().await.unwrap();
    assert_eq!(started.elapsed(), seconds(5), "a release does not wait");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let next = locks.lock("a").acquire().await.unwrap();
    assert_eq!(started.elapsed(), seconds(20));
    sleep(seconds(30)).await;
    next.release().await.unwrap();
    assert!(!status(&backend).await.is_held(), "nothing is kept after the minimum");
}

#[tokio::test(start_paused = true)]
async fn a_minimum_hold_is_not_free_before_its_end() {
    let (backend, locks) = scripted();
    let started = Instant::now();
    let guard = locks.lock("a").hold_at_least(seconds(20)).acquire().await.unwrap();
    let next = waiting(acquire(&locks, "next")).await;
    backend.sent();
    drop(guard);
    assert!(next.await.unwrap().is_ok());
    assert_eq!(started.elapsed(), seconds(20));
    assert_eq!(backend.sent(), [Request::Release, Request::Acquire]);
}

#[tokio::test(start_paused = true)]
async fn a_minimum_hold_that_was_waited_out_is_free_at_once() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").hold_at_least(seconds(2)).acquire().await.unwrap();
    let next = waiting(acquire(&locks, "next")).await;
    sleep(seconds(2)).await;
    backend.sent();
    drop(guard);
    assert!(next.await.unwrap().is_ok());
    assert_eq!(backend.sent(), [Request::Release, Request::Acquire]);
}

#[tokio::test(start_paused = true)]
async fn a_retried_release_keeps_the_minimum() {
    let (backend, locks) = scripted();
    let started = Instant::now();
    let guard = locks.lock("a").hold_at_least(seconds(20)).acquire().await.unwrap();
    backend.next(Request::Release, [Answer::Fail, Answer::DoThenFail]);
    guard.release().await.unwrap();
    let _next = locks.lock("a").acquire().await.unwrap();
    assert!(started.elapsed() >= seconds(20));
    assert!(started.elapsed() < seconds(21), "{:?}", started.elapsed());
}
