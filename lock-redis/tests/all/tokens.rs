//! Tokens only ever grow.

use std::time::Duration;

use lock_core::backend::{DistributedLock, RequestOptions, Terms};
use lock_core::{ErrorKind, FencingToken};
use lock_redis::RedisBackend;

use crate::support::proxy::Proxy;
use crate::support::{TTL, World, granted, in_the_end, name, refused, release, request, take, until};

const HOUR_MICROS: u64 = 3_600_000_000;

async fn server_micros(world: &World) -> u64 {
    let (seconds, micros): (u64, u64) = world.raw(&["TIME"]).await;
    seconds * 1_000_000 + micros
}

#[testbed::test]
async fn after_release_expiry_and_every_deletion() {
    let mut world = World::new().await;
    let backend = world.backend();
    let mut last = FencingToken::new(1).expect("a token");
    let mut check = |token: FencingToken| {
        assert!(token > last, "{token} after {last}");
        last = token;
    };
    for _ in 0..100 {
        let hold = take(&backend, "a").await;
        check(hold.token());
        assert!(release(&hold).await);
    }

    check(take(&backend, "a").await.token());
    world.expire("a").await;
    check(take(&backend, "a").await.token());

    let _: i64 = world.raw(&["DEL", &world.lock_key("a")]).await;
    check(take(&backend, "a").await.token());

    let _: () = world.raw(&["FLUSHALL"]).await;
    check(take(&backend, "a").await.token());

    if world.server.is_external() {
        return;
    }
    world.server.restart_without_data().await.expect("it starts");
    world.reconnect().await;
    check(
        in_the_end(async || {
            let (request, _control) = request("a", TTL);
            match backend.acquire(&request).await? {
                lock_core::backend::Attempt::Granted(hold, _) => Ok(hold.token()),
                other => panic!("{other:?}"),
            }
        })
        .await,
    );
}

#[testbed::test]
async fn a_stored_token_ahead_of_the_clock_counts_and_outlives_the_clock_s_passing_it() {
    let world = World::new().await;
    let backend = world.backend();
    let ahead = server_micros(&world).await + 2 * HOUR_MICROS;
    let _: () = world
        .raw(&["SET", &world.fence_key("a"), &ahead.to_string(), "PX", "1000"])
        .await;
    for step in 1..=3 {
        let hold = take(&backend, "a").await;
        assert_eq!(hold.token().as_u64(), ahead + step);
        let kept: u64 = world.raw(&["PTTL", &world.fence_key("a")]).await;
        let kept_until = server_micros(&world).await + kept * 1000;
        assert!(
            kept_until >= ahead + HOUR_MICROS - 1_000_000,
            "{kept_until} for {ahead}"
        );
        assert!(release(&hold).await);
    }
}

#[testbed::test]
async fn a_tombstone_leaves_a_token_ahead_of_the_clock_its_time() {
    let world = World::new().await;
    let proxy = Proxy::start(world.server.address()).await;
    let config = world.config_at(&proxy.address);
    let backend =
        RedisBackend::new(config.with_response_timeout(Duration::from_secs(1))).expect("a good configuration");
    in_the_end(async || backend.connect().await).await;
    let ahead = server_micros(&world).await + 2 * HOUR_MICROS;
    let _: () = world
        .raw(&["SET", &world.fence_key("a"), &ahead.to_string(), "PX", "10000000"])
        .await;
    let (late, _control) = request("a", TTL);
    proxy.hold_requests();
    backend.acquire(&late).await.expect_err("it never gets there");
    until("another connection", async || proxy.connections() > 1).await;
    in_the_end(async || backend.abandon(&late).await).await;
    let fence: String = world.raw(&["GET", &world.fence_key("a")]).await;
    assert!(fence.starts_with(&format!("{ahead} {}:", late.holder())), "{fence}");
    let kept: u64 = world.raw(&["PTTL", &world.fence_key("a")]).await;
    let kept_until = server_micros(&world).await + kept * 1000;
    assert!(
        kept_until >= ahead + HOUR_MICROS - 1_000_000,
        "{kept_until} for {ahead}"
    );
}

#[testbed::test]
async fn the_fence_is_kept_for_an_hour() {
    let world = World::new().await;
    take(&world.backend(), "a").await;
    let kept: u64 = world.raw(&["PTTL", &world.fence_key("a")]).await;
    assert!((3_500_000..=3_600_000).contains(&kept), "{kept}");
}

#[testbed::test]
async fn every_token_has_a_successor_beyond_what_a_double_can_count() {
    let world = World::new().await;
    let backend = world.backend();
    for stored in [
        9_007_199_254_740_991,
        9_007_199_254_740_992,
        9_007_199_254_740_993,
        999_999_999_999_999_999,
        1_999_999_999_999_999_999,
        8_999_999_999_999_999_899,
        (1 << 63) - 2,
    ] {
        let _: () = world.raw(&["SET", &world.fence_key("a"), &stored.to_string()]).await;
        let hold = take(&backend, "a").await;
        assert_eq!(hold.token().as_u64(), stored + 1);
        assert!(release(&hold).await);
    }
    let error = refused(&backend, "a").await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(!world.exists("a").await);
}

#[testbed::test]
async fn a_request_s_floor_is_honoured() {
    let world = World::new().await;
    let backend = world.backend();
    let now = server_micros(&world).await;
    for floor in [1, now + HOUR_MICROS, now, 9_007_199_254_740_993] {
        let floor = FencingToken::new(floor).expect("a token");
        let options = RequestOptions::new(name("a"), Terms::new(TTL)).token_above(floor);
        let hold = granted(&backend, &options.start().0).await;
        assert!(hold.token() > floor, "{} for {floor}", hold.token());
        assert!(release(&hold).await);
    }
}
