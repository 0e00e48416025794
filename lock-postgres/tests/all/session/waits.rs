//! Waiting in the server's queue.

use lock_core::backend::{Attempt, DistributedLock};

use super::locks;
use crate::lease::support::*;

#[testbed::test]
async fn a_release_wakes_the_one_who_waits() {
    let fixture = Fixture::shared().await;
    let (holder, waiter) = (fixture.sessions(), fixture.sessions());
    let held = grant(&holder, "a", secs(60)).await;
    let (request, _control) = options("a", secs(60)).start();
    let waiting = begin(&waiter, &request);
    eventually("waiting", async || locks(&fixture, "a", false).await == 1).await;
    let token = held.token();
    held.release().await;
    let next = granted(happens("an answer", waiting).await.unwrap().unwrap()).expect("it is its turn");
    assert!(next.token() > token);
    // The session that waited carries it, and may carry more.
    grant(&waiter, "b", secs(60)).await;
}

#[testbed::test]
async fn a_wait_that_is_given_up_leaves_no_lock_and_no_place() {
    let fixture = Fixture::shared().await;
    let (holder, waiter) = (fixture.sessions(), fixture.sessions());
    let held = grant(&holder, "a", secs(60)).await;
    let mut processes = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let (request, control) = options("a", secs(60)).start();
        let waiting = begin(&waiter, &request);
        eventually("waiting", async || locks(&fixture, "a", false).await == 1).await;
        let find = format!(
            "SELECT pid FROM {} AND NOT l.granted AND l.objid::bigint=({}&4294967295)",
            super::LOCKS,
            super::key(&fixture, "a")
        );
        processes.insert(fixture.number(&find).await);
        control.give_up();
        let answer = happens("an answer", waiting).await.unwrap().unwrap();
        assert!(matches!(answer, Attempt::Busy(_)), "{answer:?}");
        happens("an answer", waiter.abandon(&request)).await.unwrap();
        assert_eq!(locks(&fixture, "a", false).await, 0);
    }
    assert_eq!(processes.len(), 1, "each wait takes a connection of its own");
    held.release().await;
    assert_eq!(locks(&fixture, "a", true).await, 0);
}

/// Core drops an acquire if its runtime has ended.
#[testbed::test]
async fn a_wait_that_is_dropped_leaves_nothing_once_it_was_abandoned() {
    let fixture = Fixture::shared().await;
    let (holder, waiter) = (fixture.sessions(), fixture.sessions());
    let held = grant(&holder, "a", secs(60)).await;
    let (request, _control) = options("a", secs(60)).start();
    let waiting = begin(&waiter, &request);
    eventually("waiting", async || locks(&fixture, "a", false).await == 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    happens("an answer", waiter.abandon(&request)).await.unwrap();
    assert_eq!(locks(&fixture, "a", false).await, 0);
    held.release().await;
    assert_eq!(locks(&fixture, "a", true).await, 0);
}

#[testbed::test]
async fn a_wait_that_an_administrator_cancels_goes_on() {
    let fixture = Fixture::shared().await;
    let (holder, waiter) = (fixture.sessions(), fixture.sessions());
    let held = grant(&holder, "a", secs(60)).await;
    let (request, _control) = options("a", secs(60)).start();
    let waiting = begin(&waiter, &request);
    // The server says that it has cancelled a wait before that wait has ended. The next one begins later.
    let wait_since = format!(
        "FROM pg_locks WHERE locktype='advisory' AND NOT granted AND ((classid::bigint<<32)|objid::bigint)={} AND waitstart>",
        super::key(&fixture, "a")
    );
    let mut since = "-infinity".to_owned();
    for what in ["pg_cancel_backend(pid)", "pg_terminate_backend(pid,20000)"] {
        let end = format!("SELECT CASE WHEN {what} THEN waitstart END {wait_since}'{since}'");
        since = eventually("waiting", async || fixture.value(&end).await).await;
    }
    let waits = format!("SELECT true {wait_since}'{since}'");
    eventually("waiting", async || fixture.value(&waits).await).await;
    held.release().await;
    assert!(granted(happens("an answer", waiting).await.unwrap().unwrap()).is_some());
}
