//! Several callers of a name in one process: the shared request at the server, and who asks next.

use std::time::Duration;

use lock_core::backend::LockStatus;
use lock_core::{Guard, HoldState, Locker, Release, Result};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request, Scripted};

pub(super) async fn status(backend: &Scripted) -> LockStatus {
    backend.status_of("a").await
}

async fn label(backend: &Scripted) -> Option<String> {
    let status = status(backend).await;
    status.holders.first()?.label.as_deref().map(str::to_owned)
}

/// Waits in a task of its own, and has begun to.
pub(super) async fn waiting(
    acquire: impl Future<Output = Result<Guard>> + Send + 'static,
) -> JoinHandle<Result<Guard>> {
    let waiting = tokio::spawn(acquire);
    settle().await;
    waiting
}

/// Until all tasks wait for something.
pub(super) async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

pub(super) fn acquire(locks: &Locker, label: &'static str) -> impl Future<Output = Result<Guard>> + Send + use<> {
    let lock = locks.lock("a").label(label);
    async move { lock.acquire().await }
}

fn acquire_within(locks: &Locker, label: &'static str, limit: Duration) -> impl Future<Output = Result<Guard>> + use<> {
    let lock = locks.lock("a").label(label);
    async move { lock.acquire_within(limit).await }
}

#[tokio::test(start_paused = true)]
async fn local_waiters_share_one_request() {
    let (backend, locks) = scripted();
    let elsewhere = Locker::new(backend.server().clone());
    let held = elsewhere.lock("a").acquire().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..100 {
        tasks.push(waiting(acquire(&locks, "us")).await);
    }
    assert_eq!(status(&backend).await.waiting, Some(1));
    assert_eq!(backend.sent(), [Request::Acquire]);
    held.release().await.unwrap();
    let mut last = None;
    for task in tasks {
        let guard = task.await.unwrap().unwrap();
        assert!(last.replace(guard.token()) < Some(guard.token()));
        guard.release().await.unwrap();
    }
    assert!(!status(&backend).await.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_request_outlives_its_first_owner() {
    let (backend, locks) = scripted();
    let elsewhere = Locker::new(backend.server().clone());
    let held = elsewhere.lock("a").acquire().await.unwrap();
    let short = waiting(acquire_within(&locks, "short", seconds(1))).await;
    let cancelled = waiting(acquire(&locks, "cancelled")).await;
    let heir = waiting(acquire(&locks, "heir")).await;
    let rival = waiting(acquire(&Locker::new(backend.server().clone()), "rival")).await;
    assert!(short.await.unwrap().unwrap_err().is_timed_out());
    cancelled.abort();
    settle().await;
    assert_eq!(status(&backend).await.waiting, Some(2));
    assert_eq!(backend.sent(), [Request::Acquire], "the same request goes on");

    held.release().await.unwrap();
    let guard = heir.await.unwrap().unwrap();
    assert_eq!(label(&backend).await.as_deref(), Some("heir"), "the winner's own terms");
    assert_eq!(backend.sent(), [], "which went with the grant");
    guard.release().await.unwrap();
    assert!(rival.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_queue_entry_is_worth_more_than_a_label() {
    let (backend, locks) = scripted();
    backend.next(Request::Acquire, [Answer::DoThenHold]);
    let gone = waiting(acquire(&locks, "gone")).await;
    let lock = locks.lock("a").ttl(TTL * 2).label("heir");
    let heir = waiting(async move { lock.acquire().await }).await;
    gone.abort();
    settle().await;
    backend.let_go();
    let guard = heir.await.unwrap().unwrap();
    settle().await;
    assert_eq!(backend.sent(), [Request::Acquire, Request::Renew]);
    assert_eq!(label(&backend).await.as_deref(), Some("gone"));
    assert_eq!(guard.valid_for(), (TTL * 2).mul_f64(0.9), "its own ttl");
}

/// Tokio makes a task wait that has done much at once, such as the keeper: no turn is passed on before its release was
/// sent. On a runtime of several threads, where whoever is woken may run before that task goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn of_many_releases_each_is_sent_before_the_next_acquire() {
    let on_the_worker = tokio::spawn(async {
        let (backend, locks) = scripted();
        // Of so long a ttl that nothing is renewed, however slow the machine is.
        let locks = locks.with_passes(0).with_ttl(seconds(3600));
        let (mut guards, mut next) = (Vec::new(), Vec::new());
        for number in 0..100 {
            let lock = locks.lock(number.to_string());
            guards.push(lock.acquire().await.unwrap());
            next.push(waiting(async move { lock.acquire().await }).await);
        }
        assert_eq!(backend.sent(), [Request::Acquire; 100]);
        drop(guards);
        for next in next {
            drop(next.await.unwrap().unwrap());
        }
        backend.sent()
    });
    let (mut released, mut acquired) = (0, 0);
    for sent in on_the_worker.await.unwrap() {
        match sent {
            Request::Release => released += 1,
            Request::Acquire => acquired += 1,
            other => panic!("{other:?}"),
        }
        assert!(acquired <= released, "an acquire has overtaken a release");
    }
    assert_eq!(acquired, 100);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_waiters_is_undone() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("a", seconds(600)).unwrap();
    let first = waiting(acquire(&locks, "first")).await;
    let second = waiting(acquire_within(&locks, "second", seconds(1))).await;
    first.abort();
    assert!(second.await.unwrap().unwrap_err().is_timed_out());
    settle().await;
    assert_eq!(status(&backend).await.waiting, Some(0));
    assert_eq!(backend.sent(), [Request::Acquire, Request::Abandon]);
}

#[tokio::test(start_paused = true)]
async fn after_a_release_the_next_waiter_asks() {
    let (backend, locks) = scripted();
    let guard = acquire(&locks, "first").await.unwrap();
    let next = waiting(acquire(&locks, "next")).await;
    backend.sent();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = next.await.unwrap().unwrap();
    assert_eq!(backend.sent(), [Request::Release, Request::Acquire]);
    assert_eq!(label(&backend).await.as_deref(), Some("next"));
    assert_eq!(next.valid_for(), TTL.mul_f64(0.9));
    sleep(seconds(60)).await;
    assert_eq!(next.state(), HoldState::Held, "renewed like any other");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_released_before_the_next_acquire_is_sent() {
    let (backend, locks) = scripted();
    let guard = acquire(&locks, "first").await.unwrap();
    let token = guard.token();
    backend.sent();
    drop(guard);
    let next = acquire(&locks, "next").await.unwrap();
    assert!(next.token() > token);
    assert_eq!(backend.sent(), [Request::Release, Request::Acquire]);
}

#[tokio::test(start_paused = true)]
async fn an_acquire_follows_its_process_s_release_at_once() {
    let (backend, locks) = scripted();
    let guard = acquire(&locks, "first").await.unwrap();
    backend.next(Request::Release, [Answer::DoThenHold]);
    let releasing = tokio::spawn(guard.release());
    settle().await;
    assert_eq!(backend.hung(), 1);
    let next = acquire(&locks, "next").await.unwrap();
    backend.let_go();
    assert!(releasing.await.unwrap().is_ok());
    assert_eq!(next.state(), HoldState::Held);
}
