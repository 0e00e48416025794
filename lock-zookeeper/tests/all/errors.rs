//! Servers that are not there, not ours to use, or set up otherwise: each a typed error that says what to do.

use std::net::TcpListener;
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome};
use lock_core::{ErrorKind, Locker};
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Redis, ZooKeeper};
use tokio::time::Instant;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::support::*;

/// Long enough to tell "at once" from "after the timeout", on a machine however slow.
const CONNECT: Duration = Duration::from_secs(25);

fn at(address: &str, connect_timeout: Duration) -> ZooKeeperBackend {
    backend_with(config(address, ZooKeeperConfig::DEFAULT_ROOT).with_connect_timeout(connect_timeout))
}

/// A port of this machine on which nobody listens.
fn nowhere() -> String {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

#[tokio::test]
async fn no_server_is_unavailable_after_the_connect_timeout() {
    let address = nowhere();
    let limit = Duration::from_millis(700);
    let backend = at(&address, limit);
    let started = Instant::now();
    let error = happens("an answer to the connect", backend.connect())
        .await
        .unwrap_err();
    assert!(started.elapsed() >= limit);
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    assert!(error.to_string().contains(&address), "{error}");
    in_some_run("no error says why", async || {
        let error = happens("an answer to the connect", backend.connect())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        error.to_string().contains("refused")
    })
    .await;
    let (request, _control) = trying("a");
    assert_eq!(
        happens("an answer to the acquire", backend.acquire(&request))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Unavailable
    );
    assert_eq!(
        happens("the status", backend.status(&name("a")))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Unavailable
    );
    happens("an answer to the abandon", backend.abandon(&request))
        .await
        .unwrap();
}

#[testbed::test]
async fn a_server_that_is_just_starting_is_waited_for() {
    let server = own_server().await;
    server.kill().unwrap();
    let backend = at(server.address(), 4 * GENEROUS);
    let connecting = tokio::spawn({
        let backend = backend.clone();
        async move { backend.connect().await }
    });
    server.restart().await.unwrap();
    happens("the task ends", connecting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_never_answers_is_unavailable_after_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let limit = Duration::from_secs(2);
    let backend = at(&listener.local_addr().unwrap().to_string(), limit);
    let started = Instant::now();
    let error = happens("an answer to the connect", backend.connect())
        .await
        .unwrap_err();
    assert!(started.elapsed() >= limit);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[testbed::test]
async fn something_else_that_answers_is_a_misconfiguration_at_once() {
    let redis = Redis::new().start().await.unwrap();
    let backend = at(redis.address(), CONNECT);
    let started = Instant::now();
    let error = happens("an answer to the connect", backend.connect())
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Misconfigured, false));
    assert!(error.to_string().contains("but Redis answers there"), "{error}");
    assert!(started.elapsed() < CONNECT, "{:?}", started.elapsed());
    let (request, _control) = waiting("a");
    assert_eq!(
        happens("an answer to the acquire", backend.acquire(&request))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Misconfigured
    );
}

#[testbed::test]
async fn wrong_credentials_are_denied_at_once() {
    let server = shared_server().await;
    let root = fresh_root();
    let closed = || {
        ZooKeeperConfig::new([server.address()])
            .with_root(&root)
            .with_session_timeout(SESSION)
            .with_connect_timeout(CONNECT)
    };
    let right = closed().with_user("app").with_password("s3cret");
    let backend = backend_with(right);
    backend.connect().await.unwrap();
    let (_hold, ..) = hold(&backend, "a").await;
    // Nobody else sees its nodes.
    let stranger = observer(server).await;
    for path in [root.clone(), format!("{root}/a")] {
        assert_eq!(
            stranger.list_children(&path).await,
            Err(zookeeper_client::Error::NoAuth)
        );
    }
    let wrong = closed().with_user("app").with_password("wr0ng");
    for config in [wrong, closed().with_open_acl()] {
        let backend = backend_with(config);
        let started = Instant::now();
        let error = happens("an answer to the connect", backend.connect())
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false));
        assert!(started.elapsed() < CONNECT, "{:?}", started.elapsed());
        let (request, _control) = waiting("a");
        let error = happens("an answer to the acquire", backend.acquire(&request))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        let shown = format!("{backend:?} {error:?} {error}");
        assert!(!shown.contains("wr0ng") && !shown.contains("s3cret"), "{shown}");
    }
}

