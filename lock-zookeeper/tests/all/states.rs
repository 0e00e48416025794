//! What a program learns of its sessions.

use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::{ErrorKind, Locker};
use lock_zookeeper::ConnectionState;
use testbed::ZooKeeper;

use crate::support::line::Line;
use crate::support::*;

#[testbed::test]
async fn connected_suspended_and_lost() {
    let (server, root) = (shared_server().await, fresh_root());
    let (line, client) = (Line::to(server.address()), observer(server).await);
    let backend = backend_with(config(&line.address, &root));
    let mut watch = backend.watch_state();
    assert_eq!(watch.state(), ConnectionState::Unconnected);
    let (_hold, request, _control) = hold(&backend, "a").await;
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Connected)
    );
    line.cut();
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Suspended)
    );
    // The server has ended the session when its node is gone: the client learns of it with its next connection.
    happens("the end of the lease", request.lease().ended()).await;
    children_until(&client, &format!("{root}/a"), <[String]>::is_empty).await;
    assert_eq!(backend.state(), ConnectionState::Suspended);
    line.heal();
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Lost)
    );
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Connected)
    );
    drop((_hold, backend));
    while happens("a change of the state", watch.changed()).await.is_some() {}
}

/// The server stands still, and its connections stay open.
#[testbed::test]
async fn a_silent_server_is_suspended() {
    let server = own_server().await;
    let backend = backend_with(config(server.address(), "/locks").with_session_timeout(STEADY));
    backend.connect().await.unwrap();
    let mut watch = backend.watch_state();
    assert_eq!(watch.state(), ConnectionState::Connected);
    server.pause().unwrap();
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Suspended)
    );
    server.resume().unwrap();
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Connected)
    );
}

#[testbed::test]
async fn a_session_timeout_that_the_server_changes_is_logged_once() {
    let (shortest, longest) = (Duration::from_secs(6), Duration::from_secs(8));
    let server = ZooKeeper::new()
        .session_timeouts(shortest, longest)
        .start()
        .await
        .unwrap();
    let warnings = testbed::Warnings::default();
    // The sessions' tasks run on this thread.
    let _subscribed = testbed::subscribe(warnings.clone());

    let backend = backend_with(config(server.address(), "/locks"));
    let locks = Locker::new(backend.clone()).with_ttl(2 * LONG);
    let mut guards = Vec::new();
    // Of several sessions.
    for number in 0..20 {
        guards.push(locks.lock(format!("{number}")).acquire().await.unwrap());
    }
    let found = warnings.take();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("6s instead of session_timeout=4s, since its minSessionTimeout"),
        "{found:?}"
    );
    // What was granted is the shortest ttl.
    assert_eq!(backend.session_timeout(), Some(shortest));
    assert_eq!(backend.check_ttl(SESSION).unwrap_err().kind(), ErrorKind::Misconfigured);
    backend.check_ttl(shortest).unwrap();
    let terms = Terms::new(Duration::from_secs(5));
    let (request, _control) = RequestOptions::new(name("short"), terms).start();
    let error = happens("an answer to the acquire", backend.acquire(&request))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("6s that the server granted"), "{error}");
    drop(guards);
    happens("the shutdown", locks.shutdown()).await.unwrap();

    let longer = backend_with(config(server.address(), "/locks").with_session_timeout(LONG));
    longer.connect().await.unwrap();
    let found = warnings.take();
    assert_eq!(found.len(), 1, "{found:?}");
    let said = format!("8s instead of session_timeout={LONG:?}, since its maxSessionTimeout");
    assert!(found[0].contains(&said), "{found:?}");
    let same = backend_with(config(server.address(), "/locks").with_session_timeout(longest));
    same.connect().await.unwrap();
    assert_eq!(warnings.take(), [""; 0]);
}
