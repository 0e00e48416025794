//! What arrives late, or not at all: no holder id comes back to life that was abandoned, released or handed over meanwhile,
//! and a grant of which the answer was lost is given again.

use std::sync::Arc;

use lock_core::ErrorKind;
use lock_core::backend::{DistributedLock, HandOver, Hold};
use lock_redis::RedisBackend;

use crate::support::proxy::Proxy;
use crate::support::waiter::Waiter;
use crate::support::{QUICK, TTL, World, in_the_end, in_the_end_granted, in_the_end_released, request, take, until};

/// A backend that is connected through a proxy, and soon takes silence for an end.
struct Line {
    world: World,
    proxy: Proxy,
    backend: RedisBackend,
}

impl Line {
    async fn new() -> Self {
        let world = World::new().await;
        let proxy = Proxy::start(world.server.address()).await;
        let config = world.config_at(&proxy.address).with_response_timeout(QUICK);
        let backend = RedisBackend::new(config).expect("a good configuration");
        in_the_end(async || backend.connect().await).await;
        Self { world, proxy, backend }
    }
}

/// Waits until the backend has a second connection that serves.
async fn reconnected(backend: &RedisBackend, proxy: &Proxy) {
    in_the_end(async || {
        backend.status(&crate::support::name("unused")).await?;
        match proxy.connections() {
            0 | 1 => Err(lock_core::Error::new(
                ErrorKind::Unavailable,
                "still the first connection",
            )),
            _ => Ok(()),
        }
    })
    .await;
}

#[testbed::test]
async fn an_acquire_that_arrives_after_its_abandon_takes_nothing() {
    let Line { world, proxy, backend } = Line::new().await;
    let (late, _control) = request("a", TTL);
    proxy.hold_requests();
    backend.acquire(&late).await.expect_err("it never gets there");
    reconnected(&backend, &proxy).await;
    assert!(!world.exists("a").await);
    in_the_end(async || backend.abandon(&late).await).await;

    let tombstone: String = world.raw(&["GET", &world.fence_key("a")]).await;
    assert!(tombstone.starts_with(&format!("0 {}:", late.holder())), "{tombstone}");
    proxy.drain_the_first().await;
    assert!(!world.exists("a").await, "a dead holder id came back");

    let hold = in_the_end_granted(&backend, &request("a", TTL).0).await;
    let fence: String = world.raw(&["GET", &world.fence_key("a")]).await;
    assert!(
        fence.starts_with(&format!("{} {}:", hold.token(), late.holder())),
        "{fence}"
    );
    in_the_end_released(&hold).await;
    assert!(!world.exists("a").await);
    let error = in_the_end(async || match backend.acquire(&late).await {
        Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
        answer => Ok(answer.expect_err("it is dead")),
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error:?}");
}

#[testbed::test]
async fn an_acquire_that_arrives_after_its_retry_was_released_takes_nothing() {
    let Line { world, proxy, backend } = Line::new().await;
    let (request, _control) = request("a", TTL);
    proxy.hold_requests();
    backend.acquire(&request).await.expect_err("it never gets there");
    reconnected(&backend, &proxy).await;
    let hold = in_the_end_granted(&backend, &request).await;
    in_the_end_released(&hold).await;
    assert!(!world.exists("a").await);
    proxy.drain_the_first().await;
    assert!(!world.exists("a").await, "a dead holder id came back");
}

/// Passes a hold on or, where that is not done, releases it for the next one to acquire.
async fn passed_on(backend: &RedisBackend, giver: &Arc<dyn Hold>) -> Arc<dyn Hold> {
    let (next, _control) = request("a", TTL);
    match in_the_end(async || giver.hand_over(&next).await).await {
        HandOver::Granted(hold, _armed) => hold,
        _released => in_the_end_granted(backend, &next).await,
    }
}

#[testbed::test]
async fn an_acquire_that_arrives_after_its_retry_was_handed_over_takes_nothing() {
    let Line { world, proxy, backend } = Line::new().await;
    let (giver, _control) = request("a", TTL);
    proxy.hold_requests();
    backend.acquire(&giver).await.expect_err("it never gets there");
    reconnected(&backend, &proxy).await;
    let hold = in_the_end_granted(&backend, &giver).await;
    let next = passed_on(&backend, &hold).await;
    assert!(next.token() > hold.token());
    in_the_end_released(&next).await;
    assert!(!world.exists("a").await);
    proxy.drain_the_first().await;
    assert!(!world.exists("a").await, "a dead holder id came back");
}

#[testbed::test]
async fn a_waiter_that_arrives_after_its_retry_was_handed_over_takes_no_place() {
    let Line { world, proxy, backend } = Line::new().await;
    proxy.hold_requests();
    let waiter = Waiter::start(&backend, "a", TTL);
    let hold = waiter.granted().await;
    assert!(proxy.connections() > 1, "over another connection");
    let next = passed_on(&backend, &hold).await;
    proxy.drain_the_first().await;
    assert_eq!(world.queue("a").await, <[String; 0]>::default(), "a dead one waits");
    in_the_end_released(&next).await;
    assert!(!world.exists("a").await, "it was offered to a dead one");
}

#[testbed::test]
async fn a_grant_whose_answer_was_lost_is_given_again() {
    let Line { world, proxy, backend } = Line::new().await;
    let (request, _control) = request("a", TTL);
    proxy.hold_answers();
    let error = backend.acquire(&request).await.expect_err("the answer never comes");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    until("it took effect", async || world.exists("a").await).await;
    let value: String = world.raw(&["GET", &world.lock_key("a")]).await;
    reconnected(&backend, &proxy).await;
    let hold = in_the_end_granted(&backend, &request).await;
    assert_eq!(value, format!("{} {} 60000", request.holder(), hold.token()));
    in_the_end_released(&hold).await;
    assert!(!world.exists("a").await);
}

#[testbed::test]
async fn old_tombstones_are_cleared_away() {
    let world = World::new().await;
    let (old, young) = ("0".repeat(32), "1".repeat(32));
    let seconds: u64 = world.raw::<(u64, u64)>(&["TIME"]).await.0;
    let fence = format!("5 {old}:{} {young}:{}", seconds - 1, seconds + 600);
    let _: () = world.raw(&["SET", &world.fence_key("a"), &fence]).await;
    let hold = take(&world.backend(), "a").await;
    let fence: String = world.raw(&["GET", &world.fence_key("a")]).await;
    assert_eq!(fence, format!("{} {young}:{}", hold.token(), seconds + 600));
}
