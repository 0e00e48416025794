//! What this process holds, without a request.

use lock_core::backend::Mode;
use lock_core::{HoldState, Locker, MemoryBackend, OwnHold, ReentryKey};
use tokio::time::{Instant, sleep};

use super::{TTL, scripted, seconds};

fn names(locks: &Locker) -> Vec<String> {
    let holds = locks.holds().unwrap();
    holds.iter().map(|hold| hold.name.as_str().to_owned()).collect()
}

fn only(locks: &Locker) -> OwnHold {
    let [hold] = <[OwnHold; 1]>::try_from(locks.holds().unwrap()).unwrap();
    hold
}

#[tokio::test(start_paused = true)]
async fn they_are_listed_from_the_grant_to_the_release_and_no_request_is_sent() {
    let (backend, locks) = scripted();
    assert_eq!(names(&locks), [""; 0]);
    let second = locks.lock("b").acquire().await.unwrap();
    let first = locks.rw_lock("a").read().acquire().await.unwrap();
    // Long enough for renewals.
    sleep(2 * TTL).await;
    assert!(!backend.sent().is_empty());
    let holds = locks.clone().holds().unwrap();
    assert_eq!(backend.sent(), []);
    let [a, b] = <[OwnHold; 2]>::try_from(holds).unwrap();
    assert_eq!((a.name.as_str(), a.mode, a.token), ("a", Mode::Shared, first.token()));
    assert_eq!(
        (b.name.as_str(), b.mode, b.token),
        ("b", Mode::Exclusive, second.token())
    );
    assert_eq!((b.held_for, b.valid_for), (2 * TTL, second.valid_for()));
    assert_eq!(
        (b.state, b.guards, b.label),
        (HoldState::Held, 1, second.options().label)
    );
    second.release().await.unwrap();
    assert_eq!(names(&locks), ["a"]);
    drop(first);
    assert_eq!(names(&locks), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_not_listed_and_not_that_of_another_locker() {
    let server = MemoryBackend::new();
    let (locks, others) = (Locker::new(server.clone()), Locker::new(server.clone()));
    let _guard = locks.lock("a").acquire().await.unwrap();
    let _other = others.lock("b").acquire().await.unwrap();
    assert_eq!(
        (names(&locks), names(&others)),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
    server.take_away("a").unwrap();
    assert_eq!(names(&locks), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn guards_that_share_a_hold_are_counted() {
    let (_backend, locks) = scripted();
    let key = ReentryKey::new();
    let lock = locks.lock("a").reentrant(&key);
    let one = lock.acquire().await.unwrap();
    let _other = lock.acquire().await.unwrap();
    assert_eq!(only(&locks).guards, 2);
    one.release().await.unwrap();
    assert_eq!(only(&locks).guards, 1);
}

#[tokio::test(start_paused = true)]
async fn who_gets_a_hold_from_another_caller_counts_from_then() {
    let (_backend, locks) = scripted();
    let lock = locks.lock("a");
    let first = lock.acquire().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    let started = Instant::now();
    sleep(seconds(1)).await;
    assert_eq!(first.held_for(), started.elapsed());
    first.release().await.unwrap();
    let next = next.await.unwrap();
    sleep(seconds(2)).await;
    assert_eq!((next.held_for(), only(&locks).held_for), (seconds(2), seconds(2)));
}
