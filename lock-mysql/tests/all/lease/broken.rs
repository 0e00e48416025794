//! Errors in the middle of a request's transaction, over connections that many requests share.

use std::time::Duration;

use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::{Attempt, DistributedLock, Mode, ReleaseOutcome, Renewal};
use lock_mysql::{LeaseTableBackend, MySqlConfig};
use tokio::time::sleep;

use super::sharing::{grant_in, permits, try_in};
use super::support::*;
use crate::support::*;

/// How many transactions of others are open. Without a rollback they would be for as long as an idle connection: 90 s.
const OPEN: &str = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id<>CONNECTION_ID()";

/// Fails unless nobody keeps the name's row locked.
async fn ensure_unlocked(observer: &mut Observer, fixture: &Fixture) {
    let table = &fixture.table;
    observer
        .run(&format!(
            "SELECT 1 FROM {table}_leases WHERE name='a' FOR UPDATE NOWAIT"
        ))
        .await;
    without_transactions(observer).await;
}

async fn without_transactions(observer: &mut Observer) {
    // The server shows what it has seen before to those who ask more often than every 100 ms.
    let ended = async {
        while observer.number(OPEN).await > 0 {
            sleep(Duration::from_millis(150)).await;
        }
    };
    soon("without a transaction", ended).await;
}

async fn fails(backend: &LeaseTableBackend, mode: Mode) -> lock_core::Error {
    let (request, control) = options("a", secs(60)).mode(mode).start();
    let error = backend.acquire(&request).await.unwrap_err();
    control.give_up();
    backend.abandon(&request).await.unwrap();
    error
}