/// As the crate's page says. A lock is held all the time, and clients of each step share it.
#[testbed::test]
async fn a_password_is_changed_while_a_lock_is_held() {
    let server = shared_server().await;
    let root = fresh_root();
    let client = |password: &str| {
        let config = ZooKeeperConfig::new([server.address()])
            .with_root(&root)
            .with_user("app");
        config
            .with_password(password)
            .with_session_timeout(STEADY)
            .with_connect_timeout(GENEROUS)
    };
    let (old, new) = (backend_with(client("old")), backend_with(client("new")));
    let both = backend_with(client("new").with_previous_password("old"));
    let (by_old, _request, _control) = hold(&old, "a").await;
    assert_eq!(
        happens("an answer to the connect", new.connect())
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Denied
    );
    // Old and both: each waits behind the other.
    let (waiting_request, waiting_control) = waiting("a");
    let waiter = tokio::spawn({
        let both = both.clone();
        async move { (acquire(&both, &waiting_request).await, waiting_request) }
    });
    eventually("it waits", async || {
        old.status(&name("a")).await.unwrap().waiting == Some(1)
    })
    .await;
    by_old.release(ReleaseOptions::default()).await.unwrap();
    let (by_both, its_request) = happens("the grant", waiter).await.unwrap();
    let (request, _control) = trying("a");
    busy(happens("an answer to the acquire", old.acquire(&request)).await);
    happens("the ACLs are rewritten", both.rewrite_acls()).await.unwrap();
    // Both and new.
    let new = backend_with(client("new"));
    assert_eq!(new.status(&name("a")).await.unwrap().holders.len(), 1);
    let (request, _control) = trying("a");
    busy(happens("an answer to the acquire", new.acquire(&request)).await);
    happens("the ACLs are rewritten", new.rewrite_acls()).await.unwrap();
    assert!(is_live(its_request.lease()), "the lock was held all the time");
    assert_eq!(
        by_both.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::Released
    );
    drop(waiting_control);
    let (_by_new, ..) = hold(&new, "a").await;
    // The old password is of no use any more.
    let late = backend_with(client("old"));
    assert_eq!(
        happens("an answer to the connect", late.connect())
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Denied
    );
}

/// A missing root path is made where that is permitted. Else the error names the permission.
#[testbed::test]
async fn a_root_path_that_may_not_be_made_or_read_names_the_permission() {
    use zookeeper_client::{Acl, AuthId, Permission};
    let server = shared_server().await;
    let owner = Client::connector().with_auth("digest", b"owner:x");
    let owner = owner
        .with_session_timeout(GENEROUS)
        .connect(server.address())
        .await
        .unwrap();
    let parent = fresh_root();
    for (permission, root, said) in [
        (
            Permission::READ,
            "read/locks",
            "does not exist, and ZooKeeper denies CREATE on its nearest parent",
        ),
        (Permission::CREATE, "create", "denies READ on the root path"),
    ] {
        let acl = Acl::new(permission, AuthId::anyone());
        let options = CreateMode::Persistent.with_acls(Acls::new(std::slice::from_ref(&acl)));
        let closed = format!("{parent}-{}", root.split('/').next().unwrap());
        owner.create(&closed, b"", &options).await.unwrap();
        let root = format!("{parent}-{root}");
        let error = happens("an answer to the connect", backend(server, &root).connect())
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false));
        assert!(
            error.to_string().contains(said) && error.to_string().contains(&root),
            "{error}"
        );
    }
    let made = fresh_root() + "/of/several/parts";
    happens("an answer to the connect", backend(server, &made).connect())
        .await
        .unwrap();
    assert!(owner.check_stat(&made).await.unwrap().is_some());
}

