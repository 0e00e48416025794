//! Every grant of a locker with a token floor is above it, however the caller came to it.

use lock_core::{ErrorKind, FencingToken, Locker, ReentryKey};
use tokio::task::yield_now;

use super::scripted;
use crate::scripted::{Answer, Request};

fn floor() -> FencingToken {
    FencingToken::new(1 << 50).unwrap()
}

async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_grant_is_above_the_floor() {
    let (backend, locks) = scripted();
    let locks = locks.with_token_floor(floor());
    let lock = locks.lock("a");
    assert_eq!(lock.options().token_floor, Some(floor()));
    let first = lock.try_acquire().await.unwrap().unwrap();
    assert!(first.token() > floor());
    assert_eq!(first.options().token_floor, Some(floor()));
    first.release().await.unwrap();
    let other = Locker::new(backend.server().clone());
    let without = other.lock("a").acquire().await.unwrap();
    assert!(without.token() > floor(), "tokens go on from there for everybody");
}

/// The request of a caller that left was sent without a floor: it is undone, and the next one asks for itself.
#[tokio::test(start_paused = true)]
async fn a_request_taken_over_ends_above_the_floor() {
    let (backend, locks) = scripted();
    backend.next(Request::Acquire, [Answer::DoThenHold]);
    let gone = locks.lock("a");
    let gone = tokio::spawn(async move { gone.acquire().await });
    settle().await;
    let next = locks.clone().with_token_floor(floor()).lock("a");
    let next = tokio::spawn(async move { next.acquire().await });
    settle().await;
    gone.abort();
    settle().await;
    backend.let_go();
    let next = next.await.unwrap().unwrap();
    assert!(next.token() > floor());
    next.release().await.unwrap();
    assert!(!backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn a_hold_below_the_floor_is_not_shared() {
    let (_backend, locks) = scripted();
    let key = ReentryKey::new();
    let above = locks.clone().with_token_floor(floor());
    let below = locks.lock("a").reentrant(&key).acquire().await.unwrap();
    let error = above.lock("a").reentrant(&key).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("token floor"), "{error}");
    below.release().await.unwrap();
    let outer = above.lock("a").reentrant(&key).acquire().await.unwrap();
    let inner = locks.lock("a").reentrant(&key).acquire().await.unwrap();
    assert_eq!(inner.token(), outer.token());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_above_the_largest_token() {
    let (_backend, locks) = scripted();
    let locks = locks.with_token_floor(FencingToken::try_from(i64::MAX).unwrap());
    let error = locks.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
}