/// A trigger refuses what comes after the row was locked.
#[testbed::test]
async fn a_refusal_behind_the_lock_leaves_no_transaction_open() {
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let table = &fixture.table;
    let first = grant_in(&backend, "a", Shared).await;
    for when in ["INSERT", "UPDATE"] {
        observer
            .run(&format!(
                "CREATE TRIGGER refuses BEFORE {when} ON {table}_lease_holders FOR EACH ROW \
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='refused'"
            ))
            .await;
        match when {
            "INSERT" => {
                let error = {
                    let (request, _control) = options("a", secs(60)).mode(Shared).start();
                    backend.acquire(&request).await.unwrap_err()
                };
                assert!(error.is_not_executed(), "{error}");
                ensure_unlocked(&mut observer, &fixture).await;
                // What goes out in one text with it is executed all the same.
                let (refused, granted) = tokio::join!(fails(&backend, Shared), grant(&backend, "b", secs(60)),);
                assert!(refused.is_not_executed());
                assert_eq!(granted.release().await, ReleaseOutcome::Released);
            }
            _ => {
                assert!(first.hold.renew(secs(60)).await.is_err());
                assert!(first.hold.release(Default::default()).await.is_err());
            }
        }
        ensure_unlocked(&mut observer, &fixture).await;
        observer.run("DROP TRIGGER refuses").await;
        assert!(matches!(first.hold.renew(secs(60)).await.unwrap(), Renewal::Renewed(_)));
    }
    assert_eq!(first.release().await, ReleaseOutcome::Released);
    let writer = grant_in(&backend, "a", Exclusive).await;
    observer
        .run(&format!(
            "CREATE TRIGGER refuses BEFORE UPDATE ON {table}_leases FOR EACH ROW \
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='refused'"
        ))
        .await;
    assert!(writer.hold.downgrade(secs(60)).await.is_err());
    ensure_unlocked(&mut observer, &fixture).await;
    observer.run("DROP TRIGGER refuses").await;
    // It is still exclusive, and is renewed and released as what it is.
    assert!(try_in(&backend, "a", Shared).await.is_none());
    assert!(matches!(
        writer.hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    assert_eq!(writer.release().await, ReleaseOutcome::Released);
    grant_in(&backend, "a", permits(1, 1)).await.release().await;
}

/// The row stays locked for longer than statements wait (1205).
#[testbed::test]
async fn a_row_that_stays_locked_leaves_no_transaction_open() {
    let fixture = Fixture::own().await;
    let (backend, mut observer, mut locking) = (backend(&fixture), fixture.observer().await, fixture.observer().await);
    let granted = grant_in(&backend, "a", Shared).await;
    let table = &fixture.table;
    locking
        .run(&format!("BEGIN;SELECT 1 FROM {table}_leases WHERE name='a' FOR UPDATE"))
        .await;
    let error = fails_in_time(&backend).await;
    assert!(error.is_not_executed() && error.is_retryable(), "{error}");
    locking.run("ROLLBACK").await;
    without_transactions(&mut observer).await;
    ensure_unlocked(&mut observer, &fixture).await;
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    assert!(!is_held(&mut observer, &fixture, "a").await);
}

async fn fails_in_time(backend: &LeaseTableBackend) -> lock_core::Error {
    let (request, _control) = options("a", secs(60)).mode(Shared).start();
    soon("refused", backend.acquire(&request)).await.unwrap_err()
}

/// Whoever is told to end while its transaction has the row's lock takes nothing by it, and the row is free at once. A
/// connection whose query is killed serves on, and so asks again.
#[testbed::test]
async fn a_query_killed_behind_the_lock_leaves_nothing() {
    let fixture = Fixture::own().await;
    // Shorter than the doze below.
    let config = config(&fixture).with_response_timeout(MySqlConfig::DEFAULT_RESPONSE_TIMEOUT);
    let (backend, mut observer) = (LeaseTableBackend::new(config).unwrap(), fixture.observer().await);
    let table = &fixture.table;
    // So there is a row to be updated, behind the lock.
    grant_in(&backend, "a", Shared).await.release().await;
    for kill in ["KILL QUERY", "KILL CONNECTION"] {
        observer.run("DO GET_LOCK('kept',0)").await;
        observer
            .run(&format!(
                "CREATE TRIGGER dozes BEFORE UPDATE ON {table}_lease_holders FOR EACH ROW \
                 BEGIN SET @dozes=COALESCE(@dozes,0)+1; IF @dozes=1 THEN DO GET_LOCK('kept',20); END IF; END"
            ))
            .await;
        let (request, control) = options("a", secs(60)).mode(Shared).start();
        let asking = tokio::spawn({
            let (backend, request) = (backend.clone(), request.clone());
            async move { backend.acquire(&request).await }
        });
        let asleep = "SELECT COALESCE(MAX(ID),0) FROM information_schema.PROCESSLIST WHERE STATE='User lock'";
        until("asleep", async || observer.number(asleep).await > 0).await;
        let id = observer.number(asleep).await;
        observer.run(&format!("{kill} {id}")).await;
        // A new connection dozes as well, until its answer takes too long.
        let attempt = soon("answered", asking).await.unwrap();
        assert_eq!(attempt.is_ok(), kill == "KILL QUERY", "{attempt:?}");
        control.give_up();
        // What ends the hold would doze, too.
        observer.run("DO RELEASE_LOCK('kept');DROP TRIGGER dozes").await;
        soon("abandoned", backend.abandon(&request)).await.unwrap();
        ensure_unlocked(&mut observer, &fixture).await;
        assert!(!is_held(&mut observer, &fixture, "a").await);
        let next = grant_in(&backend, "a", permits(3, 3)).await;
        assert_eq!(next.release().await, ReleaseOutcome::Released);
    }
}

/// A foreign transaction that locks in another order. The server ends the smaller one of the two (1213).
#[testbed::test]
async fn a_deadlock_with_a_stranger_leaves_nothing_and_is_tried_again() {
    let fixture = Fixture::own().await;
    let (backend, mut stranger, mut observer) = (backend(&fixture), fixture.observer().await, fixture.observer().await);
    let table = &fixture.table;
    grant_in(&backend, "a", Shared).await.release().await;
    for _ in 0..20 {
        let before = deadlocks(&mut observer).await;
        stranger
            .run(&format!(
                "BEGIN;UPDATE {table}_lease_holders SET label='x' WHERE name='a';\
                 INSERT INTO {table}_leases (name) WITH RECURSIVE n (n) AS \
                 (SELECT 1 UNION ALL SELECT n+1 FROM n WHERE n<500) SELECT CONCAT('foreign ',n) FROM n"
            ))
            .await;
        let (request, control) = options("a", secs(60)).mode(Shared).waits(false).start();
        let asking = tokio::spawn({
            let (backend, request) = (backend.clone(), request.clone());
            async move { backend.acquire(&request).await }
        });
        until("waiting for a holder's row", async || {
            let statements = observer.statements().await;
            let waits = |sql: &String| sql.starts_with("UPDATE") && sql.contains("lease_holders");
            statements.iter().any(waits) || asking.is_finished()
        })
        .await;
        stranger
            .run(&format!(
                "SELECT 1 FROM {table}_leases WHERE name='a' FOR UPDATE;ROLLBACK"
            ))
            .await;
        match soon("answered", asking).await.unwrap() {
            Ok(Attempt::Granted(hold, _)) => {
                assert_eq!(deadlocks(&mut observer).await, before + 1);
                ensure_unlocked(&mut observer, &fixture).await;
                let released = Granted::new(hold, request, control).release().await;
                assert_eq!(released, ReleaseOutcome::Released);
                return;
            }
            Ok(other) => panic!("{other:?}"),
            // It waits for a second, and on a busy machine the stranger comes later.
            Err(error) => assert!(error.is_not_executed() && error.is_retryable(), "{error:?}"),
        }
        grant_in(&backend, "a", Shared).await.release().await;
    }
    panic!("the stranger always comes too late");
}
