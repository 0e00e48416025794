//! The statements by which acquires are undone, counted in the server's log.

use futures_util::future::join_all;
use lock_core::HoldState;
use lock_core::backend::DistributedLock;
use testbed::stays_below;

use super::log::{logged, that_logs};
use crate::lease::support::*;

const MANY: i64 = 20;

/// Otherwise each undo takes longer the more locks there are, and all that share its session wait.
#[testbed::test]
async fn undoing_a_grant_looks_through_no_other_locks() {
    let fixture = Fixture::own(that_logs()).await;
    let backend = fixture.sessions();
    for number in 0..MANY {
        let asked = options(&format!("name {number}"), secs(60)).waits(false);
        let (request, _control) = asked.start();
        let attempt = happens("an answer", backend.acquire(&request)).await.unwrap();
        let _hold = granted(attempt).expect("the name is free");
        happens("an answer", backend.abandon(&request)).await.unwrap();
    }
    assert_eq!(logged(&fixture, "pg_advisory[_]unlock").await, MANY);
    assert_eq!(logged(&fixture, "pg[_]locks").await, 0);
    let left = "SELECT count(*) FROM pg_locks WHERE locktype='advisory'";
    assert_eq!(fixture.number(left).await, 0);
}

#[testbed::test]
async fn a_session_that_broke_is_ended_once_for_all_that_it_carried() {
    let fixture = Fixture::own(that_logs()).await;
    // A server that is slow may be asked again.
    stays_below(2, "each claim ends the session", async || {
        ends_of_session(&fixture).await
    })
    .await;
}

/// How often a session with many claims is ended, once it broke.
async fn ends_of_session(fixture: &Fixture) -> i64 {
    let backend = fixture.sessions();
    let requests: Vec<_> = (0..MANY)
        .map(|number| options(&format!("name {number}"), secs(60)).waits(false).start())
        .collect();
    let mut holds = Vec::new();
    for (request, _control) in &requests {
        let attempt = happens("an answer", backend.acquire(request)).await.unwrap();
        holds.push(granted(attempt).expect("the name is free"));
    }
    let end = "SELECT pg_terminate_backend(pid,20000) FROM pg_locks WHERE locktype='advisory' LIMIT 1";
    assert_eq!(fixture.value(end).await.as_deref(), Some("t"));
    eventually("the loss", async || {
        let mut leases = requests.iter().map(|(request, _control)| request.lease().state());
        leases.all(|state| matches!(state, HoldState::Lost(_)))
    })
    .await;
    let before = logged(fixture, "pg_terminate[_]backend").await;
    let abandoned = join_all(requests.iter().map(|(request, _control)| backend.abandon(request)));
    for abandoned in happens("all answers", abandoned).await {
        abandoned.unwrap();
    }
    let ends = logged(fixture, "pg_terminate[_]backend").await - before;
    assert!(ends > 0, "nobody ended it");
    drop(holds);
    ends
}
