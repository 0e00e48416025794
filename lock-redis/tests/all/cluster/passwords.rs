//! A password that changes while locks of all masters are held.

use std::sync::{Arc, Mutex};

use lock_core::backend::{Hold, Renewal};
use lock_core::{CredentialSource, Credentials, ErrorKind};
use lock_redis::RedisBackend;

use super::Fixture;
use crate::support::waiter::Waiter;
use crate::support::{TTL, eventually, in_the_end, in_the_end_released, take, with_config};

/// What the source answers at the moment.
type Password = Arc<Mutex<&'static str>>;

/// A client with a hold on each of three masters, and a waiter of another client with the same source.
struct Rotated {
    fixture: Fixture,
    holds: Vec<(String, Arc<dyn Hold>)>,
    waiter: Waiter,
    /// They hold connections.
    _clients: [RedisBackend; 2],
}

/// All masters get the new password, then the source, and then they drop the old one and all connections.
async fn rotated(source: impl FnOnce(Password) -> CredentialSource) -> Rotated {
    let fixture = Fixture::shared().await;
    let user = format!("app-{}", fixture.prefix.trim_end_matches(':'));
    let tell_all = async |rules: &[&str]| {
        let command = [&["ACL", "SETUSER", &user], rules].concat();
        for node in 0..3 {
            assert_eq!(fixture.call(node, &command).await, "OK");
        }
    };
    let may = fixture.config().acl_rules();
    let may: Vec<_> = may.iter().map(String::as_str).collect();
    tell_all(&[&["reset", "on", ">old"], &may[..]].concat()).await;

    let password = Password::new(Mutex::new("old"));
    let config = fixture.config().with_user(&user);
    let config = config.with_credentials(source(password.clone()));
    let clients = [with_config(config.clone()), with_config(config)];
    let mut holds = Vec::new();
    for node in 0..3 {
        let of = fixture.name_on(node).await;
        holds.push((of.clone(), take(&clients[0], &of).await));
    }
    let waiter = fixture.queued(&clients[1], &holds[0].0, TTL).await;

    tell_all(&[">new"]).await;
    *password.lock().expect("no panics") = "new";
    tell_all(&["<old"]).await;
    for node in 0..3 {
        let ended = fixture.call(node, &["CLIENT", "KILL", "USER", &user]).await;
        assert_ne!(ended, "0", "each master had connections");
    }
    Rotated {
        fixture,
        holds,
        waiter,
        _clients: clients,
    }
}

#[testbed::test]
async fn holds_and_waiters_outlive_the_password_of_their_connections() {
    let rotated = rotated(|password| {
        CredentialSource::ask(move || {
            let password = *password.lock().expect("no panics");
            async move { Ok(Credentials::new(password)) }
        })
    })
    .await;
    let fixture = &rotated.fixture;
    for (node, (of, hold)) in rotated.holds.iter().enumerate() {
        let renewal = in_the_end(async || hold.renew(2 * TTL).await).await;
        assert!(matches!(renewal, Renewal::Renewed(_)), "{renewal:?}");
        let left = fixture.call(node, &["PTTL", &fixture.key(of)]).await;
        let left: u128 = left.parse().expect("it is held for a time");
        assert!(left > TTL.as_millis(), "it was renewed beyond what it had");
    }
    for (_, hold) in &rotated.holds {
        in_the_end_released(hold).await;
    }
    let next = rotated.waiter.granted().await;
    assert!(next.token() > rotated.holds[0].1.token());
    in_the_end_released(&next).await;
}

/// What the test above would see of a backend that asks for its password once.
#[testbed::test]
async fn a_password_that_is_asked_for_once_does_not_survive_its_change() {
    let rotated = rotated(|password| {
        let first = *password.lock().expect("no panics");
        CredentialSource::ask(move || async move { Ok(Credentials::new(first)) })
    })
    .await;
    for (of, hold) in &rotated.holds {
        eventually("the old password is refused", async || match hold.renew(TTL).await {
            Err(error) => error.kind() == ErrorKind::Denied,
            Ok(renewal) => panic!("{of:?} was answered over a connection that has ended: {renewal:?}"),
        })
        .await;
    }
}
