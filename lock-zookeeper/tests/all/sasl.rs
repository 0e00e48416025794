//! SASL with the mechanism `DIGEST-MD5`.

use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome};
use lock_core::{Credentials, ErrorKind};
use lock_zookeeper::{ConnectionState, ZooKeeperConfig};
use testbed::{Server, ZooKeeper};
use zookeeper_client::{Client, SaslOptions};

use crate::support::known::Known;
use crate::support::line::Line;
use crate::support::*;

async fn server() -> Server {
    ZooKeeper::new().sasl("app", "secret").start().await.unwrap()
}

fn by_sasl(address: &str, password: &str) -> ZooKeeperConfig {
    app(address).with_password(password)
}

fn app(address: &str) -> ZooKeeperConfig {
    let config = ZooKeeperConfig::new([address]).with_root("/sasl");
    let config = config.with_session_timeout(LONG).with_connect_timeout(GENEROUS);
    config.with_user("app").with_sasl()
}

/// Also over the connections after the first one.
#[testbed::test]
async fn the_nodes_belong_to_the_user() {
    let server = server().await;
    let line = Line::to(server.address());
    let backend = backend_with(by_sasl(&line.address, "secret"));
    let (request, _control) = long("a");
    let hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
    let stranger = observer(&server).await;
    let denied = stranger.list_children("/sasl/a").await;
    assert_eq!(denied, Err(zookeeper_client::Error::NoAuth));
    let owner = Client::connector().with_sasl(SaslOptions::digest_md5("app", "secret"));
    let owner = owner
        .with_session_timeout(GENEROUS)
        .connect(server.address())
        .await
        .unwrap();
    let (acls, _) = owner.get_acl("/sasl/a").await.unwrap();
    assert_eq!((acls[0].scheme(), acls[0].id()), ("sasl", "app"), "{acls:?}");
    line.reset();
    happens("the release", hold.release(ReleaseOptions::default()))
        .await
        .unwrap();
    let (request, _control) = long("a");
    let next = acquire(&backend, &request).await;
    assert!(next.token() > hold.token());
}

#[testbed::test]
async fn a_wrong_password_is_denied() {
    let server = server().await;
    let error = happens(
        "an answer to the connect",
        backend_with(by_sasl(server.address(), "other")).connect(),
    )
    .await;
    let error = error.unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Denied, false),
        "{error}"
    );
    assert!(error.to_string().contains("check user, password"), "{error}");
}

/// As while the password changes.
#[testbed::test]
async fn a_hold_outlives_a_refused_connection() {
    let server = server().await;
    let (line, known) = (Line::to(server.address()), Known::new(Credentials::new("secret")));
    let backend = backend_with(app(&line.address).with_credentials(known.source()));
    let (hold, request, _control) = hold(&backend, "a").await;
    known.set(Ok(Credentials::new("other")));
    let before = known.asked();
    line.reset();
    eventually("an attempt after a refused one", async || known.asked() >= before + 2).await;
    known.set(Ok(Credentials::new("secret")));
    eventually("another connection", async || {
        backend.state() == ConnectionState::Connected
    })
    .await;
    assert!(is_live(request.lease()), "it was held all the time");
    let released = happens("the release", hold.release(ReleaseOptions::default())).await;
    assert_eq!(released.unwrap(), ReleaseOutcome::Released);
}

#[testbed::test]
async fn a_password_that_stays_refused_is_denied_once_the_session_has_ended() {
    let server = server().await;
    let (line, known) = (Line::to(server.address()), Known::new(Credentials::new("secret")));
    let config = app(&line.address).with_session_timeout(SESSION);
    let backend = backend_with(config.with_credentials(known.source()));
    let (request, _control) = waiting("a");
    let _hold = acquire(&backend, &request).await;
    known.set(Ok(Credentials::new("other")));
    line.reset();
    eventually("the loss of the hold", async || !is_live(request.lease())).await;
    let (other, _control) = trying("b");
    let denied = async || {
        backend
            .acquire(&other)
            .await
            .is_err_and(|error| error.kind() == ErrorKind::Denied)
    };
    eventually("an acquire is denied", denied).await;
}

/// A server without a JAAS configuration cannot check anybody.
#[testbed::test]
async fn a_server_without_sasl_is_misconfigured() {
    let error = happens(
        "an answer to the connect",
        backend_with(by_sasl(shared_server().await.address(), "secret")).connect(),
    )
    .await;
    let error = error.unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Misconfigured, false),
        "{error}"
    );
}
