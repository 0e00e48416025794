//! Following a name: the server tracks its key, for those who follow it alone.

use std::time::Duration;

use lock_core::Locker;
use lock_core::backend::DistributedLock;
use lock_redis::RedisBackend;
use redis::Value;
use testbed::happens;
use tokio::time::timeout;

use crate::support::{Fixture, LONG, name, release, take, with_config};

async fn figure(fixture: &Fixture, section: &str, figure: &str) -> u64 {
    let info: String = fixture.raw(&["INFO", section]).await;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    line.expect("the server says it").parse().expect("a number")
}

#[testbed::test]
async fn names_that_nobody_follows_are_not_tracked() {
    let Some(fixture) = Fixture::own().await else { return };
    let (holder, follower) = (fixture.backend(), fixture.backend());
    assert!(release(&take(&holder, "b").await).await);
    Locker::new(follower.clone()).status("a").await.expect("an answer");
    assert_eq!(figure(&fixture, "clients", "tracking_clients").await, 0);
    let (_, mut change) = follower.follow(&name("a")).await.expect("an answer");
    // Of the connection that follows, what is not followed is not tracked either.
    assert!(release(&take(&follower, "b").await).await);
    assert_eq!(figure(&fixture, "clients", "tracking_clients").await, 1);
    assert_eq!(figure(&fixture, "stats", "tracking_total_keys").await, 1);
    let hold = take(&holder, "a").await;
    happens("heard", change.happened()).await;
    assert!(release(&hold).await);
}

#[testbed::test]
async fn a_change_completes_with_its_connection() {
    let fixture = Fixture::new().await;
    let follower = fixture.backend();
    let (_, mut change) = follower.follow(&name("a")).await.expect("an answer");
    let listening: i64 = fixture.raw(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    assert_eq!(listening, 1, "that is the backend's own connection");
    happens("it ended", change.happened()).await;
    let (_, mut change) = follower.follow(&name("a")).await.expect("an answer");
    // It keeps no connection.
    drop(follower);
    happens("it ended", change.happened()).await;
}

/// It is tried once for each connection.
#[testbed::test]
async fn without_a_permission_nothing_is_reported() {
    let Some(fixture) = Fixture::own().await else { return };
    for missing in ["+client|tracking", "+client|caching"] {
        let follower = follower_without(&fixture, missing).await;
        ensure_not_reported(&fixture, &follower).await;
    }
}

async fn follower_without(fixture: &Fixture, missing: &str) -> RedisBackend {
    let rules = fixture.config().acl_rules();
    let rules = rules.iter().map(String::as_str).filter(|rule| *rule != missing);
    let command = ["ACL", "SETUSER", missing, "reset", "on", ">sesame"].into_iter();
    let _: () = fixture.raw(&command.chain(rules).collect::<Vec<_>>()).await;
    let config = fixture.config().with_user(missing).with_password("sesame");
    with_config(config.with_connect_timeout(LONG))
}

async fn ensure_not_reported(fixture: &Fixture, follower: &RedisBackend) {
    let hold = take(follower, "a").await;
    let (status, mut change) = follower.follow(&name("a")).await.expect("an answer");
    assert!(status.is_held());
    let _: () = fixture.raw(&["ACL", "LOG", "RESET"]).await;
    let (status, _) = follower.follow(&name("a")).await.expect("an answer");
    assert!(status.is_held());
    let rejected: Vec<Value> = fixture.raw(&["ACL", "LOG"]).await;
    assert!(rejected.is_empty(), "{rejected:?}");
    assert!(release(&hold).await);
    assert!(timeout(Duration::from_millis(100), change.happened()).await.is_err());
}
