//! What happens to locks, good and bad.

use std::time::Duration;

use futures_util::FutureExt;
use lock_core::backend::{DistributedLock, ListFrom, Revoke, Revoked};
use lock_core::{ErrorKind, Guard, Locker, LostCause, MemoryBackend};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::scripted::{Answer, Pass, Request, Scripted};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What a lock or a holder is called, as part of its whole name.
pub(crate) type Called = fn(&str) -> String;

/// Everything that is counted happens once, or twice.
pub(crate) async fn an_eventful_life(called: Called) {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone()).without_label().with_ttl(seconds(9));
    let elsewhere = Locker::new(server.clone()).with_label(called("elsewhere"));

    // Acquired, renewed once, released for the next one, released.
    let first = locks
        .lock(called("a"))
        .label(called("worker 7"))
        .acquire()
        .await
        .unwrap();
    let next = acquire(&locks, &called("a"));
    sleep(seconds(4)).await;
    assert!(locks.lock(called("a")).try_acquire().await.unwrap().is_none());
    first.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();

    // Taken elsewhere: timed out, and its place abandoned.
    let taken = elsewhere.lock(called("b")).fixed_lease().acquire().await.unwrap();
    let waited = locks.lock(called("b")).acquire_within(seconds(1)).await;
    assert!(waited.unwrap_err().is_timed_out());
    while locks.status(called("b")).await.unwrap().waiting != Some(0) {
        yield_now().await;
    }
    drop(taken);
    elsewhere.shutdown().await.unwrap();

    // A renewal fails, and the next one finds the lock taken away.
    let lost = locks.lock(called("c")).acquire().await.unwrap();
    server.set_available(false);
    sleep(Duration::from_millis(3001)).await;
    server.take_away(called("c")).unwrap();
    lost.lost().await;
    yield_now().await;
    server.set_available(true);
    drop(lost);
    locks.shutdown().await.unwrap();
}

/// What else can happen, does.
pub(crate) async fn a_life_of_trouble(called: Called) {
    let server = Scripted::default();
    let locks = Locker::new(server.clone()).with_ttl(seconds(9));
    acquires(&server, &locks, called).await;
    for pass in [Pass::AsItIs, Pass::Panic] {
        server.pass(pass);
        let guard = locks.lock(called("passed on")).acquire().await.unwrap();
        let next = acquire(&locks, &called("passed on"));
        sleep(seconds(1)).await;
        guard.release().await.unwrap();
        next.await.unwrap().release().await.unwrap();
    }
    server.pass(Pass::Never);
    for answer in [Answer::NotHeld, Answer::Fail] {
        let guard = locks.lock(called("a")).acquire().await.unwrap();
        let next = acquire(&locks, &called("a"));
        sleep(seconds(1)).await;
        server.next(Request::Release, [answer]);
        assert_eq!(guard.release().await.is_err(), answer == Answer::NotHeld);
        next.await.unwrap().release().await.unwrap();
    }
    let mut guard = locks.rw_lock(called("a")).upgradable().acquire().await.unwrap();
    guard.upgrade().await.unwrap();
    guard.downgrade().await.unwrap();
    guard.release().await.unwrap();
    let few = locks.semaphore(called("s"), 2).permits(1).acquire().await.unwrap();
    let many = locks.semaphore(called("s"), 3).permits(1).acquire().await.unwrap();
    few.release().await.unwrap();
    many.release().await.unwrap();
    elections(&server, &locks, called).await;
    renewals(&server, &locks, called).await;
    releases(&server, &locks, called).await;
    locks.shutdown().await.unwrap();
}

