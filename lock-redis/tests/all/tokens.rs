//! Tokens only ever grow.

use lock_core::backend::DistributedLock;
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::{ErrorKind, FencingToken};

use crate::support::{
    Fixture, Proxied, TTL, eventually, granted, in_the_end, last_reserved, name, refused, release, request, take,
};

const HOUR_MICROS: u64 = 3_600_000_000;

async fn server_micros(fixture: &Fixture) -> u64 {
    fixture.now().await.as_micros().try_into().expect("not so late")
}

#[testbed::test]
async fn after_release_expiry_and_every_deletion() {
    let mut fixture = Fixture::new().await;
    let backend = fixture.backend();
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
    fixture.expire("a").await;
    check(take(&backend, "a").await.token());

    let _: i64 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
    check(take(&backend, "a").await.token());

    let _: () = fixture.raw(&["FLUSHALL"]).await;
    check(take(&backend, "a").await.token());

    // All that comes before has been checked.
    if testbed::skip_external([&fixture.server]) {
        return;
    }
    fixture.server.restart_without_data().await.expect("it starts");
    fixture.reconnect().await;
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
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let mut ahead = server_micros(&fixture).await + 2 * HOUR_MICROS;
    let _: () = fixture
        .raw(&["SET", &fixture.fence_key("a"), &ahead.to_string(), "PX", "60000"])
        .await;
    for _ in 1..=3 {
        let hold = take(&backend, "a").await;
        assert_eq!(hold.token().as_u64(), ahead + 1);
        ahead = last_reserved(hold.token());
        let kept: u64 = fixture.raw(&["PTTL", &fixture.fence_key("a")]).await;
        let kept_until = server_micros(&fixture).await + kept * 1000;
        assert!(
            kept_until >= ahead + HOUR_MICROS - 1_000_000,
            "{kept_until} for {ahead}"
        );
        assert!(release(&hold).await);
    }
}

#[testbed::test]
async fn a_tombstone_leaves_a_token_ahead_of_the_clock_its_time() {
    let fixture = Fixture::new().await;
    let ahead = server_micros(&fixture).await + 2 * HOUR_MICROS;
    let _: () = fixture
        .raw(&["SET", &fixture.fence_key("a"), &ahead.to_string(), "PX", "10000000"])
        .await;
    // Right before its requests are held: a connection may end that is silent for a second.
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    let (late, _control) = request("a", TTL);
    proxy.hold_requests();
    backend.acquire(&late).await.expect_err("it never gets there");
    eventually("another connection", async || proxy.connections() > 1).await;
    in_the_end(async || backend.abandon(&late).await).await;
    let fence = fixture.fence("a").await;
    assert!(fence.starts_with(&format!("{ahead} {}:", late.holder())), "{fence}");
    let kept: u64 = fixture.raw(&["PTTL", &fixture.fence_key("a")]).await;
    let kept_until = server_micros(&fixture).await + kept * 1000;
    assert!(
        kept_until >= ahead + HOUR_MICROS - 1_000_000,
        "{kept_until} for {ahead}"
    );
}

#[testbed::test]
async fn the_fence_is_kept_for_an_hour() {
    let fixture = Fixture::new().await;
    take(&fixture.backend(), "a").await;
    let kept: u64 = fixture.raw(&["PTTL", &fixture.fence_key("a")]).await;
    assert!((3_500_000..=3_600_000).contains(&kept), "{kept}");
}

#[testbed::test]
async fn every_token_has_a_successor_beyond_what_a_double_can_count() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    for stored in [
        9_007_199_254_740_991,
        9_007_199_254_740_992,
        9_007_199_254_740_993,
        999_999_999_999_999_999,
        1_999_999_999_999_999_999,
        8_999_999_999_999_999_899,
        (1 << 63) - 2,
    ] {
        let _: () = fixture
            .raw(&["SET", &fixture.fence_key("a"), &stored.to_string()])
            .await;
        let hold = take(&backend, "a").await;
        assert_eq!(hold.token().as_u64(), stored + 1);
        assert!(release(&hold).await);
    }
    let error = refused(&backend, "a").await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(!fixture.exists("a").await);
}

#[testbed::test]
async fn a_request_s_floor_is_honoured() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let now = server_micros(&fixture).await;
    for floor in [1, now + HOUR_MICROS, now, 9_007_199_254_740_993] {
        let floor = FencingToken::new(floor).expect("a token");
        let options = RequestOptions::new(name("a"), Terms::new(TTL)).token_above(floor);
        let hold = granted(&backend, &options.start().0).await;
        assert!(hold.token() > floor, "{} for {floor}", hold.token());
        assert!(release(&hold).await);
    }
}
