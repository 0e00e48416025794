//! A server at its `maxmemory`: what is there goes on, and only what is new is refused.

use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::{DistributedLock, Mode, ReleaseOptions, ReleaseOutcome, Renewal};
use tokio::time::Instant;

use crate::replicas::{acknowledged, master_with};
use crate::support::waiter::{Hung, Waiter};
use crate::support::{
    Fixture, OFFER_IS_OVER, TTL, granted, in_some_run, in_the_end_granted, refused, release, request, request_in, take,
    with_config,
};

#[testbed::test]
async fn a_release_offers_the_name_however_full_the_memory_is() {
    in_some_run(OFFER_IS_OVER, async || {
        let Some(fixture) = Fixture::own().await else {
            return true;
        };
        let grace = Duration::from_secs(4);
        let backend = with_config(fixture.config().with_grace(grace));
        let hold = take(&backend, "a").await;
        let kept = take(&backend, "kept").await;
        let (hung, waiter) = (
            Hung::queued(&fixture, "a", TTL).await,
            Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await,
        );
        let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let start = Instant::now();
        assert!(release(&hold).await);
        let value = fixture.value("a").await;
        if start.elapsed() >= grace {
            return false;
        }
        assert!(value.starts_with(&hung.waiter.id()), "{value}");
        let keep = ReleaseOptions::default().keep_for(TTL);
        let outcome = kept.release(keep).await.expect("an answer");
        assert_eq!(outcome, ReleaseOutcome::Released);
        assert!(fixture.value("kept").await.starts_with("kept"));
        // It is told to look when the offer ends.
        let granted = waiter.granted().await;
        assert!(granted.token() > hold.token());
        assert!(release(&granted).await);
        true
    })
    .await;
}

#[testbed::test]
async fn a_confirm_needs_no_memory() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let hold = take(&fixture.backend(), "a").await;
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert!(release(&hold).await);
    let granted = waiter.granted().await;
    assert_eq!(fixture.queue("a").await, <[String; 0]>::default());
    assert!(release(&granted).await);
    let error = refused(&fixture.backend(), "b").await;
    assert!(
        error.to_string().contains("maxmemory"),
        "a new lock needs some: {error}"
    );
}

#[testbed::test]
async fn a_renewal_and_an_abandon_need_no_memory() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    let (wanted, _control) = request("a", TTL);
    let hold = granted(&backend, &wanted).await;
    let waiter = Waiter::queued(&fixture, &backend, "a", TTL).await;
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for ttl in [TTL, 2 * TTL] {
        assert!(matches!(hold.renew(ttl).await.expect("an answer"), Renewal::Renewed(_)));
    }
    waiter.leave().await;
    assert_eq!(fixture.queue("a").await, <[String; 0]>::default());
    backend.abandon(&wanted).await.expect("an answer");
    assert!(!fixture.exists("a").await);
}

/// Its holder may be one vote of a quorum: after a reconnect it raises the token again, or its renewal fails.
#[testbed::test]
async fn a_raise_needs_no_memory() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    let (exclusive, shared) = (
        take(&backend, "a").await,
        granted(&backend, &request_in(Mode::Shared, "b").0).await,
    );
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for (name, hold) in [("a", &exclusive), ("b", &shared)] {
        let raised = FencingToken::new(hold.token().as_u64() + 1_000_000).expect("a token");
        hold.raise_token(raised).await.expect("it writes in place");
        assert!(fixture.fence(name).await.starts_with(&raised.to_string()));
        assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Renewed(_)));
        assert!(release(hold).await);
    }
}

/// They are asked over a second connection, behind a write.
#[testbed::test]
async fn what_replicas_acknowledge_needs_no_memory() {
    let (_servers, fixture) = master_with(1).await;
    let backend = with_config(fixture.config().with_replicas(1));
    let exclusive = in_the_end_granted(&backend, &request("a", TTL).0).await;
    let shared = in_the_end_granted(&backend, &request_in(Mode::Shared, "b").0).await;
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for hold in [&exclusive, &shared] {
        let renewed = acknowledged(async || hold.renew(2 * TTL).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    }
    let downgraded = acknowledged(async || exclusive.downgrade(TTL).await).await;
    assert!(matches!(downgraded, Renewal::Renewed(_)), "{downgraded:?}");
    assert!(release(&exclusive).await);
    assert!(release(&shared).await);
}
