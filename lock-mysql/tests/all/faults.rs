//! Servers and networks that fail.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Hold, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{ErrorKind, HoldState};
use lock_mysql::RowLockBackend;
use sqlx::Connection;
use sqlx::mysql::{MySqlConnection, MySqlDatabaseError};
use tokio::time::timeout;

use crate::support::proxy::Proxy;
use crate::support::*;

/// A client that waits a shorter time for an answer than others. On a busy machine the server may not answer in time:
/// then it is to be asked again.
fn impatient(proxy: &Proxy, fixture: &Fixture) -> RowLockBackend {
    proxy.impatient(fixture, Duration::from_millis(1500))
}

/// A grant of a free name, however often it takes an answer.
async fn granted(backend: &RowLockBackend, request: &AcquireRequest) -> Arc<dyn Hold> {
    match insist("granted", async || backend.acquire(request).await).await {
        Attempt::Granted(hold, _) => hold,
        other => panic!("{other:?}"),
    }
}

#[testbed::test]
async fn a_killed_server_is_noticed_and_a_restarted_one_used() {
    let fixture = Fixture::own().await;
    let backend = fixture.backend();
    let held = grant(&backend, "a", secs(60)).await;
    // Idle connections that break as well.
    let (b, c) = (
        grant(&backend, "b", secs(60)).await,
        grant(&backend, "c", secs(60)).await,
    );
    b.release().await;
    c.release().await;
    fixture.server.kill().unwrap();
    soon("lost", held.request.lease().ended()).await;
    assert!(matches!(held.state(), HoldState::Lost(_)));
    let (request, _control) = options("b", secs(10)).waits(false).start();
    let error = soon("unavailable", backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_retryable());
    let error = soon("unavailable", backend.abandon(&request)).await;
    fixture.server.restart().await.unwrap();
    if error.is_err() {
        backend.abandon(&request).await.unwrap();
    }
    let next = grant(&backend, "a", secs(10)).await;
    assert!(next.token() > held.token());
    assert_eq!(next.release().await, ReleaseOutcome::Released);
}

#[testbed::test]
async fn a_server_that_lost_its_data_goes_on_with_larger_tokens() {
    let fixture = Fixture::own().await;
    let backend = fixture.backend();
    let before = grant(&backend, "a", secs(60)).await;
    before.release().await;
    fixture.server.restart_without_data().await.unwrap();
    let after = grant(&backend, "a", secs(60)).await;
    assert!(after.token() > before.token());
}

#[testbed::test]
async fn a_waiter_learns_of_a_killed_server_at_once() {
    let fixture = Fixture::own().await;
    let (backend, other) = (fixture.backend(), fixture.backend());
    let _held = grant(&backend, "a", secs(60)).await;
    let (request, _control) = options("a", secs(60)).start();
    let waiting = tokio::spawn({
        let (other, request) = (other.clone(), request.clone());
        async move { other.acquire(&request).await }
    });
    until("told", || async { request.last_busy().is_some() }).await;
    fixture.server.kill().unwrap();
    let error = soon("unavailable", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    fixture.server.restart().await.unwrap();
    // The same request once more.
    assert!(matches!(other.acquire(&request).await.unwrap(), Attempt::Granted(..)));
}

#[testbed::test]
async fn a_hold_outlives_a_paused_server() {
    let fixture = Fixture::own().await;
    let backend = RowLockBackend::new(fixture.config().with_response_timeout(secs(3))).unwrap();
    let granted = grant(&backend, "a", secs(60)).await;
    fixture.server.pause().unwrap();
    // The signal takes a moment.
    while timeout(Duration::from_millis(300), granted.hold.renew(secs(60)))
        .await
        .is_ok()
    {}
    let unanswered = granted.hold.renew(secs(60));
    tokio::pin!(unanswered);
    // Longer than the response timeout: a renewal is waited for as long as the hold may live.
    assert!(timeout(secs(4), &mut unanswered).await.is_err());
    assert_eq!(granted.state(), HoldState::Held);
    fixture.server.resume().unwrap();
    assert!(matches!(unanswered.await.unwrap(), Renewal::Renewed(_)));
    assert_eq!(granted.state(), HoldState::Held);
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
}

#[testbed::test]
async fn cut_off_in_silence_the_hold_is_lost_by_the_clock_and_free_at_the_server() {
    let fixture = Fixture::shared().await;
    let (backend, proxy) = (fixture.backend(), Proxy::of(&fixture).await);
    let through = proxy.backend(&fixture);
    let granted = grant_in_the_end(&through, "a", secs(2)).await;
    proxy.stall();
    let next = tokio::spawn({
        let backend = backend.clone();
        async move { ask(&backend, options("a", secs(10))).await.unwrap() }
    });
    soon("lost", granted.request.lease().ended()).await;
    let next = soon("granted", next).await.unwrap();
    assert!(next.token() > granted.token());
    proxy.heal();
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    assert_eq!(next.release().await, ReleaseOutcome::Released);
}

/// Such a number may be a stranger's by the time it is killed.
#[testbed::test]
async fn no_connection_is_killed_by_a_number_that_was_read_before() {
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let _granted = grant(&backend, "a", secs(60)).await;
    let (request, _control) = options("a", secs(60)).start();
    let waiting = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { backend.acquire(&request).await }
    });
    until("waiting", async || observer.waiters().await > 0).await;
    observer
        .run("SET GLOBAL log_output='TABLE', GLOBAL general_log=1")
        .await;
    // The server does not notice by itself that the client of a waiting statement has gone.
    backend.abandon(&request).await.unwrap();
    assert_eq!(observer.waiters().await, 0);
    soon("ended", waiting).await.unwrap().unwrap_err();
    let logged = "SELECT COUNT(*) FROM mysql.general_log WHERE argument";
    let kills = observer.number(&format!("{logged} LIKE 'KILL%'")).await;
    let found = observer.number(&format!("{logged} LIKE 'KILL%IS_USED_LOCK(%'")).await;
    assert!(kills > 0 && kills == found, "{found} of {kills}");
}

