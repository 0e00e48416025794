//! Another server takes the place of the one that was checked first.

use std::time::Duration;

use lock_core::{ErrorKind, Guarantee, Locker};
use lock_mysql::{LeaseTableBackend, Strategy};
use tokio::time::sleep;

use crate::support::proxy::Proxy;
use crate::support::*;

/// A server, one with this option that takes its place, and a client by way of a proxy.
async fn servers(option: &str) -> (Fixture, Fixture, Proxy, Locker) {
    let first = Fixture::own_with(["--innodb-flush-log-at-trx-commit=1"]).await;
    let next = Fixture {
        server: Fixture::own_with([option]).await.server,
        table: first.table.clone(),
    };
    let proxy = Proxy::of(&first).await;
    let config = proxy.config(&first).with_strategy(Strategy::Lease);
    let locks = Locker::new(LeaseTableBackend::new(config).unwrap());
    (first, next, proxy, locks)
}

/// Why an acquire is refused in the end.
async fn refused(locks: &Locker) -> String {
    let mut said = String::new();
    until("refused", async || {
        let error = locks.lock("a").try_acquire().await.err();
        let error = error.filter(|error| error.kind() == ErrorKind::Misconfigured);
        said = error.map_or_else(String::new, |error| error.to_string());
        !said.is_empty()
    })
    .await;
    said
}

async fn served(locks: &Locker) {
    let mut guard = None;
    until("served", async || {
        guard = locks.lock("a").try_acquire().await.ok().flatten();
        guard.is_some()
    })
    .await;
    guard.unwrap().release().await.unwrap();
}

#[testbed::test]
async fn a_next_server_whose_clock_stands_still_within_a_statement_is_refused() {
    let (first, next, proxy, locks) = servers("--sysdate-is-now").await;
    served(&locks).await;
    proxy.lead_to(&next);
    proxy.cut();
    proxy.heal();
    let said = refused(&locks).await;
    assert!(said.contains("sysdate-is-now"), "{said}");
    proxy.lead_to(&first);
    served(&locks).await;
}

#[testbed::test]
async fn a_next_server_is_judged_by_its_own_settings() {
    let (_first, next, proxy, locks) = servers("--innodb-flush-log-at-trx-commit=2").await;
    let locks = locks.require([Guarantee::ServerCrash]);
    served(&locks).await;
    proxy.lead_to(&next);
    proxy.cut();
    proxy.heal();
    let said = refused(&locks).await;
    assert!(said.contains("innodb_flush_log_at_trx_commit=2"), "{said}");
    let mut observer = next.observer().await;
    observer.run("SET GLOBAL innodb_flush_log_at_trx_commit=1").await;
    served(&locks).await;
}

/// As after a switchover: the connections to the former server live on, but for one. Whichever that is, what the other one keeps is no
/// excuse for the next one.
#[testbed::test]
async fn a_connection_to_the_former_server_says_nothing_of_the_next_one() {
    const OF_CLIENT: &str = "FROM information_schema.PROCESSLIST WHERE USER='app' AND ID<>CONNECTION_ID()";
    let (first, next, proxy, locks) = servers("--innodb-flush-log-at-trx-commit=2").await;
    drop(locks);
    let config = next.config().with_strategy(Strategy::Lease);
    let at_next = Locker::new(LeaseTableBackend::new(config).unwrap());
    at_next.connect().await.unwrap();
    let mut former = first.observer().await;
    for place in 0..3 {
        proxy.lead_to(&first);
        let config = proxy.config(&first).with_strategy(Strategy::Lease);
        let backend = LeaseTableBackend::new(config).unwrap();
        let locks = Locker::new(backend).require([Guarantee::ServerCrash]);
        served(&locks).await;
        until("all its connections", async || {
            former.number(&format!("SELECT COUNT(*) {OF_CLIENT}")).await == 3
        })
        .await;
        proxy.lead_to(&next);
        let one = former
            .number(&format!("SELECT ID {OF_CLIENT} ORDER BY ID LIMIT 1 OFFSET {place}"))
            .await;
        former.try_run(&format!("KILL {one}")).await;
        for number in 0..5 {
            let name = format!("of {place} {number}");
            if let Ok(Some(guard)) = locks.lock(&name).try_acquire().await {
                let status = at_next.status(&name).await.unwrap();
                assert!(!status.is_held(), "granted by the next server: {guard:?}");
                // If the other connection is the one that was ended, the release goes to the next server.
                let _ = guard.release().await;
            }
            // It connects again once a second.
            sleep(Duration::from_millis(500)).await;
        }
        let _ = locks.shutdown().await;
        drop(locks);
        until("its connections have ended", async || {
            former.number(&format!("SELECT COUNT(*) {OF_CLIENT}")).await == 0
        })
        .await;
    }
}
