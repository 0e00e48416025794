//! Another server takes the place of the one that was checked first.

use lock_core::{ErrorKind, Guarantee, Locker};
use lock_mysql::{LeaseTableBackend, Strategy};

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
