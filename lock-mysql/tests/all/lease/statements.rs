//! What a request costs the server, and what its short statement leaves to the long one.

use lock_core::backend::{DistributedLock, ReleaseOutcome, Renewal};

use super::support::*;
use crate::support::*;

/// How many statements of each kind the server has executed for others.
async fn executed(observer: &mut Observer) -> [u64; 3] {
    let mut counts = [0; 3];
    for (count, kind) in counts.iter_mut().zip(["COM_UPDATE", "COM_INSERT", "COM_SELECT"]) {
        *count = counted(observer, kind).await;
    }
    counts
}

#[testbed::test]
async fn a_pair_is_two_updates_once_the_name_has_a_row() {
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let pair = async || {
        let granted = grant(&backend, "a", secs(60)).await;
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    };
    pair().await;
    let before = executed(&mut observer).await;
    for _ in 0..10 {
        pair().await;
    }
    let [updates, inserts, selects] = before;
    assert_eq!(executed(&mut observer).await, [updates + 20, inserts, selects]);
}

/// The pair of somebody who is alone goes over one connection. Releases do not wait behind an acquire that waits.
#[testbed::test]
async fn a_release_goes_over_the_connection_of_acquires_only_while_it_is_idle() {
    let fixture = Fixture::own().await;
    let (backend, mut observer, mut locking) = (backend(&fixture), fixture.observer().await, fixture.observer().await);
    let pair = async |name: &str| {
        let granted = grant(&backend, name, secs(60)).await;
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    };
    // All connections are made, and each has served.
    for name in ["a", "b", "a", "b"] {
        pair(name).await;
    }
    observer
        .run("SET GLOBAL log_output='TABLE';TRUNCATE mysql.general_log;SET GLOBAL general_log=ON")
        .await;
    for _ in 0..5 {
        pair("a").await;
    }
    observer.run("SET GLOBAL general_log=OFF").await;
    let logged = |what| {
        format!(
            "SELECT COUNT({what}) FROM mysql.general_log WHERE CAST(argument AS CHAR) LIKE 'UPDATE `{}_leases`%'",
            fixture.table
        )
    };
    assert_eq!(observer.number(&logged("*")).await, 10);
    assert_eq!(observer.number(&logged("DISTINCT thread_id")).await, 1);

    let table = &fixture.table;
    let mut overtook = false;
    // On a machine that stops this process for a second, the acquire has its answer first.
    for _ in 0..20 {
        let held = grant(&backend, "a", secs(60)).await;
        locking
            .run(&format!("BEGIN;SELECT 1 FROM {table}_leases WHERE name='b' FOR UPDATE"))
            .await;
        let waiting = tokio::spawn({
            let backend = backend.clone();
            // The server gives up after a second.
            async move {
                let (request, _control) = options("b", secs(60)).start();
                let _ = DistributedLock::acquire(&backend, &request).await;
            }
        });
        until("asked", async || {
            let statements = observer.statements().await;
            waiting.is_finished() || statements.iter().any(|sql| sql.contains("LAST_INSERT_ID(GREATEST"))
        })
        .await;
        assert_eq!(held.release().await, ReleaseOutcome::Released);
        overtook = !waiting.is_finished();
        locking.run("ROLLBACK").await;
        soon("answered", waiting).await.unwrap();
        if overtook {
            break;
        }
    }
    assert!(overtook, "the release waited behind the acquire");
}

/// Somebody resets the row's tokens by hand while the name is held.
#[testbed::test]
async fn tokens_changed_by_hand_give_nobody_a_name_that_is_held() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let granted = grant(&backend, "a", secs(60)).await;
    let reset = format!("UPDATE {}_leases SET last_token=0", fixture.table);
    observer.run(&reset).await;
    for _ in 0..2 {
        assert!(try_once(&backend, "a").await.is_err());
    }
    assert!(matches!(
        granted.hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    assert!(grant(&backend, "a", secs(60)).await.token() > granted.token());
}

/// An end that is ahead of the clock, as after a step back, costs the next acquire a second statement, and no later one.
#[testbed::test]
async fn an_end_and_a_mark_ahead_of_the_clock_are_cleared_by_the_next_grant() {
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    grant(&backend, "a", secs(60)).await.release().await;
    let ahead = format!(
        "UPDATE {}_leases SET expires=expires+9000000000,wanted=expires",
        fixture.table
    );
    observer.run(&ahead).await;
    for inserts in [1, 0] {
        let before = counted(&mut observer, "COM_INSERT").await;
        let granted = grant(&backend, "a", secs(60)).await;
        assert_eq!(counted(&mut observer, "COM_INSERT").await - before, inserts);
        let what = "(expires-FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)) DIV 1000000";
        assert!(in_row(&mut observer, &fixture, "a", what).await <= 60);
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    }
}
