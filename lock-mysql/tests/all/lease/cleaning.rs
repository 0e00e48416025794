//! Rows that nobody uses any more.

use lock_core::ErrorKind;
use lock_core::backend::{DistributedLock, Mode};
use lock_mysql::LeaseTableBackend;

use super::sharing::{grant_in, permits};
use super::support::*;
use crate::support::*;

const DAYS: u64 = 24 * 3600 * 1_000_000;

#[testbed::test]
async fn dead_rows_are_deleted_and_all_others_spared() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    for name in ["dead", "expired", "young", "held", "young token", "ahead"] {
        let granted = grant(&backend, name, secs(600)).await;
        if name != "held" && name != "expired" {
            granted.release().await;
        }
    }
    let table = format!("{}_leases", fixture.table);
    let age = |names: &str, column: &str, days: u64| {
        format!(
            "UPDATE {table} SET {column}={column}-{} WHERE name IN ({names})",
            days * DAYS
        )
    };
    // Beyond the seven days.
    observer
        .run(&age("'dead','expired','young token','ahead'", "expires", 8))
        .await;
    observer.run(&age("'dead','expired','held'", "last_token", 8)).await;
    observer.run(&age("'young','young token'", "last_token", 6)).await;
    observer
        .run(&format!(
            "UPDATE {table} SET last_token=last_token+{DAYS} WHERE name='ahead'"
        ))
        .await;
    assert_eq!(backend.clean_up().await.unwrap(), 2);
    let left = format!("SELECT COUNT(*) FROM {table} WHERE name IN ('held','young','young token','ahead')");
    assert_eq!(observer.number(&left).await, 4);
    assert_eq!(observer.number(&format!("SELECT COUNT(*) FROM {table}")).await, 4);
    assert_eq!(backend.clean_up().await.unwrap(), 0);
}

#[testbed::test]
async fn many_rows_are_cleaned_in_parts() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    assert_eq!(
        backend.clean_up().await.unwrap(),
        0,
        "without a table there is nothing to clean"
    );
    backend.connect().await.unwrap();
    let table = format!("{}_leases", fixture.table);
    let names: Vec<String> = (1..=2500).map(|number| format!("('old {number}')")).collect();
    let sql = format!("INSERT INTO {table} (name) VALUES {}", names.join(","));
    observer.run(&sql).await;
    // A busy machine may take a minute for the clean-up.
    let granted = grant(&backend, "old 7", secs(600)).await;
    assert_eq!(backend.clean_up().await.unwrap(), 2499);
    assert_eq!(granted.release().await, lock_core::backend::ReleaseOutcome::Released);
}

#[testbed::test]
async fn without_the_permission_it_is_denied_and_locks_work() {
    let fixture = Fixture::shared().await;
    let mut observer = fixture.observer().await;
    let table = &fixture.table;
    observer
        .run(&format!(
            "CREATE USER 'poor_{table}'@'%' IDENTIFIED BY 's3cret';\
             GRANT SELECT, INSERT, UPDATE ON app.* TO 'poor_{table}'@'%'"
        ))
        .await;
    let url = format!(
        "mysql://poor_{table}:s3cret@{}/app?table={table}&strategy=lease",
        fixture.server.address()
    );
    let poor = LeaseTableBackend::from_url(&url).unwrap();
    // It may not make the two tables, and says how to.
    let error = poor.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    let message = error.to_string();
    let sql = message.split('"').nth(1).expect("the statements are quoted");
    observer.run(sql).await;
    poor.connect().await.unwrap();
    for mode in [Mode::Shared, permits(1, 2)] {
        for _ in 0..2 {
            let granted = grant_in(&poor, "a", mode).await;
            granted.hold.renew(secs(60)).await.unwrap();
            assert_eq!(granted.release().await, lock_core::backend::ReleaseOutcome::Released);
        }
    }
    let granted = grant(&poor, "a", secs(60)).await;
    granted.hold.renew(secs(60)).await.unwrap();
    granted.hold.downgrade(secs(60)).await.unwrap();
    let error = poor.clean_up().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("DELETE"), "{error}");
    assert_eq!(granted.release().await, lock_core::backend::ReleaseOutcome::Released);
}

#[testbed::test]
async fn rows_of_readers_that_ended_long_ago_are_deleted() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let mut held = Vec::new();
    for name in ["a", "b"] {
        for _ in 0..3 {
            held.push(grant_in(&backend, name, Mode::Shared).await);
        }
    }
    let table = format!("{}_lease_holders", fixture.table);
    let live = [held.pop().unwrap(), held.pop().unwrap()];
    for granted in &held[1..] {
        granted.release().await;
    }
    // It expired before the seven days.
    let expired = held[0].request.holder();
    observer
        .run(&format!(
            "UPDATE {table} SET expires=FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)-{} WHERE holder='{expired}'",
            6 * DAYS
        ))
        .await;
    assert_eq!(backend.clean_up().await.unwrap(), 3);
    assert_eq!(observer.number(&format!("SELECT COUNT(*) FROM {table}")).await, 3);
    for granted in live {
        assert_eq!(granted.release().await, lock_core::backend::ReleaseOutcome::Released);
    }
}
