//! Lines on which answers come late.

use std::time::Duration;

use lock_core::HoldState;
use lock_core::backend::{DistributedLock, Lease, ReleaseOptions, ReleaseOutcome, RequestOptions, Terms};
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use tokio::time::{Instant, sleep};

use crate::support::line::Line;
use crate::support::*;

fn backend_at(address: &str, session: Duration) -> ZooKeeperBackend {
    let config = ZooKeeperConfig::new([address]).with_root(fresh_root());
    let config = config.with_session_timeout(session);
    ZooKeeperBackend::new(config.with_connect_timeout(GENEROUS)).unwrap()
}

async fn believed_for(time: Duration, lease: &Lease) {
    let started = Instant::now();
    while started.elapsed() < time {
        assert!(is_believed(lease), "after {:?}: {:?}", started.elapsed(), lease.state());
        sleep(Duration::from_millis(20)).await;
    }
}

#[testbed::test]
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

#[testbed::test]
async fn a_hold_begins_and_goes_on_over_a_slow_line() {
    let line = Line::to(shared_server().await.address());
    line.set_round_trip(SESSION * 2 / 5);
    let backend = backend_at(&line.address, SESSION);
    let (_hold, request, _control) = hold(&backend, "a").await;
    believed_for(2 * SESSION, request.lease()).await;
}

/// It may be a follower for all that is known: its answers prove less.
#[testbed::test]
async fn a_hold_at_a_server_that_may_be_a_follower_survives_a_quarter_of_the_session_timeout() {
    let line = Line::to(shared_server().await.address());
    line.be_discreet();
    let backend = backend_at(&line.address, SESSION);
    let (_hold, request, _control) = hold(&backend, "a").await;
    line.set_round_trip(SESSION / 4);
    believed_for(3 * SESSION, request.lease()).await;
}

/// A line that is slow is no reason for suspicion.
#[testbed::test]
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

/// The holder leaves after the waiter has listed the queue and before it has asked for the holder's label.
#[testbed::test]
async fn a_waiter_whose_holder_leaves_as_it_queues_learns_that_the_lock_is_taken() {
    const ROUND_TRIP: Duration = Duration::from_secs(3);
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let far = ZooKeeperConfig::new([&line.address]).with_root(&root);
    let far = ZooKeeperBackend::new(far.with_session_timeout(5 * SESSION)).unwrap();
    far.connect().await.unwrap();
    let (first, ..) = hold(&one, "a").await;
    let (second, _control) = waiting("a");
    let queued = tokio::spawn({
        let second = second.clone();
        async move { granted(two.acquire(&second).await) }
    });
    let directory = format!("{root}/a");
    children_until(&client, &directory, |children| children.len() == 2).await;
    line.set_round_trip(ROUND_TRIP);
    let options = RequestOptions::new(name("a"), Terms::new(10 * SESSION));
    let (third, _control) = options.start();
    let waiting = tokio::spawn({
        let third = third.clone();
        async move { granted(far.acquire(&third).await) }
    });
    children_until(&client, &directory, |children| children.len() == 3).await;
    // Its list, which followed at once, is answered by now, and its next request still on its way.
    sleep(ROUND_TRIP / 3).await;
    first.release(ReleaseOptions::default()).await.unwrap();
    let second = within(queued).await.unwrap();
    within(async {
        while third.last_busy().is_none() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    second.release(ReleaseOptions::default()).await.unwrap();
    within(waiting).await.unwrap();
}
