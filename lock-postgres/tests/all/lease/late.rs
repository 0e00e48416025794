//! Requests that the server executes after their caller has given them up.

use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome};
use lock_postgres::{LeaseTableBackend, Pooler};

use super::support::*;

/// Its requests wait for rows as long as for an answer: behind a pooler of transactions no connection sets its own `lock_timeout`.
fn waits_for_rows(fixture: &Fixture) -> LeaseTableBackend {
    LeaseTableBackend::new(fixture.config().with_pooler(Pooler::Transaction)).unwrap()
}

#[testbed::test]
async fn an_acquire_that_waits_for_its_row_takes_nothing_once_it_was_abandoned() {
    // If the machine stands still, the acquire fails after waiting for a second.
    in_some_run("the acquire does not wait for its row", waits_and_takes_nothing).await;
}

async fn waits_and_takes_nothing() -> bool {
    let fixture = Fixture::shared().await;
    let (asks, abandons) = (fixture.backend(), fixture.backend());
    grant(&asks, "a", secs(600)).await.release().await;
    let locking = fixture.lock_row("a").await;
    let (request, control) = options("a", secs(600)).waits(false).start();
    let asking = begin(&asks, &request);
    eventually("asking", async || {
        fixture.waiting_for_rows().await == 1 || asking.is_finished()
    })
    .await;
    // The tombstone is written by whoever has the row, as an abandon over another connection would.
    let bury = format!(
        "UPDATE {}_leases SET dead=ARRAY['{}'::uuid],dead_at=ARRAY[now()] WHERE name='a';COMMIT",
        fixture.table,
        request.holder()
    );
    locking.batch_execute(&bury).await.unwrap();
    let attempt = match happens("the task ends", asking).await.unwrap() {
        Err(error) if error.is_retryable() && error.is_not_executed() => return false,
        attempt => attempt.unwrap(),
    };
    assert!(granted(attempt).is_none(), "a dead id was granted");
    drop(control);
    grant(&abandons, "a", secs(600)).await;
    true
}

#[testbed::test]
async fn an_unanswered_acquire_is_buried_and_comes_to_nothing() {
    // If the machine stands still, the server's refusal after a second comes before the end of the timeout.
    in_some_run("the acquire is answered", is_buried).await;
}

async fn is_buried() -> bool {
    let fixture = Fixture::shared().await;
    let config = fixture
        .config()
        .with_response_timeout(std::time::Duration::from_millis(500));
    let backend = LeaseTableBackend::new(config).unwrap();
    // Only one request is not to be answered.
    let patient = fixture.backend();
    grant(&patient, "a", secs(600)).await.release().await;
    let locking = fixture.lock_row("a").await;
    let (request, _control) = options("a", secs(600)).waits(false).start();
    let unanswered = happens("an answer to the acquire", backend.acquire(&request))
        .await
        .unwrap_err();
    assert!(unanswered.is_retryable(), "{unanswered}");
    if unanswered.is_not_executed() {
        return false;
    }
    locking.batch_execute("COMMIT").await.unwrap();
    eventually("abandoning", async || backend.abandon(&request).await.is_ok()).await;
    let dead = fixture
        .value("SELECT dead FROM {}_leases WHERE name='a'")
        .await
        .unwrap();
    assert!(dead.replace('-', "").contains(&request.holder().to_string()), "{dead}");
    // Whatever was under way, and a request that comes now.
    let answer = eventually("an answer", async || backend.acquire(&request).await).await;
    assert!(granted(answer).is_none());
    assert_eq!(
        grant(&patient, "a", secs(600)).await.release().await,
        ReleaseOutcome::Released
    );
    true
}

#[testbed::test]
async fn an_abandon_leaves_others_alone_and_is_idempotent() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = grant(&backend, "a", secs(600)).await;
    let (request, _control) = options("a", secs(600)).waits(false).start();
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
    let backend = waits_for_rows(&fixture);
    let held = grant(&backend, "a", secs(600)).await;
    let locking = fixture.lock_row("a").await;
    let (request, _control) = options("a", secs(600)).start();
    let queueing = begin(&backend, &request);
    eventually("entering the queue", async || fixture.waiting_for_rows().await == 1).await;
    queueing.abort();
    let abandoning = {
        let (backend, request) = (backend.clone(), request.clone());
        tokio::spawn(async move { backend.abandon(&request).await })
    };
    eventually("abandoning", async || fixture.waiting_for_rows().await == 2).await;
    locking.batch_execute("COMMIT").await.unwrap();
    happens("an answer to the abandon", abandoning).await.unwrap().unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM {}_waiters").await, 0);
    assert_eq!(held.release().await, ReleaseOutcome::Released);
}

