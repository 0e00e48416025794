//! Statements that the server refuses: it certainly did not execute them.

use lock_core::backend::{DistributedLock, ReleaseOutcome};
use lock_core::{ErrorKind, Locker};
use lock_mysql::{RowLockBackend, Strategy};
use testbed::Edition;

use crate::support::*;
use crate::switchover::plain_user;

/// A user whose permission to write can be taken away, and one connection for locks.
async fn poor(fixture: &Fixture, observer: &mut Observer) -> RowLockBackend {
    let table = &fixture.table;
    fixture.backend().connect().await.unwrap();
    observer
        .run(&format!(
            "CREATE USER 'poor_{table}'@'%' IDENTIFIED BY 's3cret';\
             GRANT SELECT, INSERT, UPDATE ON app.{table}_tokens TO 'poor_{table}'@'%';\
             GRANT SELECT, INSERT, UPDATE ON app.{table} TO 'poor_{table}'@'%'"
        ))
        .await;
    let url = format!(
        "mysql://poor_{table}:s3cret@{}/app?table={table}",
        fixture.server.address()
    );
    RowLockBackend::new(patient(&url).with_max_connections(1)).unwrap()
}

async fn permit(fixture: &Fixture, observer: &mut Observer, what: &str) {
    let table = &fixture.table;
    let to = if what == "GRANT" { "TO" } else { "FROM" };
    observer
        .run(&format!("{what} UPDATE ON app.{table} {to} 'poor_{table}'@'%'"))
        .await;
}

#[testbed::test]
async fn a_release_that_is_refused_ends_the_hold_all_the_same() {
    let fixture = Fixture::shared().await;
    let mut observer = fixture.observer().await;
    let backend = poor(&fixture, &mut observer).await;
    for _ in 0..5 {
        let granted = grant(&backend, "a", secs(60)).await;
        let connection = observer.holder("a").await;
        permit(&fixture, &mut observer, "REVOKE").await;
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
        assert!(!observer.is_locked("a").await);
        assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
        permit(&fixture, &mut observer, "GRANT").await;
        // Over the same connection, which is as good as before.
        let next = grant(&backend, "a", secs(60)).await;
        assert!(next.token() > granted.token());
        assert_eq!(observer.holder("a").await, connection);
        next.release().await;
    }
}

#[testbed::test]
async fn an_acquire_that_is_refused_leaves_nothing_to_undo() {
    let fixture = Fixture::shared().await;
    let mut observer = fixture.observer().await;
    let backend = poor(&fixture, &mut observer).await;
    let granted = grant(&backend, "a", secs(60)).await;
    let connection = observer.holder("a").await;
    granted.release().await;
    permit(&fixture, &mut observer, "REVOKE").await;
    for waits in [false, true] {
        let (request, _control) = options("a", secs(60)).waits(waits).start();
        let error = backend.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.is_not_executed());
        // Although the row was locked before the refusal.
        assert!(!observer.is_locked("a").await);
        backend.abandon(&request).await.unwrap();
    }
    permit(&fixture, &mut observer, "GRANT").await;
    let again = grant(&backend, "a", secs(60)).await;
    assert_eq!(observer.holder("a").await, connection);
    again.release().await;
}

#[testbed::test]
async fn a_request_that_found_no_server_was_not_executed() {
    let fixture = Fixture::own().await;
    let (backend, held) = (fixture.backend(), fixture.backend());
    let granted = grant(&held, "a", secs(60)).await;
    grant(&backend, "b", secs(60)).await.release().await;
    fixture.server.kill().unwrap();
    soon("lost", granted.request.lease().ended()).await;
    let (request, _control) = options("c", secs(60)).waits(false).start();
    // The first may go out over a connection that is only seen to be broken then.
    drop(backend.acquire(&request).await);
    let (request, _control) = options("c", secs(60)).waits(false).start();
    let error = backend.acquire(&request).await.unwrap_err();
    assert!(error.is_not_executed(), "{error}");
    backend.abandon(&request).await.expect("nothing to undo");
}

/// An administrator's maintenance ends all connections, and lets nobody else in.
#[testbed::test]
async fn a_server_in_offline_mode_is_unavailable_until_that_is_over() {
    let Some(server) = testbed::skip_left_out(Edition::MySql9.start().await) else {
        return;
    };
    let fixture = Fixture::on(server);
    plain_user(&fixture).await;
    let mut observer = fixture.observer().await;
    for strategy in [Strategy::Row, Strategy::Lease] {
        let url = format!("mysql://plain:s3cret@{}/app", fixture.server.address());
        let config = patient(&url).with_table(&fixture.table).with_strategy(strategy);
        let locker = |config| Locker::from_backend(lock_mysql::backend(config).unwrap());
        let known = locker(config.clone());
        soon("granted", known.lock("a").acquire())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        // It gives up a server soon that it has not reached yet.
        let unknown = locker(config.with_connect_timeout(secs(1)));
        observer.run("SET GLOBAL offline_mode=1").await;
        for locks in [&known, &unknown] {
            let lock = locks.lock("a");
            until("told why", async || {
                let error = lock.try_acquire().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{strategy:?}: {error}");
                error.to_string().contains("offline mode")
            })
            .await;
        }
        observer.run("SET GLOBAL offline_mode=0").await;
        for locks in [&known, &unknown] {
            let guard = soon("granted again", locks.lock("a").acquire()).await.unwrap();
            guard.release().await.unwrap();
        }
    }
}
