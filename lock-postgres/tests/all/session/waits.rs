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
    for what in ["pg_cancel_backend(pid)", "pg_terminate_backend(pid,20000)"] {
        eventually("waiting", async || locks(&fixture, "a", false).await == 1).await;
        let end = format!(
            "SELECT {what} FROM pg_locks WHERE locktype='advisory' AND NOT granted AND \
             ((classid::bigint<<32)|objid::bigint)={}",
            super::key(&fixture, "a")
        );
        assert_eq!(fixture.value(&end).await.as_deref(), Some("t"));
    }
    eventually("waiting", async || locks(&fixture, "a", false).await == 1).await;
    held.release().await;
    assert!(granted(happens("an answer", waiting).await.unwrap().unwrap()).is_some());
}
