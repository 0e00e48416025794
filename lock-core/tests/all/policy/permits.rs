//! Permits: several requests at the server at a time, until one of them waits there.

use std::time::Duration;

use lock_core::{ErrorKind, Guard, Lock, Locker, ReentryKey, Release, Result};
use tokio::time::{Instant, sleep};

use super::several_callers::{settle, status, waiting};
use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request, Scripted};

fn permits(locks: &Locker, take: u32, of: u32) -> Lock {
    locks.semaphore("a", of).permits(take)
}

async fn acquire(lock: Lock) -> Result<Guard> {
    lock.acquire().await
}

/// A locker of another process.
fn elsewhere(backend: &Scripted) -> Locker {
    Locker::new(backend.server().clone())
}

/// How many wait at the server.
async fn at_server(backend: &Scripted) -> usize {
    backend.waiting("a").await
}

#[tokio::test(start_paused = true)]
async fn sixteen_requests_are_at_the_server_at_a_time() {
    let (backend, locks) = scripted();
    backend.next(Request::Acquire, [Answer::DoThenHold; 40]);
    let mut tasks = Vec::new();
    for _ in 0..40 {
        tasks.push(waiting(acquire(permits(&locks, 1, 40))).await);
    }
    assert_eq!(backend.hung(), 16);
    backend.let_go();
    settle().await;
    assert_eq!((backend.hung(), backend.count(Request::Acquire)), (16, 32));
    backend.let_go();
    settle().await;
    backend.let_go();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap().unwrap());
    }
    let status = status(&backend).await;
    assert_eq!(status.holders.len(), 40, "each permit is a hold of its own");
    drop(guards);
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_closes_the_line_and_a_grant_opens_it() {
    let (backend, locks) = scripted();
    let others = elsewhere(&backend);
    let all = permits(&others, 3, 3).acquire().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(waiting(acquire(permits(&locks, 1, 3))).await);
    }
    assert_eq!((at_server(&backend).await, backend.sent()), (1, vec![Request::Acquire]));
    all.release().await.unwrap();
    settle().await;
    let done = tasks.iter().filter(|task| task.is_finished()).count();
    assert_eq!(
        (done, at_server(&backend).await),
        (3, 2),
        "all asked, and the line is closed again"
    );
    tasks.push(waiting(acquire(permits(&locks, 1, 3))).await);
    assert_eq!(at_server(&backend).await, 2);
    let mut guards = Vec::new();
    for task in tasks {
        let guard = task.await.unwrap().unwrap();
        guards.push(guard);
        if guards.len() == 3 {
            guards.clear();
        }
    }
    assert_eq!(at_server(&backend).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_place_passes_to_an_equal_request_and_is_given_up_before_another() {
    let (backend, locks) = scripted();
    let _all = permits(&elsewhere(&backend), 3, 3).acquire().await.unwrap();
    let first = waiting(acquire(permits(&locks, 1, 3))).await;
    let equal = waiting(acquire(permits(&locks, 1, 3))).await;
    let larger = waiting(acquire(permits(&locks, 2, 3))).await;
    let last = waiting(acquire(permits(&locks, 1, 3))).await;
    backend.sent();
    first.abort();
    settle().await;
    assert_eq!(
        (backend.sent(), at_server(&backend).await),
        (vec![], 1),
        "it is the next one's"
    );
    equal.abort();
    settle().await;
    assert_eq!(
        backend.sent(),
        [Request::Abandon, Request::Acquire, Request::Acquire],
        "opened by the cancel"
    );
    let _behind = waiting(acquire(permits(&locks, 1, 3))).await;
    assert_eq!(at_server(&backend).await, 2, "and closed by the next ones");
    larger.abort();
    last.abort();
    locks.shutdown().await.unwrap();
    assert_eq!(at_server(&backend).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_place_outlives_the_time_of_its_owner() {
    let (backend, locks) = scripted();
    let others = elsewhere(&backend);
    let all = permits(&others, 3, 3).acquire().await.unwrap();
    let short = permits(&locks, 1, 3);
    let short = waiting(async move { short.acquire_within(seconds(1)).await }).await;
    let patient = waiting(acquire(permits(&locks, 1, 3))).await;
    // Another process waits behind ours.
    let rival = waiting(acquire(permits(&others, 3, 3))).await;
    assert!(short.await.unwrap().unwrap_err().is_timed_out());
    settle().await;
    all.release().await.unwrap();
    let guard = patient.await.unwrap().unwrap();
    assert!(!rival.is_finished());
    guard.release().await.unwrap();
    assert!(rival.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_error_opens_the_line() {
    let (backend, locks) = scripted();
    let others = elsewhere(&backend);
    let all = permits(&others, 3, 3).acquire().await.unwrap();
    backend.next(Request::Acquire, [Answer::ArmsAnotherLease]);
    let first = waiting(acquire(permits(&locks, 1, 3))).await;
    let second = waiting(acquire(permits(&locks, 1, 3))).await;
    all.release().await.unwrap();
    assert_eq!(first.await.unwrap().unwrap_err().kind(), ErrorKind::Unexpected);
    let guard = second.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn while_the_server_is_away_one_request_asks_for_all_that_wait() {
    let (backend, locks) = scripted();
    let all = permits(&elsewhere(&backend), 1, 1).acquire().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(waiting(acquire(permits(&locks, 1, 1))).await);
    }
    let short = permits(&locks, 1, 1);
    let short = waiting(async move { short.acquire_within(seconds(2)).await }).await;
    backend.sent();
    backend.server().set_available(false);
    sleep(seconds(1)).await;
    let sent = backend.sent();
    assert!(sent.len() < 40, "{} requests in a second", sent.len());
    let tried = permits(&locks, 1, 1).try_acquire().await.unwrap_err();
    assert_eq!(tried.kind(), ErrorKind::Unavailable);
    assert_eq!(short.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    backend.server().set_available(true);
    all.release().await.unwrap();
    for task in tasks {
        drop(task.await.unwrap().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_is_busy_behind_a_request_that_waits_and_asks_beside_holds() {
    let (backend, locks) = scripted();
    let first = permits(&locks, 2, 3).acquire().await.unwrap();
    let second = permits(&locks, 1, 3).try_acquire().await.unwrap().expect("one is left");
    assert!(permits(&locks, 1, 3).try_acquire().await.unwrap().is_none());
    drop(second);
    // What is left is not enough, and whoever comes later waits behind.
    let large = waiting(acquire(permits(&locks, 3, 3))).await;
    backend.sent();
    assert!(permits(&locks, 1, 3).try_acquire().await.unwrap().is_none());
    assert_eq!(backend.sent(), [], "the process knows");
    let error = permits(&locks, 1, 3).acquire_within(Duration::ZERO).await.unwrap_err();
    assert!(error.is_timed_out() && error.holder().is_some(), "{error}");
    drop(first);
    assert!(large.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refused_try_says_nothing_of_fewer_permits() {
    let (backend, locks) = scripted();
    let _two = permits(&elsewhere(&backend), 2, 3).acquire().await.unwrap();
    backend.next(Request::Acquire, [Answer::DoThenWait(seconds(1))]);
    let (large, small) = (permits(&locks, 2, 3), permits(&locks, 1, 3));
    let (large, small) = tokio::join!(large.try_acquire(), small.try_acquire());
    assert!(large.unwrap().is_none());
    assert!(small.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_the_line_learns_who_holds_or_that_nobody_answers() {
    let (backend, locks) = scripted();
    let others = elsewhere(&backend).with_label("elsewhere");
    let all = permits(&others, 1, 1).acquire().await.unwrap();
    let _first = waiting(acquire(permits(&locks, 1, 1))).await;
    let error = permits(&locks, 1, 1).acquire_within(seconds(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("elsewhere")));
    all.release().await.unwrap();
    settle().await;
    // Sixteen requests, and no answer.
    backend.next(Request::Acquire, [Answer::Hang; 16]);
    let mut tasks = Vec::new();
    for _ in 0..16 {
        tasks.push(waiting(acquire(permits(&locks, 1, 1))).await);
    }
    let error = permits(&locks, 1, 1).acquire_within(seconds(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn each_permit_is_renewed_and_released_by_itself() {
    let (backend, locks) = scripted();
    let kept = permits(&locks, 1, 2).acquire().await.unwrap();
    let fixed = permits(&locks, 1, 2).fixed_lease().acquire().await.unwrap();
    let started = Instant::now();
    let next = permits(&locks, 1, 2).acquire().await.unwrap();
    assert!(started.elapsed() <= TTL, "{:?}", started.elapsed());
    assert!(fixed.check().is_err() && kept.check().is_ok());
    assert!(next.token() > fixed.token() && fixed.token() > kept.token());
    drop((kept, next));
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn permits_have_no_key() {
    let (_, locks) = scripted();
    let lock = permits(&locks, 1, 2).reentrant(&ReentryKey::new());
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Misconfigured);
}
