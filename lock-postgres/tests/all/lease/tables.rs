//! The tables: made together, cleaned up, and read by people.

use futures_util::future::join_all;
use lock_core::backend::{DistributedLock, Mode};

use super::support::*;

#[testbed::test]
async fn many_clients_make_the_tables_at_the_same_time() {
    let fixture = Fixture::shared().await;
    let table = format!("{}_new", fixture.table);
    let clients: Vec<_> = (0..8)
        .map(|_| lock_postgres::LeaseTableBackend::new(fixture.config().with_table(&table)).unwrap())
        .collect();
    for connected in join_all(clients.iter().map(|client| client.connect())).await {
        connected.unwrap();
    }
    // And those that go missing later are made again.
    let drop_all = format!("DROP TABLE {table}_leases,{table}_holders,{table}_waiters");
    fixture.observer().await.batch_execute(&drop_all).await.unwrap();
    grant(&clients[0], "a", secs(60)).await.release().await;
}

#[testbed::test]
async fn tables_are_made_after_others_have_made_theirs() {
    let fixture = Fixture::shared().await;
    let others = fixture.observer().await;
    others
        .batch_execute("SELECT pg_advisory_lock(7308332240012276590)")
        .await
        .unwrap();
    let config = fixture.config().with_table(format!("{}_late", fixture.table));
    let making = tokio::spawn(async move { lock_postgres::schema::migrate(&config).await });
    let waiting = "SELECT 'yes' FROM pg_locks WHERE locktype='advisory' AND NOT granted AND objid::bigint=7308332240012276590&4294967295";
    eventually("it to wait", async || fixture.value(waiting).await).await;
    // Longer than a request of the backend waits for a lock.
    tokio::time::sleep(secs(2)).await;
    assert!(!making.is_finished());
    others
        .batch_execute("SELECT pg_advisory_unlock(7308332240012276590)")
        .await
        .unwrap();
    happens("the tables to be made", making).await.unwrap().unwrap();
}

#[testbed::test]
async fn a_row_is_deleted_when_nobody_has_used_it_for_long() {
    let fixture = Fixture::shared().await;
    let backend = lock_postgres::LeaseTableBackend::new(fixture.config().with_retention(secs(60))).unwrap();
    for name in ["old", "new", "ahead", "held"] {
        let held = grant(&backend, name, secs(60)).await;
        if name != "held" {
            held.release().await;
        }
    }
    let age = "UPDATE {}_leases SET last_token=(extract(epoch from now())*1000000)::bigint-120000000 \
               WHERE name IN ('old','ahead');\
               UPDATE {}_leases SET last_token=(extract(epoch from now())*1000000)::bigint+999000000 WHERE name='ahead'";
    fixture
        .observer()
        .await
        .batch_execute(&age.replace("{}", &fixture.table))
        .await
        .unwrap();
    assert_eq!(backend.clean_up().await.unwrap(), 1);
    let left = fixture
        .value("SELECT string_agg(encode(name,'escape'),' ' ORDER BY name) FROM {}_leases")
        .await;
    assert_eq!(left.as_deref(), Some("ahead held new"));
}

#[testbed::test]
async fn a_label_and_a_mode_are_there_for_people() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let _reader = try_in(&backend, "a\\b'\u{0}", Mode::Shared).await.unwrap();
    let status = backend.status(&name("a\\b'\u{0}")).await.unwrap();
    assert_eq!(status.holders.len(), 1);
    assert_eq!(status.holders[0].mode, Some(Mode::Shared));
    assert!(status.holders[0].since.is_some() && status.holders[0].id.is_some());
}
