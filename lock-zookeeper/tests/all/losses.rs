//! What a lost hold says of its loss.

use std::time::Duration;

use lock_core::{ErrorKind, Guard, HoldState, Locker, LostCause};
use testbed::steady::SAFETY;
use testbed::{Server, ZooKeeper};

use crate::support::*;

/// A hold whose session has this timeout.
async fn held(server: &Server, root: &str, timeout: Duration) -> Guard {
    let backend = backend_with(config(server.address(), root).with_session_timeout(timeout));
    let locks = Locker::new(backend).with_ttl(TTL);
    happens("an answer to the acquire", locks.lock("a").acquire())
        .await
        .unwrap()
}

#[testbed::test]
async fn a_deleted_node_is_what_the_server_says() {
    let (server, root) = (shared_server().await, fresh_root());
    let guard = held(server, &root, STEADY).await;
    let client = observer(server).await;
    let directory = format!("{root}/a");
    let nodes = children_until(&client, &directory, |children| !children.is_empty()).await;
    client.delete(&format!("{directory}/{}", nodes[0]), None).await.unwrap();
    let lost = happens("the loss", guard.lost()).await;
    assert_eq!(lost.cause(), LostCause::NotHeld, "{lost}");
    assert!(lost.error().is_none() && lost.last_confirmed().is_some(), "{lost}");
}

/// The session's connection broke, and there was no other: the lease ended by our clock.
#[testbed::test]
async fn a_server_that_was_stopped_is_why_the_lease_ended() {
    let server = own_server().await;
    let guard = held(&server, "/test", 2 * SESSION).await;
    server.kill().unwrap();
    let lost = happens("the loss", guard.lost()).await;
    assert_eq!(lost.cause(), LostCause::Expired, "{lost}");
    let error = lost.error().expect("the connection broke");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains(server.address()), "{error}");
    assert!(
        lost.last_confirmed().is_some() && lost.lease_ended().is_some(),
        "{lost}"
    );
}

/// The session's own error is passed on: the server does not know it any more.
#[testbed::test]
async fn a_session_that_the_server_forgot_is_named() {
    let server = own_server().await;
    let guard = Locker::new(patient(server.address(), "/test")).with_ttl(2 * LONG);
    let guard = happens("an answer to the acquire", guard.lock("a").acquire())
        .await
        .unwrap();
    server.restart_without_data().await.unwrap();
    let lost = happens("the loss", guard.lost()).await;
    assert_eq!(lost.cause(), LostCause::Disconnected, "{lost}");
    let error = lost.error().expect("the session ended");
    assert!(error.to_string().contains("session"), "{error}");
    assert!(lost.to_string().ends_with(&error.to_string()), "{lost}");
}

/// A server that grants a session timeout of at most so many seconds.
fn granting(at_most: u64) -> ZooKeeper {
    ZooKeeper::new().session_timeouts(Duration::from_millis(500), Duration::from_secs(at_most))
}

/// A hold whose session was granted so many seconds, and others when it reconnects.
async fn is_lost_to_another_timeout(before: u64, now: u64) {
    let server = granting(before).start().await.unwrap();
    let warnings = testbed::Warnings::default();
    let locks = Locker::new(patient(server.address(), "/test")).with_ttl(2 * LONG);
    let guard = happens("an answer to the acquire", locks.lock("a").acquire())
        .await
        .unwrap();
    let stranger = Locker::new(short_lived(&server, "/test")).with_ttl(TTL);
    // More than once if the server starts slowly.
    let waiting = tokio::spawn(eventually("the grant to another client", async move || {
        stranger.lock("a").acquire().await
    }));
    // The session's task runs on this thread.
    let _subscribed = testbed::subscribe(warnings.clone());
    granting(now).restart(&server).await.unwrap();
    let next = waiting.await.unwrap();
    let HoldState::Lost(lost) = guard.state() else {
        panic!("{SAFETY}two clients hold the lock: this one is {:?}", guard.state());
    };
    assert_eq!(lost.cause(), LostCause::Disconnected, "{lost}");
    let error = lost.error().expect("the session was ended");
    let change = format!("{now}s instead of {before}s");
    assert!(error.to_string().contains(&change), "{error}");
    let found = warnings.take();
    assert!(found.iter().any(|warning| warning.contains(&change)), "{found:?}");
    next.release().await.unwrap();
    let again = happens("an answer to the acquire", locks.lock("a").acquire()).await;
    again.unwrap().release().await.unwrap();
}

/// By the shorter one, the server would end the session while its leases last.
#[testbed::test]
async fn a_session_that_is_granted_a_shorter_timeout_is_ended() {
    is_lost_to_another_timeout(60, 10).await;
}

/// The hold of a dead client would outlast its ttl. The session is closed: it would expire only after this test has failed.
#[testbed::test]
async fn a_session_that_is_granted_a_longer_timeout_is_ended() {
    is_lost_to_another_timeout(30, 60).await;
}
