//! Fencing tokens over majorities that differ.

use std::time::Duration;

use lock_core::{FencingToken, Locker, MemoryBackend};
use tokio::time::sleep;

use crate::support::{Servers, TTL};

/// All servers count for themselves, and far apart.
fn apart() -> Servers {
    let servers = Servers::new(3);
    servers.use_up_tokens(1, 100);
    servers.use_up_tokens(2, 1000);
    servers
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_over_different_majorities() {
    let servers = apart();
    let client = servers.client();
    let mut last = None;
    for down in [2, 0, 1, 0, 2, 1, 1, 0, 2] {
        client.links[down].cut();
        let guard = client.locks.lock("a").acquire().await.unwrap();
        assert!(Some(guard.token()) > last, "{:?} after {last:?}", guard.token());
        last = Some(guard.token());
        guard.release().await.unwrap();
        client.links[down].heal();
        servers.until_free("a").await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_answer_the_token_needs_no_second_round() {
    let servers = apart();
    let client = servers.client();
    for round in 0..3 {
        client.locks.lock("a").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(servers.counts.take(), [3, 0, 3], "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_raised_is_remembered_by_its_node() {
    let servers = apart();
    let client = servers.client();
    client.links[2].cut();
    let first = client.locks.lock("a").acquire().await.unwrap();
    assert!(first.token().as_u64() > 100, "the larger one of two");
    let [_, raises, _] = servers.counts.take();
    assert_eq!(raises, 1, "the lower one");
    let token = first.token();
    first.release().await.unwrap();
    // The node that was raised alone decides whether the next one is larger.
    let next = next_token_at(&servers, 0).await;
    assert!(next > token, "{next:?} after {token:?}");
}

/// The token of the next hold at this server alone.
async fn next_token_at(servers: &Servers, node: usize) -> FencingToken {
    let direct = Locker::new(servers.servers[node].clone());
    direct.lock("a").acquire().await.unwrap().token()
}

/// A token that only two of three nodes store is forgotten with one of them.
#[tokio::test(start_paused = true)]
async fn a_vote_that_arrives_after_the_grant_is_raised() {
    let servers = apart();
    let client = servers.client();
    client.links[0].hold_replies_after(0);
    let guard = client.locks.lock("a").acquire().await.unwrap();
    let token = guard.token();
    assert!(token.as_u64() > 1000, "the larger one of two");
    client.links[0].heal();
    sleep(Duration::from_secs(1)).await;
    guard.release().await.unwrap();
    servers.until_free("a").await;
    for node in 0..3 {
        let next = next_token_at(&servers, node).await;
        assert!(next > token, "node {node}: {next:?} after {token:?}");
    }
}

/// The lowest of three tokens is no part of the decision.
#[tokio::test(start_paused = true)]
async fn a_renewal_raises_lower_votes() {
    let servers = apart();
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    let token = guard.token();
    assert!((100..1000).contains(&token.as_u64()), "the middle one");
    // The first one fails at that node.
    client.links[0].cut();
    sleep(TTL / 2).await;
    client.links[0].heal();
    sleep(TTL / 2).await;
    guard.release().await.unwrap();
    servers.until_free("a").await;
    for node in 0..3 {
        let next = next_token_at(&servers, node).await;
        assert!(next > token, "node {node}: {next:?} after {token:?}");
    }
}

/// One node missed the hold, one forgot it, and the one that counts ahead of both is down: the next majority knows nothing of the token.
#[tokio::test(start_paused = true)]
async fn only_a_floor_helps_if_no_majority_knows_the_last_token() {
    let mut servers = Servers::new(3);
    servers.use_up_tokens(0, 1000);
    let client = servers.client();
    client.links[2].cut();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    drop(client);
    servers.servers[0].set_available(false);
    servers.servers[1] = MemoryBackend::new();
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    assert!(guard.token() < token, "{:?} after {token:?}", guard.token());
    guard.release().await.unwrap();
    let with_floor = Locker::new(client.backend.clone()).with_token_floor(token);
    let guard = with_floor.lock("a").acquire().await.unwrap();
    assert!(guard.token() > token, "{:?} after {token:?}", guard.token());
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_the_guards_token() {
    for down in [None, Some(0), Some(1), Some(2)] {
        let servers = apart();
        let client = servers.client();
        if let Some(down) = down {
            client.links[down].cut();
        }
        let guard = client.locks.lock("a").acquire().await.unwrap();
        let status = client.locks.status("a").await.unwrap();
        assert_eq!(status.holders[0].token, Some(guard.token()), "down: {down:?}");
    }
}

/// The reply to the raise is under way when the third answer comes, whose token lies between the others.
#[tokio::test(start_paused = true)]
async fn the_status_shows_the_guards_token_after_a_raise_that_was_not_needed() {
    let servers = apart();
    let client = servers.client();
    client.locks.lock("b").acquire().await.unwrap().release().await.unwrap();
    servers.until_free("b").await;
    client.links[0].hold_replies_after(1);
    client.links[1].delay(Duration::from_millis(20));
    let guard = client.locks.lock("a").acquire().await.unwrap();
    let status = servers.client().locks.status("a").await.unwrap();
    assert_eq!(status.holders[0].token, Some(guard.token()));
    let [_, raises, _] = servers.counts.take();
    assert!(raises > 0);
}