/// The root may be listed, but nothing may be made in it: only the acquire finds out.
#[testbed::test]
async fn a_missing_permission_is_denied() {
    let server = shared_server().await;
    let root = fresh_root();
    let owner = Client::connector()
        .with_auth("digest", b"owner:x")
        .with_session_timeout(GENEROUS)
        .connect(server.address())
        .await
        .unwrap();
    let read = zookeeper_client::Acl::new(zookeeper_client::Permission::READ, zookeeper_client::AuthId::anyone());
    let options = CreateMode::Persistent.with_acls(Acls::new(std::slice::from_ref(&read)));
    owner.create(&root, b"", &options).await.unwrap();
    let backend = backend(server, &root);
    backend.connect().await.unwrap();
    let (request, _control) = waiting("a");
    let error = happens("an answer to the acquire", backend.acquire(&request))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    happens("an answer to the abandon", backend.abandon(&request))
        .await
        .unwrap();
}

#[testbed::test]
async fn a_ttl_below_the_granted_session_timeout_is_refused_and_leaves_nothing() {
    let shortest = 2 * SESSION;
    let server = ZooKeeper::new()
        .session_timeouts(shortest, 2 * shortest)
        .start()
        .await
        .unwrap();
    let (backend, client) = (short_lived(&server, "/test"), observer(&server).await);
    assert_eq!(backend.capabilities().shortest_ttl, SESSION);
    assert_eq!(backend.session_timeout(), None);
    let (request, _control) = RequestOptions::new(name("a"), Terms::new(SESSION)).waits(false).start();
    let error = happens("an answer to the acquire", backend.acquire(&request))
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Misconfigured, false));
    assert!(error.to_string().contains("minSessionTimeout"), "{error}");
    assert_eq!(client.list_children("/test").await.unwrap(), Vec::<String>::new());
    let (request, _control) = RequestOptions::new(name("a"), Terms::new(shortest))
        .waits(false)
        .start();
    granted(happens("an answer to the acquire", backend.acquire(&request)).await);
    assert_eq!(backend.session_timeout(), Some(shortest));
    // A default ttl is checked when a locker connects.
    let locker = Locker::new(backend).with_ttl(SESSION);
    let error = happens("an answer to the connect", locker.connect()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Misconfigured, false));
    assert!(error.to_string().contains("raise the ttl"), "{error}");
    happens("an answer to the connect", locker.with_ttl(shortest).connect())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_request_given_up_before_the_server_was_reached_ends_soon() {
    let backend = at(&nowhere(), GENEROUS);
    let terms = Terms::new(TTL).time_left(Duration::from_millis(200));
    let (request, _control) = RequestOptions::new(name("a"), terms).start();
    let started = Instant::now();
    let error = backend.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() < GENEROUS);
}

/// Somebody has taken the permission away meanwhile.
#[testbed::test]
async fn a_release_that_is_refused_was_not_executed_however_often_it_is_asked() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (hold, ..) = hold(&backend, "a").await;
    let directory = format!("{root}/a");
    let nobody_deletes = zookeeper_client::Acl::new(
        zookeeper_client::Permission::READ | zookeeper_client::Permission::ADMIN,
        zookeeper_client::AuthId::anyone(),
    );
    client.set_acl(&directory, &[nobody_deletes], None).await.unwrap();
    for _ in 0..2 {
        let error = happens("the release", hold.release(ReleaseOptions::default()))
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.is_not_executed()),
            (ErrorKind::Denied, true),
            "{error}"
        );
    }
    assert_eq!(client.list_children(&directory).await.unwrap().len(), 1);
}

#[testbed::test]
async fn an_acquire_that_is_refused_was_not_executed() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    backend.connect().await.unwrap();
    let read_only = zookeeper_client::Acl::new(zookeeper_client::Permission::READ, zookeeper_client::AuthId::anyone());
    client.set_acl(&root, &[read_only], None).await.unwrap();
    let (request, _control) = waiting("a");
    let error = happens("an answer to the acquire", backend.acquire(&request))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.is_not_executed()),
        (ErrorKind::Denied, true),
        "{error}"
    );
}
