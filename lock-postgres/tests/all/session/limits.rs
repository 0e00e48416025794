//! How much of the server one process may take.

use lock_core::ErrorKind;
use lock_core::backend::{Attempt, DistributedLock};
use lock_postgres::SessionBackend;

use super::locks;
use crate::lease::support::*;

#[testbed::test]
async fn no_more_names_than_allowed_are_asked_for() {
    let fixture = Fixture::shared().await;
    let backend = SessionBackend::new(fixture.session_config().with_max_holds(2)).unwrap();
    let (first, _second) = (
        grant(&backend, "a", secs(60)).await,
        grant(&backend, "b", secs(60)).await,
    );
    let (request, _control) = options("c", secs(60)).waits(false).start();
    let error = happens("an answer", backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.is_not_executed() && error.to_string().contains("max_holds"),
        "{error}"
    );
    first.release().await;
    grant(&backend, "c", secs(60)).await;
}

#[testbed::test]
async fn no_more_names_than_allowed_are_waited_for() {
    let fixture = Fixture::shared().await;
    let (holder, backend) = (
        fixture.sessions(),
        SessionBackend::new(fixture.session_config().with_max_connections(2)).unwrap(),
    );
    let _held = (grant(&holder, "a", secs(60)).await, grant(&holder, "b", secs(60)).await);
    let (waits, _waiting) = options("a", secs(60)).start();
    let waiting = begin(&backend, &waits);
    eventually("waiting", async || locks(&fixture, "a", false).await == 1).await;
    let (other, _control) = options("b", secs(60)).start();
    let answer = happens("an answer", backend.acquire(&other)).await.unwrap();
    assert!(matches!(answer, Attempt::Busy(_)), "{answer:?}");
    // What is free can still be had.
    grant(&backend, "c", secs(60)).await;
    waiting.abort();
}
