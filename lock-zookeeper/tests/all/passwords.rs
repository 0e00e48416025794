//! Passwords from outside the configuration, which change while a lock is held.

use std::time::Duration;

use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{Credentials, Error, ErrorKind};
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use tokio::time::sleep;

use crate::support::known::Known;
use crate::support::line::Line;
use crate::support::*;

fn client(address: &str, root: &str) -> ZooKeeperConfig {
    let config = ZooKeeperConfig::new([address]).with_root(root).with_user("app");
    config.with_session_timeout(LONG).with_connect_timeout(GENEROUS)
}

/// As the crate's page says, but in a process that lives all the time.
#[testbed::test]
async fn a_hold_outlives_the_password_of_its_connection() {
    let server = shared_server().await;
    let (root, line) = (fresh_root(), Line::to(server.address()));
    let known = Known::new(Credentials::new("old"));
    let backend = backend_with(client(&line.address, &root).with_credentials(known.source()));
    let (held, request, _control) = hold(&backend, "a").await;
    let alone = |password: &str| backend_with(client(server.address(), &root).with_password(password));
    let connect_anew = async || {
        let before = line.dials().len();
        line.reset();
        happens("a renewal over a new connection", async {
            while line.dials().len() == before {
                sleep(Duration::from_millis(5)).await;
            }
            while !matches!(held.renew(TTL).await, Ok(Renewal::Renewed(_))) {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    };

    let both = Credentials::new("new").with_previous_password("old");
    known.set(Ok(both));
    connect_anew().await;
    // A client with the old password alone shares its locks.
    let old = alone("old");
    let (by_both, ..) = hold(&backend, "b").await;
    for name in ["a", "b"] {
        let (request, _control) = trying(name);
        busy(happens("an answer to the acquire", old.acquire(&request)).await);
    }
    let rewriting = backend_with(client(server.address(), &root).with_credentials(known.source()));
    happens("the ACLs are rewritten", rewriting.rewrite_acls())
        .await
        .unwrap();

    known.set(Ok(Credentials::new("new")));
    connect_anew().await;
    let new = alone("new");
    let (trying, _control) = trying("a");
    busy(happens("an answer to the acquire", new.acquire(&trying)).await);
    happens("the ACLs are rewritten", new.rewrite_acls()).await.unwrap();
    assert_eq!(
        happens("an answer to the connect", alone("old").connect())
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Denied
    );

    assert!(is_live(request.lease()), "it was held all the time");
    for hold in [held, by_both] {
        let released = happens("the release", hold.release(ReleaseOptions::default()))
            .await
            .unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
    }
}

/// A session outlives a connection for which there was no password.
#[testbed::test]
async fn an_error_of_the_source_arrives_and_passes() {
    let server = shared_server().await;
    let (root, line) = (fresh_root(), Line::to(server.address()));
    let locked = || Err(Error::new(ErrorKind::Denied, "the secret store is locked"));
    let known = Known::new(Credentials::new("s3cret"));
    known.set(locked());
    let refused = async |backend: &ZooKeeperBackend| {
        happens("an answer to the connect", backend.connect())
            .await
            .unwrap_err()
    };
    let config = client(&line.address, &root).with_credentials(known.source());
    let backend = backend_with(config.with_connect_timeout(Duration::from_secs(1)));
    let error = refused(&backend).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("the secret store is locked"), "{error}");

    known.set(Ok(Credentials::new("s3cret")));
    let (request, _control) = waiting("a");
    let held = happens("a grant with the new password", async {
        loop {
            match backend.acquire(&request).await {
                // The last failure is repeated for a moment.
                Err(error) if error.kind() == ErrorKind::Denied || error.is_retryable() => {
                    sleep(Duration::from_millis(50)).await
                }
                attempt => return granted(attempt),
            }
        }
    })
    .await;
    known.set(locked());
    line.reset();
    let (other, _control) = trying("b");
    happens("the refusal says that the store is locked", async {
        loop {
            match backend.acquire(&other).await {
                Err(error) if error.to_string().contains("the secret store is locked") => return,
                // It was still connected, or not yet refused.
                Ok(_) | Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
    known.set(Ok(Credentials::new("s3cret")));
    let released = happens("the release with the new password", async {
        loop {
            match held.release(ReleaseOptions::default()).await {
                Err(error) if error.is_retryable() => sleep(Duration::from_millis(50)).await,
                outcome => return outcome.unwrap(),
            }
        }
    })
    .await;
    assert_eq!(released, ReleaseOutcome::Released);
}

#[testbed::test]
async fn credentials_without_a_user_are_refused() {
    let server = shared_server().await;
    let known = Known::new(Credentials::new("s3cret"));
    let config = ZooKeeperConfig::new([server.address()]).with_root(fresh_root());
    let backend = backend_with(config.with_credentials(known.source()));
    let error = happens("an answer to the connect", backend.connect())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("have no user"), "{error}");
}
