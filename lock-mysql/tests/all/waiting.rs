//! Waiting for a row.

use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, DistributedLock};
use lock_core::{ErrorKind, HoldState};
use testbed::in_some_run;
use tokio::time::Instant;

use crate::support::*;

#[testbed::test]
async fn a_waiter_is_told_who_has_it_and_then_granted() {
    let fixture = Fixture::shared().await;
    let (backend, other, mut observer) = (fixture.backend(), fixture.backend(), fixture.observer().await);
    let granted = grant(&backend, "a", secs(30)).await;
    let (request, control) = options("a", secs(5)).start();
    let waiting = tokio::spawn({
        let (other, request) = (other.clone(), request.clone());
        async move { other.acquire(&request).await.unwrap() }
    });
    until("told", || async { request.last_busy().is_some() }).await;
    assert_eq!(request.last_busy().unwrap().holder.as_deref(), Some("tester"));
    until("waiting", async || observer.waiters().await > 0).await;
    // What it says when it is granted is what counts.
    control.set_terms(Terms::new(secs(20)).label("winner"));
    granted.release().await;
    let Attempt::Granted(hold, _) = soon("granted", waiting).await.unwrap() else {
        panic!("it is free");
    };
    assert!(hold.token() > granted.hold.token());
    assert!(request.lease().valid_for() > secs(10));
    let status = backend.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].label.as_deref(), Some("winner"));
}

#[testbed::test]
async fn a_waiter_outlasts_its_own_lock_wait_timeout() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let granted = grant(&backend, "a", secs(30)).await;
    // With a ttl of 1 s the server ends the statement after 1 s.
    let (request, _control) = options("a", secs(1)).start();
    let waiting = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move {
            loop {
                match backend.acquire(&request).await {
                    // Its answer took the ttl.
                    Err(error) if error.is_retryable() => {}
                    answer => return answer.unwrap(),
                }
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(!waiting.is_finished());
    granted.release().await;
    assert!(matches!(soon("granted", waiting).await.unwrap(), Attempt::Granted(..)));
}

#[testbed::test]
async fn a_waiter_that_gives_up_leaves_no_statement_behind() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let granted = grant(&backend, "a", secs(600)).await;
    // A busy machine may take longer to connect than it is to wait, or to hear the answer.
    let busy = in_some_run("the time passes without an answer", async || {
        backend.connect().await.unwrap();
        let terms = Terms::new(secs(600)).time_left(secs(3));
        let (request, _control) = RequestOptions::new(name("a"), terms).start();
        let started = Instant::now();
        let answer = soon("an answer", backend.acquire(&request)).await;
        if let Ok(answer) = &answer {
            assert!(started.elapsed() >= secs(3), "{answer:?}");
            assert_eq!(observer.waiters().await, 0);
        }
        backend.abandon(&request).await.unwrap();
        answer
    })
    .await;
    let Attempt::Busy(busy) = busy else {
        panic!("it is taken");
    };
    assert_eq!(busy.holder.as_deref(), Some("tester"));
    assert_eq!(observer.waiters().await, 0);
    granted.release().await;
    assert!(!observer.is_locked("a").await);
    try_once(&backend, "a").await.expect("it is free");
}

#[testbed::test]
async fn waits_that_time_out_keep_their_connection() {
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let _granted = grant(&fixture.backend(), "a", secs(600)).await;
    backend.connect().await.unwrap();
    // On a machine that stands still for a while, a wait may have to be ended from elsewhere.
    in_some_run("100 waits take too many connections, or have none", async || {
        let before = observer.counter("Connections").await;
        let mut unconnected = 0;
        for round in 0..100 {
            let terms = Terms::new(secs(60)).time_left(Duration::from_millis(20));
            let (request, _control) = RequestOptions::new(name("a"), terms).start();
            match soon("busy", backend.acquire(&request)).await {
                Ok(answer) => assert!(matches!(answer, Attempt::Busy(_)), "{answer:?}"),
                // The wait before had to be ended, and there was no time for another connection.
                Err(error) => {
                    assert!(error.is_not_executed() && error.is_retryable(), "{error:?}");
                    unconnected += 1;
                    backend.connect().await.unwrap();
                }
            }
            backend.abandon(&request).await.unwrap();
            assert_eq!(observer.waiters().await, 0, "after {round}");
        }
        let made = observer.counter("Connections").await - before;
        let few = made <= 40 && unconnected <= 15;
        few.then_some(())
            .ok_or(format!("{made} connections, {unconnected} without one"))
    })
    .await;
    // Which is clean.
    grant(&backend, "b", secs(60)).await.release().await;
    assert!(!observer.is_locked("b").await);
}

#[testbed::test]
async fn a_client_that_goes_away_while_it_waits_gets_nothing() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let granted = grant(&backend, "a", secs(30)).await;
    let config = fixture.config();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let gone = lock_mysql::RowLockBackend::new(config).unwrap();
    let (request, _control) = options("a", secs(2)).start();
    runtime.spawn(async move {
        let _ = gone.acquire(&request).await;
    });
    until("waiting", async || observer.waiters().await > 0).await;
    runtime.shutdown_background();
    granted.release().await;
    let next = soon("free", ask(&backend, options("a", secs(5)))).await.unwrap();
    assert_eq!(next.state(), HoldState::Held);
}

#[testbed::test]
async fn renewals_do_not_wait_for_a_free_connection() {
    let fixture = Fixture::shared().await;
    let config = fixture.config().with_max_connections(1);
    let backend = lock_mysql::RowLockBackend::new(config).unwrap();
    let granted = grant(&backend, "a", secs(10)).await;
    let (request, _control) = options("b", secs(10)).waits(false).start();
    let error = backend.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.is_retryable() && error.to_string().contains("max_connections"),
        "{error}"
    );
    let waiting = tokio::spawn({
        let backend = backend.clone();
        async move { ask(&backend, options("b", secs(10))).await }
    });
    tokio::task::yield_now().await;
    granted.hold.renew(secs(10)).await.unwrap();
    granted.release().await;
    soon("granted", waiting).await.unwrap().expect("a connection is free");
}

#[testbed::test]
async fn a_lost_hold_gives_its_connection_back_though_its_guard_lives() {
    let fixture = Fixture::shared().await;
    let config = fixture.config().with_max_connections(1);
    let backend = lock_mysql::RowLockBackend::new(config).unwrap();
    let granted = grant(&backend, "a", secs(10)).await;
    fixture.observer().await.kill_holder("a").await;
    let next = soon("granted", ask(&backend, options("b", secs(10)))).await.unwrap();
    assert!(matches!(granted.state(), HoldState::Lost(_)));
    next.release().await;
}
