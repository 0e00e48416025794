//! After a start or a promotion a server grants nothing until all who may count on its old locks have lost them.

use lock_core::ErrorKind;
use lock_core::backend::{Attempt, DistributedLock};
use lock_postgres::{PostgresConfig, SessionBackend, Strategy};
use testbed::assert_safe;
use tokio::time::Instant;

use crate::lease::support::*;

/// Asks until it is granted. Before, it is refused for this reason alone. Returns whether it was.
async fn granted_in_the_end(backend: &SessionBackend, of: &str) -> bool {
    let mut was_refused = false;
    eventually("a grant", async || {
        let (request, _control) = options(of, secs(60)).waits(false).start();
        match backend.acquire(&request).await {
            Ok(attempt) => matches!(attempt, Attempt::Granted(..)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(
                    error.is_not_executed() && error.to_string().contains("restart_delay"),
                    "{error}"
                );
                was_refused = true;
                false
            }
        }
    })
    .await;
    was_refused
}

#[testbed::test]
async fn a_server_that_was_started_grants_nothing_at_first() {
    // If the machine stands still, the delay is over before the first request.
    in_some_run("nobody was refused", async || {
        let fixture = Fixture::own(testbed::Postgres::new()).await;
        let backend = SessionBackend::new(fixture.session_config().with_restart_delay(secs(5))).unwrap();
        let was_refused = granted_in_the_end(&backend, "a").await;
        let age = "SELECT extract(epoch from clock_timestamp()-pg_postmaster_start_time())::bigint";
        assert!(fixture.number(age).await >= 5);
        was_refused
    })
    .await;
}

#[testbed::test]
async fn a_server_that_was_promoted_grants_nothing_at_first() {
    let fixture = Fixture::shared().await;
    let config = fixture.session_config().with_restart_delay(secs(2));
    let before = SessionBackend::new(config.clone()).unwrap();
    // The server may have been started just now.
    granted_in_the_end(&before, "b").await;
    // As on a standby that replicated another timeline, and was promoted.
    let other = format!("UPDATE {}_tokens SET token=token+1 WHERE name=''", fixture.table);
    fixture.observer().await.batch_execute(&other).await.unwrap();
    let begun = fixture.value("SELECT clock_timestamp()").await.unwrap();
    granted_in_the_end(&SessionBackend::new(config).unwrap(), "a").await;
    let since = format!("SELECT (extract(epoch from clock_timestamp()-'{begun}')*1000)::bigint");
    assert!(fixture.number(&since).await >= 2000);
    // Those who were connected to it before know that it is the same server.
    grant(&before, "c", secs(60)).await;
}

/// As an asynchronous standby, or one whose table was emptied. Its process has run for longer than the delay.
#[testbed::test]
async fn a_standby_that_was_promoted_without_the_row_grants_nothing_at_first() {
    let servers = testbed::Postgres::new().start_replicated(1).await.unwrap();
    let age = "SELECT extract(epoch from clock_timestamp()-pg_postmaster_start_time())>6";
    eventually("older than the delay", async || {
        servers.call(1, age).await.unwrap() == ["t"]
    })
    .await;
    servers[0].kill().unwrap();
    servers.promote(1).await.unwrap();
    let config = PostgresConfig::from_url(&servers[1].url()).unwrap();
    let config = config.with_connect_timeout(PATIENCE).with_response_timeout(PATIENCE);
    let config = config.with_strategy(Strategy::Session).with_restart_delay(secs(5));
    let backend = SessionBackend::new(config.clone()).unwrap();
    assert_safe!(granted_in_the_end(&backend, "a").await, "granted within the delay");
    // From then on it is known.
    grant(&SessionBackend::new(config).unwrap(), "b", secs(60)).await;
}

/// Two clients of a server that was promoted. The row is changed by one, and not yet committed.
#[testbed::test]
async fn the_second_one_who_sees_a_promotion_waits_for_the_first() {
    let fixture = Fixture::shared().await;
    let config = fixture.session_config().with_restart_delay(secs(5));
    granted_in_the_end(&SessionBackend::new(config.clone()).unwrap(), "b").await;
    let change = |change: &str| format!("UPDATE {}_tokens SET {change} WHERE name=''", fixture.table);
    let observer = fixture.observer().await;
    let now = "(extract(epoch from clock_timestamp())*1000000)::bigint";
    let first = format!("BEGIN;{}", change(&format!("token=token-1,last_token={now}")));
    // If the machine stands still, the row is locked for too long, or the delay is over by the commit.
    in_some_run("the second one does not wait for the first and its delay", async || {
        observer.batch_execute(&change("token=token+1")).await.unwrap();
        let changed = Instant::now();
        observer.batch_execute(&first).await.unwrap();
        let backend = SessionBackend::new(config.clone()).unwrap();
        let (request, _control) = options("a", secs(60)).waits(false).start();
        let asking = begin(&backend, &request);
        let mut waits = false;
        eventually("waiting for the row, or an answer", async || {
            waits = fixture.waiting_for_rows().await == 1;
            waits || asking.is_finished()
        })
        .await;
        observer.batch_execute("COMMIT").await.unwrap();
        match happens("an answer", asking).await.unwrap() {
            Ok(answer) => {
                // Its delay counts from a moment after that.
                assert_safe!(changed.elapsed() >= secs(5), "granted within the delay: {answer:?}");
                happens("an answer", backend.abandon(&request)).await.unwrap();
                Err(format!("{answer:?}"))
            }
            Err(refused) => {
                assert_eq!(refused.kind(), ErrorKind::Unavailable);
                assert!(refused.is_not_executed(), "{refused}");
                let is_so = waits && refused.to_string().contains("restart_delay");
                is_so.then_some(()).ok_or(format!("waits: {waits}, {refused}"))
            }
        }
    })
    .await;
}

#[testbed::test]
async fn a_server_whose_time_of_promotion_cannot_be_read_grants_nothing() {
    let fixture = Fixture::shared().await;
    let config = fixture.session_config().with_restart_delay(secs(2));
    granted_in_the_end(&SessionBackend::new(config.clone()).unwrap(), "b").await;
    let observer = fixture.observer().await;
    let other = format!("UPDATE {}_tokens SET token=token+1 WHERE name=''", fixture.table);
    observer.batch_execute(&other).await.unwrap();
    let lock = format!("BEGIN;SELECT FROM {}_tokens WHERE name='' FOR UPDATE", fixture.table);
    observer.batch_execute(&lock).await.unwrap();
    let backend = SessionBackend::new(config).unwrap();
    let (request, _control) = options("a", secs(60)).waits(false).start();
    let error = happens("an answer", backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.is_not_executed() && error.to_string().contains("locks rows"),
        "{error}"
    );
    observer.batch_execute("COMMIT").await.unwrap();
    granted_in_the_end(&backend, "a").await;
}