/// As all that ends an id does. In another order two of them could wait for each other.
#[testbed::test]
async fn a_waiter_that_asks_locks_the_name_s_row_before_its_entry() {
    let fixture = Fixture::shared().await;
    let held = grant(&fixture.backend(), "a", secs(60)).await;
    let waits = waits_for_rows(&fixture);
    let (request, _control) = options("a", secs(60)).start();
    let waiting = begin(&waits, &request);
    eventually("queueing", async || {
        fixture.number("SELECT count(*) FROM {}_waiters").await == 1
    })
    .await;
    let locking = fixture.lock_row("a").await;
    eventually("asking again", async || fixture.waiting_for_rows().await == 1).await;
    let delete = format!(
        "SET LOCAL lock_timeout='200ms';DELETE FROM {}_waiters WHERE name='a'",
        fixture.table
    );
    locking.batch_execute(&delete).await.expect("the entry is not locked");
    locking.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(held.release().await, ReleaseOutcome::Released);
    assert!(granted(happens("an answer", waiting).await.unwrap().unwrap()).is_some());
}

#[testbed::test]
async fn a_release_whose_tombstone_is_refused_has_released_nothing() {
    // If the machine stands still, other requests are not answered in time.
    in_some_run("another request is not answered", is_refused_and_releases_nothing).await;
}

/// Only the acquire is not to be answered. Behind a pooler of transactions no `lock_timeout` answers it.
async fn is_refused_and_releases_nothing() -> bool {
    let fixture = Fixture::shared().await;
    let config = fixture
        .config()
        .with_pooler(Pooler::Transaction)
        .with_response_timeout(std::time::Duration::from_millis(500));
    let backend = LeaseTableBackend::new(config).unwrap();
    grant(&fixture.backend(), "a", secs(60)).await.release().await;
    let locking = fixture.lock_row("a").await;
    let (request, _control) = options("a", secs(60)).waits(false).start();
    let unanswered = happens("an answer", backend.acquire(&request)).await.unwrap_err();
    if unanswered.is_not_executed() {
        return false;
    }
    locking.batch_execute("COMMIT").await.unwrap();
    // The same id again: this time with an answer, and over another connection.
    let hold = eventually("the grant", async || {
        backend.acquire(&request).await.ok().and_then(granted)
    })
    .await;
    let refuse = "CREATE FUNCTION {}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no tombstone'; END$$;\
                  CREATE TRIGGER refuse BEFORE UPDATE OF dead ON {}_leases FOR EACH ROW EXECUTE FUNCTION {}_refuse()";
    let run = async |sql: &str| {
        let sql = sql.replace("{}", &fixture.table);
        locking.batch_execute(&sql).await.unwrap();
    };
    run(refuse).await;
    let kept = ReleaseOptions::default().keep_for(secs(3600));
    let error = hold.release(kept).await.unwrap_err();
    let held = format!("SELECT count(*) FROM {{}}_leases WHERE holder='{}'", request.holder());
    if !error.to_string().contains("no tombstone") {
        return false;
    }
    assert!(error.is_not_executed(), "{error}");
    assert_eq!(fixture.number(&held).await, 1, "the release was executed after all");
    run("DROP TRIGGER refuse ON {}_leases;DROP FUNCTION {}_refuse()").await;
    match hold.release(kept).await {
        Err(error) if error.is_retryable() => return false,
        released => assert_eq!(released.unwrap(), ReleaseOutcome::Released),
    }
    assert_eq!(fixture.number(&held).await, 0);
    assert!(
        acquire(&fixture.backend(), options("a", secs(60)).waits(false))
            .await
            .is_none(),
        "the name is kept"
    );
    true
}