async fn acquires(server: &Scripted, locks: &Locker, called: Called) {
    let lock = locks.lock(called("a"));
    for (answer, kind) in [
        (Answer::Fail, ErrorKind::Unavailable),
        (Answer::Deny, ErrorKind::Denied),
    ] {
        server.next(Request::Acquire, [answer]);
        assert_eq!(lock.acquire().await.unwrap_err().kind(), kind);
    }
    // The server has answered by now.
    let guard = lock.acquire().await.unwrap();
    guard.release().await.unwrap();
    server.next(Request::Acquire, [Answer::Fail]);
    lock.acquire().await.unwrap().release().await.unwrap();
    // Cancelled, and not undone.
    server.next(Request::Acquire, [Answer::FailAfter(seconds(2))]);
    assert!(timeout(seconds(1), lock.acquire()).await.is_err());
    server.next(Request::Abandon, [Answer::Deny]);
}

async fn elections(server: &Scripted, locks: &Locker, called: Called) {
    let election = locks.election(called("leader")).measured();
    election.campaign().await.unwrap().resign().await.unwrap();
    let term = election.campaign().await.unwrap();
    server.last_request().lease().lose(LostCause::NotHeld);
    drop(term);
}

async fn renewals(server: &Scripted, locks: &Locker, called: Called) {
    let lock = locks.lock(called("b"));
    server.next(Request::Renew, [Answer::Panic]);
    let guard = lock.acquire().await.unwrap();
    sleep(seconds(4)).await;
    guard.release().await.unwrap();

    server.next(Request::Renew, [Answer::NotHeld]);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.lost().await.cause(), LostCause::NotHeld);

    server.next(Request::Renew, [Answer::Hang; 4]);
    let guard = locks.lock(called("c")).acquire().await.unwrap();
    assert_eq!(guard.lost().await.cause(), LostCause::Expired);

    for (name, cause) in [("d", LostCause::Disconnected), ("r", LostCause::ReadOnly)] {
        let guard = locks.lock(called(name)).acquire().await.unwrap();
        server.last_request().lease().lose(cause);
        assert_eq!(guard.lost().await.cause(), cause);
    }
    let guard = locks
        .lock(called("m"))
        .hold_at_most(seconds(1))
        .acquire()
        .await
        .unwrap();
    assert_eq!(guard.lost().await.cause(), LostCause::MaximumHold);
}

async fn releases(server: &Scripted, locks: &Locker, called: Called) {
    let guard = locks.lock(called("e")).acquire().await.unwrap();
    server.next(Request::Release, [Answer::Fail]);
    guard.release().await.unwrap();
    let guard = locks.lock(called("e")).acquire().await.unwrap();
    server.next(Request::Release, [Answer::Deny]);
    drop(guard);
}

/// More acquires are cancelled than a hung server lets core undo.
pub(crate) async fn a_life_of_haste() {
    let server = Scripted::new(MemoryBackend::new().capabilities(), 1);
    let locks = Locker::new(server.clone()).with_ttl(seconds(9));
    server.next(Request::Abandon, vec![Answer::Hang; 20_000]);
    for number in 0..=10_000 {
        let lock = locks.lock(format!("order/{number}"));
        assert!(lock.acquire().now_or_never().is_none(), "its answer is on its way");
    }
    sleep(seconds(5)).await;
    server.clear();
    server.let_go();
    locks.shutdown().await.unwrap();
}

/// An operator looks at the locks of others, and ends one.
pub(crate) async fn an_operators_life(called: Called) {
    let server = MemoryBackend::new();
    let (locks, operator) = (Locker::new(server.clone()), Locker::new(server));
    let guard = locks.lock(called("o")).acquire().await.unwrap();
    assert_eq!(operator.list(&ListFrom::all(), 10).await.unwrap().names.len(), 1);
    let revoked = operator.revoke(called("o"), guard.token(), Revoke::Now).await.unwrap();
    assert!(matches!(revoked, Revoked::Done { .. }), "{revoked:?}");
    assert_eq!(guard.lost().await.cause(), LostCause::Revoked);
    drop(guard);
    locks.shutdown().await.unwrap();
}

/// Begins to.
fn acquire(locks: &Locker, name: &str) -> impl Future<Output = lock_core::Result<Guard>> + use<> {
    let lock = locks.lock(name);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    async { acquiring.await.unwrap() }
}
