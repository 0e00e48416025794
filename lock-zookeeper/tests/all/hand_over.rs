//! Hand-overs, and passes within the process.

use std::sync::Arc;
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::{
    AcquireRequest, DistributedLock, HandOver, Hold, Lease, ReleaseOptions, ReleaseOutcome, RequestControl,
};
use lock_core::{HoldState, Locker, LostCause};
use tokio::time::{sleep, timeout};

use crate::support::*;

async fn hand_over(hold: &dyn Hold, request: &AcquireRequest) -> Arc<dyn Hold> {
    match within(hold.hand_over(request)).await.unwrap() {
        HandOver::Granted(hold, _armed) => hold,
        other => panic!("not handed over: {other:?}"),
    }
}

/// The session's term limits the lease, and so it is what a pass inherits.
#[testbed::test]
async fn a_hold_passes_on_under_a_ttl_far_beyond_the_session() {
    let (server, root) = (shared_server().await, fresh_root());
    let locks = Locker::new(backend(server, &root)).with_ttl(STEADY * 10);
    let lock = locks.lock("a");
    let mut tokens = Vec::new();
    let mut guard = within(lock.acquire()).await.unwrap();
    for _ in 0..4 {
        let lock = lock.clone();
        let mut next = tokio::spawn(async move { lock.acquire().await });
        // It is in the local queue before the release.
        assert!(timeout(Duration::from_millis(50), &mut next).await.is_err());
        tokens.push(guard.token().as_i64());
        guard.release().await.unwrap();
        guard = within(next).await.unwrap().unwrap();
    }
    assert_eq!(guard.token().as_i64(), tokens[0] + 4, "{tokens:?}");
    guard.release().await.unwrap();
}

/// It writes the node once, and changes nothing else.
#[testbed::test]
async fn a_hand_over_is_one_write_of_the_node() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let directory = format!("{root}/a");
    let (first, request, _control) = hold(&one, "a").await;
    let (before, made) = client.get_children(&directory).await.unwrap();
    let (next, _control) = labelled("a", Some("the next one")).start();
    let heir = hand_over(&*first, &next).await;
    let (after, changed) = client.get_children(&directory).await.unwrap();
    assert_eq!((before, made), (after.clone(), changed));
    let (data, stat) = client.get_data(&format!("{directory}/{}", after[0])).await.unwrap();
    assert_eq!(stat.version, 1);
    let expected = [b"the next one\xFFholder=", next.holder().to_string().as_bytes()].concat();
    assert_eq!(data, expected);
    assert_eq!(heir.token().as_i64(), stat.mzxid * 16);
    let status = one.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].label.as_deref(), Some("the next one"));
    assert_eq!(status.holders[0].token, Some(heir.token()));
    // Whatever the giver asks yet, it has nothing.
    let release = ReleaseOptions::default();
    assert_eq!(first.release(release).await.unwrap(), ReleaseOutcome::AlreadyLost);
    one.abandon(&request).await.unwrap();
    assert!(is_live(next.lease()));
    assert_eq!(heir.release(release).await.unwrap(), ReleaseOutcome::Released);
    assert!(client.list_children(&directory).await.unwrap().is_empty());
}

/// A waiter watches the end of the node before it, and is not woken when that is written.
#[testbed::test]
async fn hand_overs_do_not_wake_who_waits_elsewhere() {
    const TIMES: u64 = 100;
    let server = own_server().await;
    let (one, two) = (patient(server.address(), "/test"), patient(server.address(), "/test"));
    let client = observer(&server).await;
    let (request, _control) = long("a");
    let mut holding = granted(within(one.acquire(&request)).await);
    let (request, control) = long("a");
    let waiting = start_waiting(&two, (&client, "/test/a"), 2, (request.clone(), control)).await;
    within(request_is_busy(&request)).await;
    let before = counter(&server, "zk_packets_received").await;
    let mut controls = Vec::new();
    for _ in 0..TIMES {
        let (next, control) = long("a");
        holding = hand_over(&*holding, &next).await;
        controls.push(control);
    }
    // Heartbeats, and this question, are far fewer than one for each.
    let requests = counter(&server, "zk_packets_received").await - before;
    assert!((TIMES..TIMES * 3 / 2).contains(&requests), "{requests}");
    assert!(!waiting.is_finished());
    holding.release(ReleaseOptions::default()).await.unwrap();
    let (hold, _control) = within(waiting).await.unwrap();
    assert!(hold.token() > holding.token());
}

async fn request_is_busy(request: &AcquireRequest) {
    while request.last_busy().is_none() {
        sleep(Duration::from_millis(5)).await;
    }
}

/// The guard of the moment learns of it, whoever had the hold before.
#[testbed::test]
async fn a_loss_reaches_the_one_to_whom_the_hold_was_passed_on() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (request, _control) = options("a").reserve(3).start();
    let first = granted(within(one.acquire(&request)).await);
    let (next, _control): (AcquireRequest, RequestControl) = options("a").reserve(20).start();
    let heir = hand_over(&*first, &next).await;
    let mut holding = heir.clone();
    let mut lease = next.lease().clone();
    for number in 1..16 {
        lease = Lease::new(name("a"));
        holding = holding.pass(&lease).unwrap();
        assert_eq!(
            holding.token(),
            FencingToken::new(heir.token().as_u64() + number).unwrap()
        );
    }
    assert!(
        holding.pass(&Lease::new(name("a"))).is_none(),
        "sixteen is all there are"
    );
    let armed = within(holding.renew(TTL)).await.unwrap();
    drop(armed);
    assert_eq!(lease.state(), HoldState::Held);
    let children = client.list_children(&format!("{root}/a")).await.unwrap();
    client.delete(&format!("{root}/a/{}", children[0]), None).await.unwrap();
    let lock_core::Ended::Lost(lost) = within(lease.ended()).await else {
        panic!("nobody released it")
    };
    assert_eq!(lost.cause(), LostCause::NotHeld);
    assert!(first.pass(&Lease::new(name("a"))).is_none());
}
