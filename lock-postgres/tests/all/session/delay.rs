//! After a start or a promotion a server grants nothing until all who may count on its old locks have lost them.

use lock_core::ErrorKind;
use lock_core::backend::{Attempt, DistributedLock};
use lock_postgres::SessionBackend;

use crate::lease::support::*;

/// Asks until it is granted. Before, it is refused for this reason alone.
async fn granted_in_the_end(backend: &SessionBackend, of: &str) {
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
                false
            }
        }
    })
    .await;
}

#[testbed::test]
async fn a_server_that_was_started_grants_nothing_at_first() {
    let fixture = Fixture::own(testbed::Postgres::new()).await;
    let backend = SessionBackend::new(fixture.session_config().with_restart_delay(secs(5))).unwrap();
    granted_in_the_end(&backend, "a").await;
    let age = "SELECT extract(epoch from clock_timestamp()-pg_postmaster_start_time())::bigint";
    assert!(fixture.number(age).await >= 5);
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
