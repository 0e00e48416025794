//! The tables, made beforehand, and the user who needs no more than them.

use lock_core::backend::DistributedLock;
use lock_core::{ErrorKind, FencingToken, HoldState, Locker};
use lock_mysql::{MySqlConfig, RowLockBackend, Strategy, schema};
use testbed::Server;

use crate::support::*;

on_both_servers!(
    migrate_makes_what_is_missing,
    the_text_makes_the_same_tables,
    without_the_permission_to_create_the_error_has_the_sql,
    a_lock_needs_no_more_than_select_insert_and_update,
    a_lease_needs_no_more_than_select_insert_and_update,
);

/// A user who may SELECT, INSERT and UPDATE in the tables of the fixture alone.
async fn least(fixture: &Fixture, observer: &mut Observer, tables: &[&str]) -> MySqlConfig {
    let user = format!("least_{}", fixture.table);
    observer
        .run(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY 's3cret'"))
        .await;
    for ending in tables {
        let table = format!("{}{ending}", fixture.table);
        observer
            .run(&format!("GRANT SELECT, INSERT, UPDATE ON app.{table} TO '{user}'@'%'"))
            .await;
    }
    fixture.config().with_user(user).with_password("s3cret")
}

const ROW_LOCK: [&str; 2] = ["", "_tokens"];

async fn tables(fixture: &Fixture, observer: &mut Observer) -> u64 {
    let count = format!(
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME LIKE '{}%'",
        fixture.table
    );
    observer.number(&count).await
}

async fn migrate_makes_what_is_missing(server: Server) {
    let fixture = Fixture::on(server);
    let mut observer = fixture.observer().await;
    schema::migrate(&fixture.config()).await.unwrap();
    assert_eq!(tables(&fixture, &mut observer).await, 5);
    observer
        .run(&format!(
            "INSERT INTO {0} (name) VALUES ('a'); DROP TABLE {0}_fences",
            fixture.table
        ))
        .await;
    schema::migrate(&fixture.config()).await.unwrap();
    assert_eq!(tables(&fixture, &mut observer).await, 5);
    let kept = format!("SELECT COUNT(*) FROM {}", fixture.table);
    assert_eq!(observer.number(&kept).await, 1);
}

async fn the_text_makes_the_same_tables(server: Server) {
    let fixture = Fixture::on(server);
    let mut observer = fixture.observer().await;
    let table = &fixture.table;
    for sql in [
        schema::row_lock(table),
        schema::lease_table(table),
        schema::fences(table),
    ] {
        let sql = sql.unwrap();
        observer.run(&sql).await;
        observer.run(&sql).await;
    }
    assert_eq!(tables(&fixture, &mut observer).await, 5);
    // No table is missing, so the permission to create is not needed.
    let config = least(
        &fixture,
        &mut observer,
        &["", "_tokens", "_leases", "_lease_holders", "_fences"],
    )
    .await;
    schema::migrate(&config).await.unwrap();
}

async fn without_the_permission_to_create_the_error_has_the_sql(server: Server) {
    let fixture = Fixture::on(server);
    let mut observer = fixture.observer().await;
    observer.run(&schema::row_lock(&fixture.table).unwrap()).await;
    let config = least(&fixture, &mut observer, &ROW_LOCK).await;
    let error = schema::migrate(&config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let fences = schema::fences(&fixture.table).unwrap();
    assert!(error.to_string().contains(fences.trim()), "{error}");

    observer
        .run(&format!("CREATE TABLE {}_fences (x INT) ENGINE=MyISAM", fixture.table))
        .await;
    let error = schema::migrate(&fixture.config()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(
        error.to_string().contains("_fences` must be of the engine InnoDB"),
        "{error}"
    );
}

async fn a_lock_needs_no_more_than_select_insert_and_update(server: Server) {
    let fixture = Fixture::on(server);
    let mut observer = fixture.observer().await;
    schema::migrate(&fixture.config()).await.unwrap();
    let config = least(&fixture, &mut observer, &ROW_LOCK).await;
    let [first, second] = [(); 2].map(|()| RowLockBackend::new(config.clone()).unwrap());
    first.connect().await.unwrap();

    // Acquire and renew.
    let held = grant(&first, "a", secs(60)).await;
    held.hold.renew(secs(60)).await.unwrap();
    assert!(first.status(&name("a")).await.unwrap().is_held());
    // A floor ahead of the clock goes into the other table.
    let floor = FencingToken::new(held.token() + 60_000_000).unwrap();
    let ahead = ask(&first, options("b", secs(10)).token_above(floor)).await.unwrap();
    assert_eq!(ahead.token(), floor.as_u64() + 1);

    // Wait for a release.
    try_once(&second, "a").await.unwrap_err();
    let waiting = tokio::spawn(async move { ask(&second, options("a", secs(10))).await });
    until("waits", || async { fixture.observer().await.waiters().await > 0 }).await;
    held.release().await;
    let next = soon("granted", waiting).await.unwrap().unwrap();
    assert!(next.token() > held.token());

    // Loss.
    observer.kill_holder("a").await;
    soon("lost", next.request.lease().ended()).await;
    assert!(matches!(next.state(), HoldState::Lost(_)), "{:?}", next.state());
    first.abandon(&next.request).await.unwrap();
    grant(&first, "a", secs(10)).await.release().await;
}

async fn a_lease_needs_no_more_than_select_insert_and_update(server: Server) {
    let fixture = Fixture::on(server);
    let mut observer = fixture.observer().await;
    schema::migrate(&fixture.config()).await.unwrap();
    let config = least(&fixture, &mut observer, &["_leases", "_lease_holders"]).await;
    let config = config.with_strategy(Strategy::Lease);
    let [first, second] = [(); 2].map(|()| Locker::from_backend(lock_mysql::backend(config.clone()).unwrap()));
    first.connect().await.unwrap();
    let held = first.lock("a").ttl(secs(20)).acquire().await.unwrap();
    held.extend(secs(60)).await.unwrap();
    assert!(second.lock("a").try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { second.lock("a").acquire().await });
    let waits = format!("SELECT COUNT(*) FROM {}_leases WHERE waiter IS NOT NULL", fixture.table);
    soon("waits", async { while observer.number(&waits).await == 0 {} }).await;
    let earlier = held.token();
    held.release().await.unwrap();
    let next = soon("granted", waiting).await.unwrap().unwrap();
    assert!(next.token() > earlier);
    // Loss.
    observer
        .run(&format!("UPDATE {}_leases SET holder=NULL", fixture.table))
        .await;
    soon("lost", next.lost()).await;
}
