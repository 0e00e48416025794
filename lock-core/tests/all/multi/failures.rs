//! Servers that fail, and holds that are lost, while several locks are acquired.

use std::time::Duration;

use lock_core::{ErrorKind, HoldState, acquire_all, acquire_all_within, try_acquire_all};
use tokio::time::{Instant, sleep};

use super::{scripted, seconds, settle};
use crate::scripted::{Answer, Request};

/// A server that is silent for most of the time is told as that.
#[tokio::test(start_paused = true)]
async fn a_silent_server_is_no_lock_that_is_taken() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("b", seconds(600)).unwrap();
    let both = || ["a", "b"].map(|name| locks.lock(name));
    assert!(try_acquire_all(both()).await.unwrap().is_none());
    backend.next(Request::Acquire, [Answer::Hang; 5]);
    let error = acquire_all_within(both(), seconds(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("did not answer within 1s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_takes_the_limit_and_no_longer() {
    let (backend, locks) = scripted();
    let (silent, others) = scripted();
    silent.next(Request::Acquire, [Answer::Hang]);
    let began = Instant::now();
    let error = acquire_all_within([locks.lock("a"), others.lock("b")], seconds(2))
        .await
        .unwrap_err();
    assert_eq!(began.elapsed(), seconds(2));
    assert_eq!(
        (error.kind(), error.name().unwrap().as_str()),
        (ErrorKind::Unavailable, "b")
    );
    settle().await;
    assert!(!backend.is_held("a").await);
    silent.let_go();
    others.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_member_is_named() {
    for kind in 0..3 {
        let (backend, locks) = scripted();
        let (refusing, others) = scripted();
        refusing.next(Request::Acquire, [Answer::Deny]);
        let both = [locks.lock("b"), others.lock("a")];
        let error = match kind {
            0 => acquire_all(both).await.unwrap_err(),
            1 => acquire_all_within(both, Duration::ZERO).await.unwrap_err(),
            _ => try_acquire_all(both).await.unwrap_err(),
        };
        assert_eq!((error.kind(), error.name().unwrap().as_str()), (ErrorKind::Denied, "a"));
        assert!(!backend.is_held("b").await, "it waited for the release");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_through() {
    let (backend, locks) = scripted();
    locks.connect().await.unwrap();
    backend.next(Request::Acquire, [Answer::Fail, Answer::Fail, Answer::Fail]);
    let both = acquire_all([locks.lock("a"), locks.lock("b")]).await.unwrap();
    both.release().await.unwrap();
    backend.next(Request::Acquire, [Answer::Fail]);
    let error = try_acquire_all([locks.lock("a"), locks.lock("b")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await && !backend.is_held("b").await);
}

#[tokio::test(start_paused = true)]
async fn a_loss_while_waiting_starts_over() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("b", seconds(20)).unwrap();
    let all = tokio::spawn(acquire_all_within([locks.lock("a"), locks.lock("b")], seconds(30)));
    settle().await;
    let first = backend.status_of("a").await.holders[0].token.unwrap();
    backend.server().take_away("a").unwrap();
    sleep(seconds(1)).await;
    let again = backend.status_of("a").await.holders[0].token.unwrap();
    assert!(again > first, "it holds the first one anew");
    assert_eq!(backend.waiting("b").await, 1);
    let all = all.await.unwrap().unwrap();
    assert_eq!(all.tokens().next(), Some(again));
    assert_eq!(all.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn starting_over_ends_with_the_limit() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("b", seconds(600)).unwrap();
    let began = Instant::now();
    // Never renewed: lost every 900 ms.
    let short = locks.lock("a").ttl(seconds(1)).fixed_lease();
    let error = acquire_all_within([short, locks.lock("b")], seconds(10))
        .await
        .unwrap_err();
    assert_eq!((error.kind(), began.elapsed()), (ErrorKind::TimedOut, seconds(10)));
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
    assert_eq!(backend.waiting("b").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_loss_at_the_end_of_the_limit_is_no_outage() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("b", seconds(600)).unwrap();
    let began = Instant::now();
    // Never renewed: lost after 9,990 ms, which is less than a pause before the limit.
    let short = locks.lock("a").ttl(Duration::from_millis(11_100)).fixed_lease();
    let all = tokio::spawn(acquire_all_within([short, locks.lock("b")], seconds(10)));
    sleep(seconds(5)).await;
    backend.next(Request::Acquire, [Answer::DoAfter(seconds(1)); 4]);
    let error = all.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), began.elapsed()), (ErrorKind::TimedOut, seconds(10)));
    backend.clear();
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn a_loss_in_an_outage_is_an_outage() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("c", seconds(600)).unwrap();
    let began = Instant::now();
    // The first one is lost unless it is renewed every 3 s.
    let [short, long] = [("a", 3), ("b", 60)].map(|(name, ttl)| locks.lock(name).ttl(seconds(ttl)));
    let all = tokio::spawn(acquire_all_within([short, long, locks.lock("c")], seconds(10)));
    sleep(seconds(7)).await;
    for request in [Request::Acquire, Request::Renew, Request::Release] {
        backend.next(request, [Answer::Hang; 20]);
    }
    let error = all.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), began.elapsed()), (ErrorKind::Unavailable, seconds(10)));
    backend.clear();
    backend.let_go();
}
