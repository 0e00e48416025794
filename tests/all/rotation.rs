//! A quorum whose servers change their passwords while a lock is held.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_redis::redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, cmd};
use polylock::{Config, CredentialSource, Credentials, Error, ErrorKind, Guard, Locker, Release};
use testbed::{Redis, Server, eventually};

const TTL: Duration = Duration::from_secs(60);
const PREFIX: &str = "rotation-test:";

/// What the source answers at the moment.
type Password = Arc<Mutex<&'static str>>;

async fn ask<T: FromRedisValue>(server: &Server, command: &Cmd) -> T {
    let client = Client::open(server.url()).expect("testbed's URL");
    // The driver's defaults, a second to connect and half a second for an answer, are what a busy machine may take.
    let patience = Some(testbed::steady::AT_MOST);
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(patience)
        .set_response_timeout(patience);
    let connected = client.get_multiplexed_async_connection_with_config(&patient).await;
    let answer = command.query_async(&mut connected.expect("it is there")).await;
    answer.expect("an answer")
}

async fn tell_all(servers: &[Server; 3], user: &str, rules: &[&str]) {
    for server in servers {
        let () = ask(server, cmd("ACL").arg("SETUSER").arg(user).arg(rules)).await;
    }
}

/// A lock that was acquired with the old password, when all servers know the new one alone and have ended all connections.
async fn rotated(
    servers: &[Server; 3],
    user: &str,
    source: impl FnOnce(Password) -> CredentialSource,
) -> (Locker, Guard) {
    tell_all(servers, user, &["reset", "on", ">old", "~*", "&*", "+@all"]).await;
    let urls = servers.each_ref().map(|server| {
        let url = server.url().replace("redis://", &format!("redis://{user}@"));
        format!("{url}?prefix={PREFIX}")
    });
    let password = Password::new(Mutex::new("old"));
    let config = Config::new(format!("quorum:{}", urls.join("|")));
    let locks = config.with_credentials(source(password.clone())).connect().await;
    let locks = locks.expect("the old password is right");
    let guard = locks.lock(user).ttl(TTL).acquire().await.expect("it is free");

    tell_all(servers, user, &[">new"]).await;
    *password.lock().expect("no panics") = "new";
    tell_all(servers, user, &["<old"]).await;
    for server in servers {
        let ended: u32 = ask(server, cmd("CLIENT").arg("KILL").arg("USER").arg(user)).await;
        assert!(ended > 0, "each server had a connection");
    }
    (locks, guard)
}

/// Extends the hold of all servers, or says what they refuse it for in the end.
async fn extended(guard: &Guard) -> Result<(), Error> {
    eventually("an answer", async || match guard.extend(2 * TTL).await {
        // The ends of the connections may not have been noticed yet, nor all new ones made.
        Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
        extended => Ok(extended),
    })
    .await
}

#[testbed::test]
async fn a_hold_of_a_quorum_outlives_the_passwords_of_its_servers() {
    let start = || async { Redis::new().start().await.expect("a server") };
    let servers = [start().await, start().await, start().await];
    if testbed::skip_external(&servers) {
        return;
    }
    let (locks, guard) = rotated(&servers, "app", |password| {
        CredentialSource::ask(move || {
            let password = *password.lock().expect("no panics");
            async move { Ok(Credentials::new(password)) }
        })
    })
    .await;
    extended(&guard).await.expect("the new password is asked for");
    assert!(guard.valid_for() > TTL, "it is held beyond what it had");
    assert_eq!(guard.release().await.expect("it is held"), Release::Released);
    locks.shutdown().await.expect("the servers answer");

    // What this would see of a quorum that asks for its passwords once.
    let (_locks, guard) = rotated(&servers, "asks-once", |password| {
        let first = *password.lock().expect("no panics");
        CredentialSource::ask(move || async move { Ok(Credentials::new(first)) })
    })
    .await;
    let error = extended(&guard).await.expect_err("the old password is refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}
