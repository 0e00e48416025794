//! Rows of the row lock that nobody uses any more.

use lock_core::backend::{DistributedLock, Mode, ReleaseOutcome};
use lock_core::{ErrorKind, FencingToken};
use lock_mysql::RowLockBackend;
use testbed::Server;

use crate::support::*;

const DAYS: u64 = 24 * 3600 * 1_000_000;

on_both_servers!(
    dead_rows_are_deleted_and_all_others_spared,
    a_name_whose_row_was_deleted_goes_on_with_larger_tokens,
    many_rows_are_cleaned_in_parts,
    without_the_permission_it_is_denied_and_locks_work,
);

async fn dead_rows_are_deleted_and_all_others_spared(server: Server) {
    let fixture = Fixture::on(server);
    let (backend, mut observer, mut locking) = (fixture.backend(), fixture.observer().await, fixture.observer().await);
    let table = &fixture.table;
    for name in ["dead", "young", "ahead", "locked", "read", "held"] {
        assert_eq!(
            grant(&backend, name, secs(60)).await.release().await,
            ReleaseOutcome::Released
        );
    }
    let age = |table: &str, names: &str, days: u64| {
        format!("UPDATE {table} SET token=token-{} WHERE name IN ({names})", days * DAYS)
    };
    observer.run(&age(table, "'dead','locked','read','held'", 8)).await;
    observer.run(&age(table, "'young'", 6)).await;
    observer
        .run(&format!(
            "UPDATE {table} SET token=token+{DAYS} WHERE name='ahead';\
             INSERT INTO {table}_tokens (name,token) SELECT name,token FROM {table} WHERE name IN ('dead','young','ahead')"
        ))
        .await;
    // A stranger, a reader and a holder keep their rows. The reader has a hidden one as well.
    locking
        .run(&format!("BEGIN;SELECT 1 FROM {table} WHERE name='locked' FOR UPDATE"))
        .await;
    let reader = ask(&backend, options("read", secs(60)).mode(Mode::Shared).waits(false))
        .await
        .expect("it is free");
    observer.run(&age(&format!("{table}_tokens"), "'read'", 8)).await;
    let holder = grant(&backend, "held", secs(60)).await;
    assert_eq!(
        backend.clean_up().await.unwrap(),
        3,
        "dead in both tables, and the token of the reader"
    );
    let left = |table: &str| format!("SELECT GROUP_CONCAT(CAST(name AS CHAR) ORDER BY name) FROM {table}");
    assert_eq!(observer.text(&left(table)).await, "ahead,held,locked,read,young");
    assert_eq!(observer.text(&left(&format!("{table}_tokens"))).await, "ahead,young");
    let status = backend.status(&name("read")).await.unwrap();
    assert_eq!(status.holders.len(), 1);
    assert_eq!(reader.release().await, ReleaseOutcome::Released);
    assert_eq!(holder.release().await, ReleaseOutcome::Released);
    locking.run("COMMIT").await;
    // The holder's token was committed by its release, and is young.
    assert_eq!(backend.clean_up().await.unwrap(), 2);
    assert_eq!(observer.text(&left(table)).await, "ahead,held,young");
    assert_eq!(backend.clean_up().await.unwrap(), 0);
}

async fn a_name_whose_row_was_deleted_goes_on_with_larger_tokens(server: Server) {
    let fixture = Fixture::on(server);
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let before = grant(&backend, "a", secs(60)).await;
    assert_eq!(before.release().await, ReleaseOutcome::Released);
    observer
        .run(&format!("UPDATE {} SET token=token-{}", fixture.table, 8 * DAYS))
        .await;
    assert_eq!(backend.clean_up().await.unwrap(), 1);
    let after = grant(&backend, "a", secs(60)).await;
    assert!(after.token() > before.token());
    // It is ahead of the clock, and so in the second table, which keeps it.
    let floor = FencingToken::new(after.token() + DAYS).unwrap();
    assert_eq!(after.release().await, ReleaseOutcome::Released);
    let ahead = ask(&backend, options("a", secs(60)).token_above(floor)).await.unwrap();
    assert_eq!(ahead.release().await, ReleaseOutcome::Released);
    observer.run(&format!("UPDATE {} SET token=0", fixture.table)).await;
    assert_eq!(backend.clean_up().await.unwrap(), 1);
    assert!(grant(&backend, "a", secs(60)).await.token() > ahead.token());
}

async fn many_rows_are_cleaned_in_parts(server: Server) {
    let fixture = Fixture::on(server);
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    assert_eq!(
        backend.clean_up().await.unwrap(),
        0,
        "without a table there is nothing to clean"
    );
    backend.connect().await.unwrap();
    let names: Vec<String> = (1..=2500).map(|number| format!("('old {number}')")).collect();
    observer
        .run(&format!(
            "INSERT INTO {} (name) VALUES {}",
            fixture.table,
            names.join(",")
        ))
        .await;
    // Longer than the clean-up may take on a busy machine.
    let granted = grant(&backend, "old 7", secs(600)).await;
    assert_eq!(backend.clean_up().await.unwrap(), 2499);
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
}

async fn without_the_permission_it_is_denied_and_locks_work(server: Server) {
    let fixture = Fixture::on(server);
    let (rich, mut observer) = (fixture.backend(), fixture.observer().await);
    rich.connect().await.unwrap();
    let table = &fixture.table;
    observer
        .run(&format!(
            "CREATE USER 'poor_{table}'@'%' IDENTIFIED BY 's3cret';\
             GRANT SELECT, INSERT, UPDATE ON app.* TO 'poor_{table}'@'%'"
        ))
        .await;
    let url = format!(
        "mysql://poor_{table}:s3cret@{}/app?table={table}",
        fixture.server.address()
    );
    let poor = RowLockBackend::new(patient(&url)).unwrap();
    poor.connect().await.unwrap();
    let granted = grant(&poor, "a", secs(60)).await;
    let error = poor.clean_up().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("DELETE"), "{error}");
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    observer
        .run(&format!("GRANT DELETE ON app.* TO 'poor_{table}'@'%'"))
        .await;
    assert_eq!(poor.clean_up().await.unwrap(), 0);
}
