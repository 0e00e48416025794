//! The end of a hold at all nodes.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Hold, ReleaseOptions, ReleaseOutcome};
use lock_core::{ErrorKind, LockName};
use lock_quorum::rules;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};

use crate::support::{Client, Servers, TTL};

#[tokio::test(start_paused = true)]
async fn a_release_reaches_a_node_that_has_not_answered_yet() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[1].hold_replies_after(0);
    let guard = client.locks.lock("a").acquire().await.unwrap();
    assert!(servers.holder(1, "a").await.is_some(), "its vote is on its way");
    guard.release().await.unwrap();
    client.links[1].heal();
    servers.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_release_reaches_a_node_that_was_cut_off() {
    let servers = Servers::new(3);
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    client.links[1].cut();
    guard.release().await.unwrap();
    assert!(servers.holder(1, "a").await.is_some(), "it was not told yet");
    client.links[1].heal();
    servers.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_release_that_a_majority_did_not_answer_is_an_error() {
    let servers = Servers::new(3);
    let client = servers.client();
    let (_request, _control, hold) = granted(&client).await;
    client.links[1].cut();
    client.links[2].cut();
    let error = hold.release(ReleaseOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let line = error.to_string();
    assert!(line.contains("node 2") && line.contains("node 3"), "{line}");
    client.links[1].heal();
    client.links[2].heal();
    // It may be repeated until it is known.
    let outcome = hold.release(ReleaseOptions::default()).await.unwrap();
    assert_eq!(outcome, ReleaseOutcome::Released);
    servers.until_free("a").await;
}

/// The time within which a node whose first answer was an error is free again: long before anything expires.
const SOON: Duration = Duration::from_secs(1);

/// It hangs for longer than the others wait for it, then its connection breaks, and then it works again.
#[tokio::test(start_paused = true)]
async fn a_release_that_fails_after_it_was_reported_is_repeated() {
    let servers = Servers::new(3);
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    client.links[1].stall();
    guard.release().await.unwrap();
    assert!(servers.holder(1, "a").await.is_some(), "it has not heard of it");
    client.links[1].cut();
    client.links[1].heal();
    servers.free_within(SOON, "a").await;
}

#[tokio::test(start_paused = true)]
async fn an_abandon_that_fails_after_it_was_reported_is_repeated() {
    let servers = Servers::new(3);
    let client = servers.client();
    let (request, control, _hold) = granted(&client).await;
    control.give_up();
    client.links[1].stall();
    client.backend.abandon(&request).await.unwrap();
    assert!(servers.holder(1, "a").await.is_some(), "it has not heard of it");
    client.links[1].cut();
    client.links[1].heal();
    servers.free_within(SOON, "a").await;
}

#[test]
fn a_release_that_its_runtime_left_unanswered_is_repeated_on_the_next_one() {
    let servers = Servers::new(3);
    let client = servers.client();
    let first = runtime();
    first.block_on(async {
        let (_request, _control, hold) = granted(&client).await;
        client.links[1].stall();
        let outcome = hold.release(ReleaseOptions::default()).await.unwrap();
        assert_eq!(outcome, ReleaseOutcome::Released);
    });
    drop(first);
    client.links[1].heal();
    runtime().block_on(async {
        assert!(servers.holder(1, "a").await.is_some(), "it has not heard of it");
        // Any request goes on with what is left over.
        client.locks.lock("b").acquire().await.unwrap().release().await.unwrap();
        servers.until_free("a").await;
    });
}

#[test]
fn an_abandon_that_its_runtime_left_unanswered_is_repeated_on_the_next_one() {
    let servers = Servers::new(3);
    let client = servers.client();
    let first = runtime();
    first.block_on(async {
        let (request, control, _hold) = granted(&client).await;
        control.give_up();
        client.links[1].stall();
        client.backend.abandon(&request).await.unwrap();
    });
    drop(first);
    client.links[1].heal();
    runtime().block_on(async {
        assert!(servers.holder(1, "a").await.is_some(), "it has not heard of it");
        client.locks.lock("b").acquire().await.unwrap().release().await.unwrap();
        servers.until_free("a").await;
    });
}

/// The task that awaits the last vote ends with its runtime. Nothing but the release is asked for on the next one.
#[test]
fn a_release_goes_on_with_votes_that_a_runtime_left_over() {
    let servers = Servers::new(3);
    let client = servers.client();
    let first = runtime();
    let (_request, _control, hold) = first.block_on(async {
        client.links[2].hold_replies_after(0);
        granted(&client).await
    });
    drop(first);
    client.links[2].heal();
    runtime().block_on(async {
        assert!(servers.holder(2, "a").await.is_some(), "it has voted");
        let outcome = hold.release(ReleaseOptions::default()).await.unwrap();
        assert_eq!(outcome, ReleaseOutcome::Released);
        servers.until_free("a").await;
    });
}

/// By the clock of the machine: a paused one belongs to its runtime.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Acquires by the backend itself.
async fn granted(client: &Client) -> (AcquireRequest, RequestControl, Arc<dyn Hold>) {
    let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL));
    let (request, control) = options.start();
    match client.backend.acquire(&request).await.unwrap() {
        Attempt::Granted(hold, _armed) => (request, control, hold),
        other => panic!("{other:?}"),
    }
}

