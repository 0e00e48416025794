//! Many acquires that are cancelled while the server is silent.

use std::time::Duration;

use futures_util::FutureExt;
use lock_core::backend::DistributedLock;
use lock_core::{Locker, MemoryBackend};
use tokio::time::{Instant, sleep};

use super::{TTL, seconds};
use crate::scripted::{Answer, Request, Scripted};

/// Of a server whose answers are on their way for a moment.
fn distant() -> (Scripted, Locker) {
    let backend = Scripted::new(MemoryBackend::new().capabilities(), 1);
    let locks = Locker::new(backend.clone()).with_ttl(TTL);
    (backend, locks)
}

/// Each is dropped after it was sent.
fn cancel(locks: &Locker, count: usize) {
    for number in 0..count {
        let lock = locks.lock(format!("order/{number}"));
        assert!(lock.acquire().now_or_never().is_none(), "its answer is on its way");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_server_keeps_a_bounded_number_of_undos() {
    const MOST: usize = 10_000;
    let (backend, locks) = distant();
    backend.next(Request::Abandon, vec![Answer::Hang; 2 * MOST]);
    cancel(&locks, MOST + 500);
    sleep(seconds(5)).await;
    assert_eq!(backend.hung(), MOST, "they hang at the server");
    sleep(TTL).await;
    assert_eq!(backend.count(Request::Abandon), MOST, "the rest is never asked for");
    backend.clear();
    backend.let_go();
    locks.shutdown().await.expect("all that was kept is undone");
    for number in [0, MOST - 1, MOST, MOST + 499] {
        assert!(
            !backend.is_held(&format!("order/{number}")).await,
            "what was dropped has expired"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_waits_behind_few_undos() {
    const MOST_AT_ONCE: usize = 256;
    let (backend, locks) = distant();
    backend.next(Request::Abandon, vec![Answer::DoAfter(Duration::from_millis(10)); 1000]);
    cancel(&locks, 1000);
    sleep(Duration::from_millis(1)).await;
    backend.sent();
    assert_eq!(backend.count(Request::Abandon), MOST_AT_ONCE);
    let started = Instant::now();
    let _guard = locks.lock("live").acquire().await.expect("it is free");
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(backend.sent(), [Request::Acquire], "ahead of all other undos");
    sleep(Duration::from_millis(100)).await;
    assert_eq!(backend.count(Request::Abandon), 1000);
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_hangs_delays_the_others_for_a_moment() {
    let (backend, locks) = distant();
    backend.next(Request::Abandon, vec![Answer::Hang; 256]);
    cancel(&locks, 300);
    sleep(Duration::from_millis(99)).await;
    assert!(backend.is_held("order/299").await);
    sleep(Duration::from_millis(2)).await;
    assert!(!backend.is_held("order/299").await);
    assert_eq!(backend.hung(), 256);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_is_not_undone() {
    let (backend, locks) = distant();
    backend.next(Request::Acquire, vec![Answer::NotSent; 1000]);
    cancel(&locks, 1000);
    sleep(seconds(1)).await;
    assert_eq!(backend.count(Request::Abandon), 0);
    locks.shutdown().await.expect("nothing is left to do");
}