/// What the clean-up relies on: KILL of a named lock that nobody has is refused, and ends nobody.
#[testbed::test]
async fn a_kill_by_a_named_lock_that_nobody_has_ends_nobody() {
    let fixture = Fixture::shared().await;
    let mut connection = MySqlConnection::connect(&fixture.server.url()).await.unwrap();
    let kill = sqlx::raw_sql("KILL CONNECTION IS_USED_LOCK('polylock:nobody')");
    let refused = kill.execute(&mut connection).await.unwrap_err();
    let refused = refused.into_database_error().expect("an error of the server's");
    assert_eq!(refused.downcast_ref::<MySqlDatabaseError>().number(), 1094, "{refused}");
    connection.ping().await.unwrap();
}

#[testbed::test]
async fn a_release_whose_answer_is_lost_can_be_repeated() {
    let fixture = Fixture::shared().await;
    let (mut observer, proxy) = (fixture.observer().await, Proxy::of(&fixture).await);
    let through = impatient(&proxy, &fixture);
    let (request, _control) = options("a", secs(60)).waits(false).start();
    let hold = granted(&through, &request).await;
    proxy.stall();
    let how = ReleaseOptions::default();
    let error = soon("unanswered", hold.release(how)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    proxy.heal();
    let released = insist("released", async || hold.release(ReleaseOptions::default()).await).await;
    assert_eq!(released, ReleaseOutcome::AlreadyLost);
    assert!(!observer.is_locked("a").await);
}

#[testbed::test]
async fn an_acquire_whose_answer_is_lost_is_undone_or_repeated() {
    let fixture = Fixture::shared().await;
    let (mut observer, proxy) = (fixture.observer().await, Proxy::of(&fixture).await);
    let through = impatient(&proxy, &fixture);
    for repeated in [false, true] {
        // A connection that was used before.
        let (request, _control) = options("a", secs(60)).waits(false).start();
        let hold = granted(&through, &request).await;
        insist("released", async || hold.release(ReleaseOptions::default()).await).await;
        proxy.stall();
        let (request, _control) = options("a", secs(60)).waits(false).start();
        let error = soon("unanswered", through.acquire(&request)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        proxy.heal();
        if repeated {
            granted(&through, &request).await;
            assert!(observer.is_locked("a").await);
        }
        insist("abandoned", async || through.abandon(&request).await).await;
        assert!(!observer.is_locked("a").await);
    }
}

#[testbed::test]
async fn another_runtime_takes_over() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let elsewhere = std::thread::spawn({
        let backend = backend.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                grant(&backend, "a", secs(60)).await.release().await;
                grant(&backend, "a", secs(60)).await
            })
        }
    });
    let first = tokio::task::spawn_blocking(|| elsewhere.join().unwrap()).await.unwrap();
    // Its runtime is gone, and the connection with it.
    soon("lost", first.request.lease().ended()).await;
    let again = soon("granted", ask(&backend, options("a", secs(10)))).await.unwrap();
    assert!(again.token() > first.token());
    assert_eq!(first.release().await, ReleaseOutcome::AlreadyLost);
    assert_eq!(again.release().await, ReleaseOutcome::Released);
}
