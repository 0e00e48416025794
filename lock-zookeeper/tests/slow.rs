//! Lines on which answers come late.

mod common;

use std::time::Duration;

use common::line::Line;
use common::*;
use lock_core::HoldState;
use lock_core::backend::{Lease, ReleaseOptions, ReleaseOutcome};
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use tokio::time::{Instant, sleep};

fn backend_at(address: &str, session: Duration) -> ZooKeeperBackend {
    let config = ZooKeeperConfig::new([address])
        .unwrap()
        .with_root(fresh_root())
        .unwrap();
    let config = config.with_session_timeout(session).unwrap();
    ZooKeeperBackend::new(config.with_connect_timeout(GENEROUS).unwrap())
}

async fn believed_for(time: Duration, lease: &Lease) {
    let started = Instant::now();
    while started.elapsed() < time {
        assert!(is_believed(lease), "after {:?}: {:?}", started.elapsed(), lease.state());
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_hold_survives_a_line_that_becomes_slow() {
    let line = Line::to(shared_server().await.address());
    let backend = backend_at(&line.address, SESSION);
    let (hold, request, _control) = hold(&backend, "a").await;
    line.set_round_trip(SESSION * 2 / 5);
    believed_for(3 * SESSION, request.lease()).await;
    assert_eq!(
        within(hold.release(ReleaseOptions::default())).await.unwrap(),
        ReleaseOutcome::Released
    );
}

#[tokio::test]
async fn a_hold_begins_and_goes_on_over_a_slow_line() {
    let line = Line::to(shared_server().await.address());
    line.set_round_trip(SESSION * 2 / 5);
    let backend = backend_at(&line.address, SESSION);
    let (_hold, request, _control) = hold(&backend, "a").await;
    believed_for(2 * SESSION, request.lease()).await;
}

/// It may be a follower for all that is known: its answers prove less.
#[tokio::test]
async fn a_hold_at_a_server_that_may_be_a_follower_survives_a_quarter_of_the_session_timeout() {
    let line = Line::to(shared_server().await.address());
    line.be_discreet();
    let backend = backend_at(&line.address, SESSION);
    let (_hold, request, _control) = hold(&backend, "a").await;
    line.set_round_trip(SESSION / 4);
    believed_for(3 * SESSION, request.lease()).await;
}

/// A line that is slow is no reason for suspicion.
#[tokio::test]
async fn a_slow_line_is_not_suspect() {
    let line = Line::to(shared_server().await.address());
    let backend = backend_at(&line.address, SESSION);
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
    assert!(held > SESSION, "held for {held:?} only");
}
