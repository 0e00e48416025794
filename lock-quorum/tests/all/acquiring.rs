//! Which nodes have to agree, and what becomes of votes that came to nothing.

use std::pin::pin;
use std::time::Duration;

use conformance_tests::Link;
use futures_util::FutureExt;
use futures_util::future::join;
use lock_core::ErrorKind;
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, DistributedLock};
use lock_core::{LockName, Locker};
use lock_quorum::NodeErrors;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Servers, TTL};

#[tokio::test(start_paused = true)]
async fn every_set_of_nodes_that_are_up_decides_by_its_size() {
    for nodes in [1, 2, 3, 4, 5] {
        for down in 0..1_u32 << nodes {
            let servers = Servers::new(nodes);
            let client = servers.client();
            for node in (0..nodes).filter(|node| down & 1 << node != 0) {
                client.links[node].cut();
            }
            let up = nodes - down.count_ones() as usize;
            let lock = client.locks.lock("a");
            match lock.try_acquire().await {
                Ok(Some(guard)) => {
                    assert!(up > nodes / 2, "{nodes} nodes, down: {down:b}");
                    guard.release().await.unwrap();
                }
                Ok(None) => panic!("busy, but nobody holds it: {nodes} nodes, down: {down:b}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable);
                    assert!(up <= nodes / 2, "{nodes} nodes, down: {down:b}: {error}");
                }
            }
            servers.until_free("a").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_names_every_node_and_its_cause() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[0].cut();
    client.links[2].cut();
    let error = client.locks.lock("a").try_acquire().await.unwrap_err();
    let causes = error
        .cause()
        .and_then(|cause| cause.downcast_ref::<NodeErrors>())
        .unwrap();
    assert_eq!(causes.iter().map(|(node, _)| node).collect::<Vec<_>>(), [1, 3]);
    let line = error.to_string();
    assert!(
        line.contains("2 of 3 nodes") && line.contains("node 1") && line.contains("node 3"),
        "{line}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_a_name_is_not_called_taken() {
    let servers = Servers::new(3);
    let client = servers.client();
    servers.servers[1].hold_elsewhere("a", TTL).unwrap();
    client.links[0].cut();
    client.links[2].cut();
    let error = client.locks.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_silent_majority_ends_a_try_with_its_time_limit() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[0].stall();
    client.links[1].stall();
    let started = Instant::now();
    let error = client.locks.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() <= Duration::from_secs(6), "{:?}", started.elapsed());
    client.links.iter().for_each(Link::heal);
    servers.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_costs_its_patience_once() {
    let servers = Servers::new(3);
    let client = servers.client();
    let lock = client.locks.lock("a");
    client.links[lock_quorum::rules::order("a", 3).next().unwrap()].stall();
    let mut took = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        lock.acquire().await.unwrap().release().await.unwrap();
        took.push(started.elapsed());
    }
    assert!(took[0] <= Duration::from_millis(1100), "{took:?}");
    assert!(
        took[1..].iter().all(|took| *took <= Duration::from_millis(10)),
        "{took:?}"
    );
}

/// The first vote's answer arrives when its acquire has failed, and the node is cut off.
#[tokio::test(start_paused = true)]
async fn a_late_answer_counts_only_for_its_own_vote_and_is_undone() {
    let servers = Servers::new(3);
    let client = servers.client();
    let locks = Locker::new(client.backend.clone())
        .with_ttl(TTL)
        // Shorter than the patience, after which it would give the vote back.
        .with_operation_timeout(Duration::from_millis(400));
    client.links[2].cut();
    client.links[1].hold_replies_after(0);
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        servers.holder(1, "a").await.is_some(),
        "it was granted, and nobody knows it"
    );

    let again = locks.lock("a");
    let mut again = pin!(again.try_acquire());
    assert!(timeout(Duration::from_millis(1), &mut again).await.is_err());
    client.links[1].hold_requests();
    sleep(Duration::from_millis(1)).await;
    assert!(again.await.is_err(), "one node of three has voted");
    client.links[1].heal();
    servers.until_free("a").await;
}

/// Dropped after so many polls, whatever it was about to do.
#[tokio::test(start_paused = true)]
async fn a_dropped_acquire_leaves_nothing() {
    for waits in [false, true] {
        for polls in 0..20 {
            let servers = Servers::new(3);
            let client = servers.client();
            if waits {
                servers.servers[0].hold_elsewhere("a", Duration::from_secs(1)).unwrap();
            }
            let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL)).waits(waits);
            let (request, _control) = options.start();
            {
                let mut acquiring = Box::pin(client.backend.acquire(&request));
                for _ in 0..polls {
                    if acquiring.as_mut().now_or_never().is_some() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            if client.backend.status(request.name()).await.unwrap().is_held() {
                // Granted just before.
                client.backend.abandon(&request).await.unwrap();
            }
            servers.until_free("a").await;
        }
    }
}

/// Its node does not answer any more. The abandon comes before the acquire stops to wait for that.
#[tokio::test(start_paused = true)]
async fn an_abandon_right_after_the_end_of_the_time_does_not_hide_that_the_name_is_taken() {
    let servers = Servers::new(3);
    let client = servers.client();
    for server in &servers.servers {
        server.hold_elsewhere("a", TTL).unwrap();
    }
    let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL));
    let (request, control) = options.start();
    let giving_up = async {
        while request.last_busy().is_none() {
            request.changed().await;
        }
        client.links.iter().for_each(Link::stall);
        control.give_up();
        tokio::task::yield_now().await;
        client.links.iter().for_each(Link::heal);
        client.backend.abandon(&request).await
    };
    let (attempt, abandoned) = join(client.backend.acquire(&request), giving_up).await;
    assert!(matches!(attempt, Ok(Attempt::Busy(_))), "{attempt:?}");
    abandoned.expect("a majority has answered");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_request_is_undone_at_every_node() {
    let servers = Servers::new(3);
    let client = servers.client();
    let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL));
    let (request, control) = options.start();
    let granted = client.backend.acquire(&request).await.unwrap();
    assert!(matches!(granted, Attempt::Granted(..)));
    control.give_up();
    client.links[0].cut();
    client.backend.abandon(&request).await.expect("a majority has answered");
    client.links[0].heal();
    servers.until_free("a").await;
}
