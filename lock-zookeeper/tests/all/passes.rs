//! Passes within the process.

use std::time::Duration;

use lock_core::backend::{DistributedLock, Lease};
use lock_core::{FencingToken, HoldState, Locker, LostCause};
use tokio::time::timeout;

use crate::support::*;

/// The session's term limits the lease, and so it is what a pass inherits.
#[testbed::test]
async fn a_hold_passes_on_under_a_ttl_far_beyond_the_session() {
    let (server, root) = (shared_server().await, fresh_root());
    let locks = Locker::new(backend(server, &root)).with_ttl(STEADY * 10);
    let lock = locks.lock("a");
    let mut tokens = Vec::new();
    let mut guard = happens("an answer to the acquire", lock.acquire()).await.unwrap();
    for _ in 0..4 {
        let lock = lock.clone();
        let mut next = tokio::spawn(async move { lock.acquire().await });
        // It is in the local queue before the release.
        assert!(timeout(Duration::from_millis(50), &mut next).await.is_err());
        tokens.push(guard.token().as_i64());
        guard.release().await.unwrap();
        guard = happens("the grant", next).await.unwrap().unwrap();
    }
    assert_eq!(guard.token().as_i64(), tokens[0] + 4, "{tokens:?}");
    guard.release().await.unwrap();
}

/// The guard of the moment learns of it, whoever had the hold before.
#[testbed::test]
async fn a_loss_reaches_the_one_to_whom_the_hold_was_passed_on() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (request, _control) = options("a").reserve(20).start();
    let first = granted(happens("an answer to the acquire", one.acquire(&request)).await);
    let mut holding = first.clone();
    let mut lease = request.lease().clone();
    for number in 1..16 {
        lease = Lease::new(name("a"));
        holding = holding.pass(&lease).unwrap();
        assert_eq!(
            holding.token(),
            FencingToken::new(first.token().as_u64() + number).unwrap()
        );
    }
    assert!(
        holding.pass(&Lease::new(name("a"))).is_none(),
        "sixteen is all there are"
    );
    let armed = happens("the renewal", holding.renew(TTL)).await.unwrap();
    drop(armed);
    assert_eq!(lease.state(), HoldState::Held);
    let children = client.list_children(&format!("{root}/a")).await.unwrap();
    client.delete(&format!("{root}/a/{}", children[0]), None).await.unwrap();
    let lock_core::Ended::Lost(lost) = happens("the end of the lease", lease.ended()).await else {
        panic!("nobody released it")
    };
    assert_eq!(lost.cause(), LostCause::NotHeld);
    assert!(first.pass(&Lease::new(name("a"))).is_none());
}
