//! Lines on which answers come late.

use std::time::Duration;

use lock_core::HoldState;
use lock_core::backend::{Lease, ReleaseOptions, ReleaseOutcome};
use lock_zookeeper::ZooKeeperBackend;
use tokio::time::{Instant, sleep};

use crate::support::line::Line;
use crate::support::*;

fn backend_at(address: &str, root: &str) -> ZooKeeperBackend {
    backend_with(config(address, root))
}

async fn is_believed_for(time: Duration, lease: &Lease) -> bool {
    let started = Instant::now();
    while started.elapsed() < time {
        if !is_live(lease) {
            println!("after {:?}: {:?}", started.elapsed(), lease.state());
            return false;
        }
        sleep(Duration::from_millis(20)).await;
    }
    true
}

#[testbed::test]
async fn a_hold_survives_a_line_that_becomes_slow() {
    in_some_run("the hold was lost", async || {
        let line = Line::to(shared_server().await.address());
        let backend = backend_at(&line.address, &fresh_root());
        let (hold, request, _control) = hold(&backend, "a").await;
        line.set_round_trip(SESSION * 2 / 5);
        if !is_believed_for(2 * SESSION, request.lease()).await {
            return false;
        }
        let released = happens("the release", hold.release(ReleaseOptions::default())).await;
        assert_eq!(released.unwrap(), ReleaseOutcome::Released, "it was believed");
        true
    })
    .await;
}

#[testbed::test]
async fn a_hold_begins_and_goes_on_over_a_slow_line() {
    let (server, root) = (shared_server().await, fresh_root());
    // Makes the directories, for which a slow line takes many round trips.
    let (first, ..) = hold(&backend(server, &root), "a").await;
    first.release(ReleaseOptions::default()).await.unwrap();
    in_some_run("the hold was lost", async || {
        let line = Line::to(server.address());
        line.set_round_trip(SESSION * 2 / 5);
        let backend = backend_at(&line.address, &root);
        let (request, _control) = waiting("a");
        let _hold = acquire(&backend, &request).await;
        is_believed_for(2 * SESSION, request.lease()).await
    })
    .await;
}

/// The server's answer to `srvr` is known before the end of its connection is.
#[testbed::test]
async fn a_hold_survives_a_slow_line_through_a_proxy_that_keeps_connections_open() {
    in_some_run("the hold was lost", async || {
        let line = Line::to(shared_server().await.address());
        line.hide_ends();
        let backend = backend_at(&line.address, &fresh_root());
        let (_hold, request, _control) = hold(&backend, "a").await;
        line.set_round_trip(SESSION * 2 / 5);
        is_believed_for(2 * SESSION, request.lease()).await
    })
    .await;
}

/// It may be a follower for all that is known: its answers prove less.
#[testbed::test]
async fn a_hold_at_a_server_that_may_be_a_follower_survives_a_fifth_of_the_session_timeout() {
    in_some_run("the hold was lost", async || {
        let line = Line::to(shared_server().await.address());
        line.be_discreet();
        let backend = backend_at(&line.address, &fresh_root());
        let (_hold, request, _control) = hold(&backend, "a").await;
        line.set_round_trip(SESSION / 5);
        is_believed_for(2 * SESSION, request.lease()).await
    })
    .await;
}

/// A line that is slow is no reason for suspicion.
#[testbed::test]
async fn a_slow_line_is_not_suspect() {
    in_some_run("held for half of the time at most", async || {
        let line = Line::to(shared_server().await.address());
        let backend = backend_at(&line.address, &fresh_root());
        let (_hold, request, _control) = hold(&backend, "a").await;
        line.set_round_trip(SESSION / 3);
        let started = Instant::now();
        let mut held = Duration::ZERO;
        while started.elapsed() < 2 * SESSION {
            let before = Instant::now();
            sleep(Duration::from_millis(20)).await;
            if request.lease().state() == HoldState::Held {
                held += before.elapsed();
            }
        }
        println!("held for {held:?}");
        held > SESSION
    })
    .await;
}
