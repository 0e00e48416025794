//! What arrives late, or not at all: no holder id comes back to life that was abandoned or released meanwhile,
//! and a grant of which the answer was lost is given again.

use std::sync::Arc;

use lock_core::ErrorKind;
use lock_core::backend::{DistributedLock, Hold};
use lock_redis::RedisBackend;

use crate::support::proxy::Proxy;
use crate::support::waiter::Waiter;
use crate::support::{
    Fixture, Proxied, TTL, busy, eventually, in_the_end, in_the_end_granted, in_the_end_released, last_reserved, name,
    release, request, take,
};

/// Waits until the backend has a second connection that serves.
async fn reconnected(backend: &RedisBackend, proxy: &Proxy) {
    in_the_end(async || {
        backend.status(&name("unused")).await?;
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
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    let (late, _control) = request("a", TTL);
    proxy.hold_requests();
    backend.acquire(&late).await.expect_err("it never gets there");
    reconnected(&backend, &proxy).await;
    assert!(!fixture.exists("a").await);
    in_the_end(async || backend.abandon(&late).await).await;

    let tombstone = fixture.fence("a").await;
    assert!(tombstone.starts_with(&format!("0 {}:", late.holder())), "{tombstone}");
    proxy.drain_the_held().await;
    assert!(!fixture.exists("a").await, "an ended holder id came back");

    let hold = in_the_end_granted(&backend, &request("a", TTL).0).await;
    let fence = fixture.fence("a").await;
    assert!(
        fence.starts_with(&format!("{} {}:", last_reserved(hold.token()), late.holder())),
        "{fence}"
    );
    in_the_end_released(&hold).await;
    assert!(!fixture.exists("a").await);
    let error = in_the_end(async || match backend.acquire(&late).await {
        Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
        answer => Ok(answer.expect_err("it has ended")),
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error:?}");
}

#[testbed::test]
async fn an_acquire_that_arrives_after_its_retry_was_released_takes_nothing() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    let (request, _control) = request("a", TTL);
    proxy.hold_requests();
    backend.acquire(&request).await.expect_err("it never gets there");
    reconnected(&backend, &proxy).await;
    let hold = in_the_end_granted(&backend, &request).await;
    in_the_end_released(&hold).await;
    assert!(!fixture.exists("a").await);
    proxy.drain_the_held().await;
    assert!(!fixture.exists("a").await, "an ended holder id came back");
}

/// Releases a hold, and has another holder id acquire the name.
async fn followed(backend: &RedisBackend, former: &Arc<dyn Hold>) -> Arc<dyn Hold> {
    let (next, _control) = request("a", TTL);
    in_the_end_released(former).await;
    in_the_end_granted(backend, &next).await
}

#[testbed::test]
async fn an_acquire_that_arrives_after_its_retry_was_followed_takes_nothing() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    let (giver, _control) = request("a", TTL);
    proxy.hold_requests();
    backend.acquire(&giver).await.expect_err("it never gets there");
    reconnected(&backend, &proxy).await;
    let hold = in_the_end_granted(&backend, &giver).await;
    let next = followed(&backend, &hold).await;
    assert!(next.token() > hold.token());
    in_the_end_released(&next).await;
    assert!(!fixture.exists("a").await);
    proxy.drain_the_held().await;
    assert!(!fixture.exists("a").await, "an ended holder id came back");
}

#[testbed::test]
async fn a_waiter_that_arrives_after_its_retry_was_followed_gets_no_queue_entry() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    proxy.hold_requests();
    let waiter = Waiter::start(&backend, "a", TTL);
    let hold = waiter.granted().await;
    assert!(proxy.connections() > 1, "over another connection");
    let next = followed(&backend, &hold).await;
    proxy.drain_the_held().await;
    assert_eq!(
        fixture.queue("a").await,
        <[String; 0]>::default(),
        "an ended holder id waits"
    );
    in_the_end_released(&next).await;
    assert!(!fixture.exists("a").await, "it was offered to an ended holder id");
}

#[testbed::test]
async fn a_grant_whose_answer_was_lost_is_given_again() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    let (request, _control) = request("a", TTL);
    proxy.hold_answers();
    let error = backend.acquire(&request).await.expect_err("the answer never comes");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    eventually("it took effect", async || fixture.exists("a").await).await;
    let value = fixture.value("a").await;
    reconnected(&backend, &proxy).await;
    let hold = in_the_end_granted(&backend, &request).await;
    assert_eq!(value, format!("{} {} 60000", request.holder(), hold.token()));
    in_the_end_released(&hold).await;
    assert!(!fixture.exists("a").await);
}

#[testbed::test]
async fn old_tombstones_are_cleared_away() {
    let fixture = Fixture::new().await;
    let (old, young) = ("0".repeat(32), "1".repeat(32));
    let seconds = fixture.now().await.as_secs();
    let fence = format!("5 {old}:{} {young}:{}", seconds - 1, seconds + 600);
    let _: () = fixture.raw(&["SET", &fixture.fence_key("a"), &fence]).await;
    let hold = take(&fixture.backend(), "a").await;
    let fence = fixture.fence("a").await;
    assert_eq!(
        fence,
        format!("{} {young}:{}", last_reserved(hold.token()), seconds + 600)
    );
}

/// A request that is refused writes none of them, and a grant all that live, in their order.
#[testbed::test]
async fn of_many_tombstones_those_that_live_are_kept() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let first = take(&backend, "a").await;
    let seconds = fixture.now().await.as_secs();
    let young = |number: u64| format!(" {number:032x}:{}", seconds + 600);
    let old = |number: u64| format!(" {number:032x}:{}", seconds - 1);
    let all: String = (0..1000)
        .map(|number| old(2 * number) + &young(2 * number + 1))
        .collect();
    let live: String = (0..1000).map(|number| young(2 * number + 1)).collect();
    let fence = format!("{}{all}", last_reserved(first.token()));
    let _: () = fixture.raw(&["SET", &fixture.fence_key("a"), &fence]).await;
    busy(&backend, &request("a", TTL).0).await;
    assert_eq!(fixture.fence("a").await, fence);
    assert!(release(&first).await);
    let next = take(&backend, "a").await;
    let fence = fixture.fence("a").await;
    assert_eq!(fence, format!("{}{live}", last_reserved(next.token())));
}
