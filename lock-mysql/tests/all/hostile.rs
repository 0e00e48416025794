//! Servers whose settings change what statements mean and how long transactions live.

use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, DistributedLock, ReleaseOutcome};
use lock_core::{HoldState, Locker};
use tokio::time::timeout;

use crate::support::*;

/// A server on which everything that can be set otherwise is.
async fn hostile() -> Fixture {
    let fixture = Fixture::own_with([
        "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
        "--autocommit=0",
        "--transaction-isolation=SERIALIZABLE",
        "--default-time-zone=+05:30",
        "--lower-case-table-names=1",
        "--innodb-rollback-on-timeout=ON",
        "--loose-max-statement-time=1",
        "--loose-max-execution-time=1000",
        "--loose-idle-transaction-timeout=2",
        "--loose-idle-write-transaction-timeout=2",
        "--loose-idle-readonly-transaction-timeout=2",
    ])
    .await;
    let mut observer = fixture.observer().await;
    observer
        .run("SET GLOBAL completion_type=1; SET GLOBAL TRANSACTION READ ONLY")
        .await;
    fixture
}

/// Its transactions are short, and write.
async fn observer(fixture: &Fixture) -> Observer {
    let mut observer = fixture.observer().await;
    observer
        .run("SET SESSION TRANSACTION READ WRITE;SET SESSION autocommit=1,completion_type=0;COMMIT")
        .await;
    observer
}

#[testbed::test]
async fn a_hold_is_what_it_is_everywhere() {
    let fixture = hostile().await;
    let (backend, mut observer) = (fixture.backend(), observer(&fixture).await);
    backend.connect().await.unwrap();
    let granted = grant(&backend, "a'\\\"\0Ö", secs(30)).await;
    let busy = try_once(&fixture.backend(), "a'\\\"\0Ö").await.unwrap_err();
    assert_eq!(busy.holder.as_deref(), Some("tester"));
    // Longer than transactions may be idle there, and statements may take.
    let (request, _control) = options("a'\\\"\0Ö", secs(30)).start();
    let other = fixture.backend();
    let waiting = other.acquire(&request);
    tokio::pin!(waiting);
    assert!(timeout(secs(5), &mut waiting).await.is_err());
    assert_eq!(granted.state(), HoldState::Held);
    assert!(observer.is_locked("a'\\\"\0Ö").await);
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    let Attempt::Granted(next, _) = soon("granted", waiting).await.unwrap() else {
        panic!("it is free");
    };
    assert!(next.token() > granted.hold.token());
    // The next waiter's time is up, and the one after that finds a clean connection.
    let terms = Terms::new(secs(30)).time_left(Duration::from_millis(300));
    let (request, _control) = RequestOptions::new(name("a'\\\"\0Ö"), terms).start();
    assert!(matches!(backend.acquire(&request).await.unwrap(), Attempt::Busy(_)));
    grant(&backend, "b", secs(30)).await.release().await;
    assert!(!observer.is_locked("b").await);
}

#[testbed::test]
async fn a_release_after_a_kill_says_so_everywhere() {
    let fixture = hostile().await;
    let (backend, mut observer) = (fixture.backend(), observer(&fixture).await);
    for _ in 0..5 {
        let granted = soon("free", ask(&backend, options("a", secs(60)))).await.unwrap();
        observer.kill_holder("a").await;
        // Without a pause, so that the release comes right after it.
        soon("unlocked", async {
            while observer.is_locked("a").await {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    }
}

#[testbed::test]
async fn a_guard_is_kept_everywhere() {
    let fixture = hostile().await;
    let locks = Locker::new(fixture.backend());
    let guard = locks.lock("a").ttl(secs(9)).acquire().await.unwrap();
    let lost = timeout(secs(10), guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    guard.release().await.unwrap();
}
