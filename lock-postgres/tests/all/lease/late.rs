//! Requests that the server executes after their caller has given them up.

use lock_core::backend::{DistributedLock, ReleaseOutcome};

use super::support::*;

/// Locks the row of "a" in a transaction of the observer's.
const LOCK: &str = "BEGIN;SELECT FROM {}_leases WHERE name='a' FOR UPDATE";

#[testbed::test]
async fn an_acquire_that_waits_for_its_row_takes_nothing_once_it_was_abandoned() {
    let fixture = Fixture::shared().await;
    let (asks, abandons) = (fixture.backend(), fixture.backend());
    grant(&asks, "a", secs(60)).await.release().await;
    let locking = fixture.observer().await;
    locking
        .batch_execute(&LOCK.replace("{}", &fixture.table))
        .await
        .unwrap();
    let (request, control) = options("a", secs(60)).waits(false).start();
    let asking = begin(&asks, &request);
    until("asking", async || fixture.waiting_for_rows().await == 1).await;
    // The tombstone is written by whoever has the row, as an abandon over another connection would.
    let bury = format!(
        "UPDATE {}_leases SET dead=ARRAY['{}'::uuid],dead_at=ARRAY[now()] WHERE name='a';COMMIT",
        fixture.table,
        request.holder()
    );
    locking.batch_execute(&bury).await.unwrap();
    assert!(
        granted(soon(asking).await.unwrap().unwrap()).is_none(),
        "a dead id was granted"
    );
    drop(control);
    grant(&abandons, "a", secs(60)).await;
}

#[testbed::test]
async fn an_unanswered_acquire_is_buried_and_comes_to_nothing() {
    let fixture = Fixture::shared().await;
    let config = fixture
        .config()
        .with_response_timeout(std::time::Duration::from_millis(500));
    let backend = lock_postgres::LeaseTableBackend::new(config).unwrap();
    grant(&backend, "a", secs(60)).await.release().await;
    let locking = fixture.observer().await;
    locking
        .batch_execute(&LOCK.replace("{}", &fixture.table))
        .await
        .unwrap();
    let (request, _control) = options("a", secs(60)).waits(false).start();
    let unanswered = soon(backend.acquire(&request)).await.unwrap_err();
    assert!(
        unanswered.is_retryable() && !unanswered.is_not_executed(),
        "{unanswered}"
    );
    locking.batch_execute("COMMIT").await.unwrap();
    until("abandoning", async || backend.abandon(&request).await.is_ok()).await;
    let dead = fixture
        .value("SELECT dead FROM {}_leases WHERE name='a'")
        .await
        .unwrap();
    assert!(dead.replace('-', "").contains(&request.holder().to_string()), "{dead}");
    // Whatever was under way, and a request that comes now.
    assert!(granted(backend.acquire(&request).await.unwrap()).is_none());
    assert_eq!(
        grant(&backend, "a", secs(60)).await.release().await,
        ReleaseOutcome::Released
    );
}

#[testbed::test]
async fn an_abandon_leaves_others_alone_and_is_idempotent() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = grant(&backend, "a", secs(60)).await;
    let (request, _control) = options("a", secs(60)).waits(false).start();
    assert!(granted(backend.acquire(&request).await.unwrap()).is_none());
    for _ in 0..2 {
        backend.abandon(&request).await.unwrap();
    }
    let dead = fixture
        .number("SELECT cardinality(dead) FROM {}_leases WHERE name='a'")
        .await;
    assert_eq!(dead, 0, "it was answered, so nothing can come of it");
    assert_eq!(held.release().await, ReleaseOutcome::Released);
}

/// An abandon that waited for the row behind it has to see it.
#[testbed::test]
async fn an_entry_of_an_abandoned_request_keeps_nobody_waiting() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = grant(&backend, "a", secs(60)).await;
    let locking = fixture.observer().await;
    locking
        .batch_execute(&LOCK.replace("{}", &fixture.table))
        .await
        .unwrap();
    let (request, _control) = options("a", secs(60)).start();
    let queueing = begin(&backend, &request);
    until("entering the queue", async || fixture.waiting_for_rows().await == 1).await;
    queueing.abort();
    let abandoning = {
        let (backend, request) = (backend.clone(), request.clone());
        tokio::spawn(async move { backend.abandon(&request).await })
    };
    until("abandoning", async || fixture.waiting_for_rows().await == 2).await;
    locking.batch_execute("COMMIT").await.unwrap();
    if soon(abandoning).await.unwrap().is_err() {
        // On a busy machine it may have waited for too long.
        until("abandoning", async || backend.abandon(&request).await.is_ok()).await;
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {}_waiters").await, 0);
    assert_eq!(held.release().await, ReleaseOutcome::Released);
}