/// One node has ended its vote, and nobody knows that. The others were never asked, and somebody else holds the name there.
#[tokio::test(start_paused = true)]
async fn what_a_minority_may_have_ended_was_not_released() {
    let servers = Servers::new(3);
    let client = servers.client();
    let (_request, _control, hold) = granted(&client).await;
    client.links[0].swallow_reply(1);
    client.links[1].cut();
    client.links[2].cut();
    let error = hold.release(ReleaseOptions::default()).await.unwrap_err();
    assert!(error.is_not_executed(), "{error}");
    assert_eq!(servers.holder(0, "a").await, None, "the request has arrived");
    client.links.iter().for_each(conformance_tests::Link::heal);
    for node in [1, 2] {
        servers.servers[node].take_away("a").unwrap();
        servers.servers[node].hold_elsewhere("a", TTL).unwrap();
    }
    let outcome = hold.release(ReleaseOptions::default()).await.unwrap();
    assert_eq!(outcome, ReleaseOutcome::AlreadyLost);
}

#[tokio::test(start_paused = true)]
async fn what_a_majority_may_have_ended_was_released() {
    let servers = Servers::new(3);
    let client = servers.client();
    let (_request, _control, hold) = granted(&client).await;
    client.links[0].swallow_reply(1);
    client.links[1].swallow_reply(1);
    client.links[2].cut();
    let error = hold.release(ReleaseOptions::default()).await.unwrap_err();
    assert!(!error.is_not_executed(), "{error}");
    client.links[2].heal();
    servers.servers[2].take_away("a").unwrap();
    let outcome = hold.release(ReleaseOptions::default()).await.unwrap();
    assert_eq!(outcome, ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_a_majority_forgot_was_lost_before_its_release() {
    let servers = Servers::new(3);
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    servers.servers[0].take_away("a").unwrap();
    servers.servers[1].take_away("a").unwrap();
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    servers.until_free("a").await;
}

/// All votes of its first attempt have ended at their nodes before it asks again.
#[tokio::test(start_paused = true)]
async fn an_abandon_finds_what_was_granted_after_a_collision() {
    let servers = Servers::new(3);
    let client = servers.client();
    for node in rules::order("a", 3).skip(1) {
        servers.servers[node].hold_elsewhere("a", 2 * TTL / 5).unwrap();
    }
    let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL));
    let (request, control) = options.start();
    let started = Instant::now();
    let granted = client.backend.acquire(&request).await.unwrap();
    assert!(matches!(granted, Attempt::Granted(..)));
    assert!(
        started.elapsed() > TTL / 3,
        "the other nodes were waited for in one round"
    );
    control.give_up();
    client.backend.abandon(&request).await.unwrap();
    servers.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_until_all_nodes_have_heard() {
    let servers = Servers::new(3);
    let client = servers.client();
    drop(client.locks.lock("a").acquire().await.unwrap());
    client.locks.shutdown().await.unwrap();
    for node in 0..3 {
        assert_eq!(servers.holder(node, "a").await, None, "node {node}");
    }
    sleep(TTL).await;
}
