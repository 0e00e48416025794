//! What a server's settings, and people, do to the lease table.

use std::sync::Arc;

use lock_core::ErrorKind;
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, Mode, ReleaseOutcome, Renewal};
use lock_mysql::{Checks, LeaseTableBackend};
use tokio::task::JoinSet;

use super::sharing::grant_in;
use super::support::*;
use crate::support::*;

/// Statements that waited for a row would take the moment before the wait for the present, and cut holds that began
/// meanwhile.
#[testbed::test]
async fn a_server_whose_clock_stands_still_within_a_statement_is_refused() {
    let fixture = Fixture::own_with(["--sysdate-is-now"]).await;
    let error = backend(&fixture).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("sysdate-is-now"), "{error}");
    let (request, _control) = options("a", secs(10)).waits(false).start();
    let error = backend(&fixture).acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
}

/// As my.cnf files of old said.
#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_a_megabyte_at_a_time_serves_long_names() {
    let fixture = Fixture::own_with(["--max-allowed-packet=1M"]).await;
    // A busy machine takes long for a thousand commits.
    let backend = LeaseTableBackend::new(config(&fixture).with_response_timeout(4 * PATIENCE)).unwrap();
    let mut acquiring = JoinSet::new();
    for number in 0..1000 {
        let backend = backend.clone();
        acquiring.spawn(async move {
            let name = name(&format!("{number:0>512}"));
            let terms = Terms::new(secs(600)).label("l".repeat(255));
            ask(&backend, RequestOptions::new(name, terms)).await.unwrap()
        });
    }
    for granted in all_soon("all granted", acquiring.join_all()).await {
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    }
}

/// As some set them against users that forget a condition.
#[testbed::test]
async fn limits_of_the_server_for_what_is_read_do_not_matter() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    observer
        .run("SET GLOBAL sql_select_limit=1;SET GLOBAL max_join_size=1")
        .await;
    let backend = backend(&fixture);
    backend.connect().await.unwrap();
    let mut holds = Vec::new();
    for number in 0..6 {
        holds.push(Arc::new(grant_in(&backend, &number.to_string(), Mode::Shared).await));
    }
    let mut renewing = JoinSet::new();
    for granted in holds.iter().cloned() {
        renewing.spawn(async move { granted.hold.renew(secs(60)).await });
    }
    for renewed in soon("renewed", renewing.join_all()).await {
        assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{renewed:?}");
    }
    let second = grant_in(&backend, "0", Mode::Shared).await;
    let status = backend.status(&name("0")).await.unwrap();
    assert_eq!(status.holders.len(), 2);
    second.release().await;
    for granted in holds {
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    }
}

/// A table of another case is another one, where the file system tells them apart.
#[testbed::test]
async fn a_table_whose_name_differs_by_its_case_is_another_one() {
    let fixture = Fixture::shared().await;
    let upper = fixture.table.to_uppercase();
    assert_ne!(upper, fixture.table);
    let mut observer = fixture.observer().await;
    observer
        .run(&format!("CREATE TABLE {upper}_LEASES (n INT) ENGINE=InnoDB"))
        .await;
    let backend = backend(&fixture);
    backend.connect().await.unwrap();
    grant(&backend, "a", secs(60)).await.release().await;
}

/// Others make it anew, and have the names.
#[testbed::test]
async fn a_hold_is_lost_with_its_table() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let granted = grant(&backend, "a", secs(60)).await;
    observer.run(&format!("DROP TABLE {}_leases", fixture.table)).await;
    assert!(matches!(granted.hold.renew(secs(60)).await.unwrap(), Renewal::Lost));
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    let next = grant(&backend, "a", secs(60)).await;
    assert!(next.token() > granted.token());
}

/// A crash loses what is not on disk.
#[testbed::test]
async fn settings_that_lose_leases_are_refused_on_demand() {
    let fixture = Fixture::own_with(["--log-bin=log", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"]).await;
    let mut observer = fixture.observer().await;
    let careful = || LeaseTableBackend::new(config(&fixture).with_checks(Checks::Refuse)).unwrap();
    // It warns.
    backend(&fixture).connect().await.unwrap();
    for (set, says) in [
        ("SET GLOBAL sync_binlog=1", "sync_binlog=0"),
        (
            "SET GLOBAL innodb_flush_log_at_trx_commit=1",
            "innodb_flush_log_at_trx_commit=2",
        ),
    ] {
        let error = careful().connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains(says), "{error}");
        observer.run(set).await;
    }
    careful().connect().await.unwrap();
}
