//! A try follows this process's own release of the name, whatever happens on the way: else it would be told that the
//! name is taken, of which nobody else has ever heard.

use std::time::Duration;

use lock_core::backend::{Attempt, DistributedLock, ReleaseOptions};
use lock_core::{Guard, Locker};
use lock_redis::RedisBackend;
use tokio::time::timeout;

use crate::support::proxy::Proxy;
use crate::support::{AT_MOST, TTL, World, in_the_end, in_the_end_granted, request, take};

const SECOND: Duration = Duration::from_secs(1);

/// A guard is dropped, and the name is tried for at once.
async fn try_after_a_drop(locks: &Locker, guard: Guard) -> Guard {
    drop(guard);
    let tried = in_the_end(async || locks.lock("a").ttl(TTL).try_acquire().await).await;
    tried.expect("nobody else ever had it")
}

#[testbed::test]
async fn a_try_follows_a_release_of_which_the_server_has_forgotten_the_script() {
    let world = World::new().await;
    let (locks, other) = (Locker::new(world.backend()), world.backend());
    let mut guard = locks.lock("a").ttl(TTL).acquire().await.expect("a grant");
    for step in 0..20 {
        let _: () = world.raw(&["SCRIPT", "FLUSH"]).await;
        // Of an acquire it knows the script again.
        take(&other, &format!("other-{step}")).await;
        guard = try_after_a_drop(&locks, guard).await;
    }
    guard.release().await.expect("still ours");
}

#[testbed::test]
async fn a_try_follows_a_release_that_waits_for_a_connection() {
    let world = World::new().await;
    let locks = Locker::new(world.backend());
    let mut guard = locks.lock("a").ttl(TTL).acquire().await.expect("a grant");
    for _ in 0..5 {
        let listening: i64 = world.raw(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        assert_eq!(listening, 1, "that is the backend's own connection");
        guard = try_after_a_drop(&locks, guard).await;
    }
    guard.release().await.expect("still ours");
}

#[testbed::test]
async fn a_try_does_not_wait_for_ever_for_a_release_that_is_never_answered() {
    let world = World::new().await;
    let proxy = Proxy::start(world.server.address()).await;
    let config = world.config_at(&proxy.address).with_response_timeout(SECOND);
    let backend = RedisBackend::new(config).expect("a good configuration");
    let hold = in_the_end_granted(&backend, &request("a", TTL).0).await;
    proxy.hold_requests();
    hold.release(ReleaseOptions::default())
        .await
        .expect_err("it never gets there");
    let (other, _control) = request("a", TTL);
    let tried = timeout(AT_MOST, in_the_end(async || backend.acquire(&other).await)).await;
    let tried = tried.expect("an answer in time");
    assert!(matches!(tried, Attempt::Busy(_)), "{tried:?}");
}
