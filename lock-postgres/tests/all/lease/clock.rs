//! A server whose clock is set.

use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome, Renewal, Revoke, Revoked};
use testbed::{Clock, Postgres};

use super::support::*;

const HOUR_NANOS: i64 = 3_600_000_000_000;

async fn with_a_clock() -> (Fixture, Clock) {
    let clock = Clock::new().unwrap();
    (Fixture::own(Postgres::new().clock(&clock)).await, clock)
}

/// How long the row's hold lasts, in seconds.
async fn rest(fixture: &Fixture) -> i64 {
    fixture
        .number("SELECT extract(epoch from expires-clock_timestamp())::bigint FROM {}_leases WHERE name='a'")
        .await
}

#[testbed::test]
async fn a_clock_set_back_lengthens_no_hold_and_whoever_asks_shortens_none() {
    let (fixture, clock) = with_a_clock().await;
    let (first, second) = (fixture.backend(), fixture.backend());
    let granted = grant(&first, "a", secs(60)).await;
    clock.set(-HOUR_NANOS).unwrap();
    assert!(rest(&fixture).await > 1000, "the server runs on the clock");
    // An asker whose own TTL is short.
    assert!(acquire(&second, options("a", secs(1)).waits(false)).await.is_none());
    let left = rest(&fixture).await;
    assert!((30..=60).contains(&left), "{left}");
    assert!(matches!(
        granted.hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    let next = grant(&second, "a", secs(60)).await;
    assert!(
        next.token() > granted.token(),
        "though the clock is behind the last token"
    );
    assert!(rest(&fixture).await <= 60);
}

#[testbed::test]
async fn the_longest_term_that_a_holder_asked_for_is_remembered() {
    let (fixture, clock) = with_a_clock().await;
    let backend = fixture.backend();
    let granted = grant(&backend, "a", secs(60)).await;
    for ttl in [secs(600), secs(60)] {
        assert!(matches!(granted.hold.renew(ttl).await.unwrap(), Renewal::Renewed(_)));
    }
    clock.set(-HOUR_NANOS).unwrap();
    assert!(matches!(
        granted.hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    let left = rest(&fixture).await;
    assert!((300..=600).contains(&left), "{left}");
    assert!(try_in(&fixture.backend(), "a", Exclusive).await.is_none());
}

#[testbed::test]
async fn a_reader_lasts_no_longer_than_its_term_after_the_clock_was_set_back() {
    let (fixture, clock) = with_a_clock().await;
    let backend = fixture.backend();
    let reader = try_in(&backend, "a", Shared).await.unwrap();
    clock.set(-HOUR_NANOS).unwrap();
    assert!(try_in(&fixture.backend(), "a", Exclusive).await.is_none());
    let left = rest(&fixture).await;
    assert!((30..=60).contains(&left), "{left}");
    assert_eq!(reader.release().await, ReleaseOutcome::Released);
    assert!(try_in(&fixture.backend(), "a", Exclusive).await.is_some());
}

#[testbed::test]
async fn marks_and_entries_from_before_a_step_keep_nobody_out() {
    let (fixture, clock) = with_a_clock().await;
    let backend = fixture.backend();
    let granted = grant(&backend, "a", secs(60)).await;
    let (request, control) = options("a", secs(60)).start();
    let waits = fixture.backend();
    let waiting = begin(&waits, &request);
    eventually("queueing", async || {
        fixture.number("SELECT count(*) FROM {}_waiters").await == 1
    })
    .await;
    waiting.abort();
    drop((waiting.await, control, waits));
    clock.set(-HOUR_NANOS).unwrap();
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    // A question of the waiter's that was under way may have come after the step: its mark lasts for seconds, and not an hour.
    eventually("passing", async || try_in(&backend, "a", Exclusive).await.is_some()).await;
    backend.clean_up().await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM {}_waiters").await, 0);
}

#[testbed::test]
async fn a_released_name_is_free_although_the_clock_is_set_back() {
    let (fixture, clock) = with_a_clock().await;
    let backend = fixture.backend();
    for (name, mode) in [("alone", Exclusive), ("shared", Shared)] {
        let held = try_in(&backend, name, mode).await.unwrap();
        assert_eq!(held.release().await, ReleaseOutcome::Released);
    }
    let (request, _control) = options("abandoned", secs(60)).waits(false).start();
    assert!(granted(backend.acquire(&request).await.unwrap()).is_some());
    backend.abandon(&request).await.unwrap();
    let revoked = grant(&backend, "revoked", secs(60)).await;
    let was_held = backend.revoke(&name("revoked"), revoked.token(), Revoke::Now).await;
    assert!(matches!(was_held.unwrap(), Revoked::Done { .. }));
    let kept = grant(&backend, "a", secs(600)).await;
    let how = ReleaseOptions::default().keep_for(secs(60));
    assert_eq!(kept.hold.release(how).await.unwrap(), ReleaseOutcome::Released);
    clock.set(-HOUR_NANOS).unwrap();
    let other = fixture.backend();
    for name in ["alone", "shared", "abandoned", "revoked"] {
        assert!(
            acquire(&other, options(name, secs(60)).waits(false)).await.is_some(),
            "{name:?} looks held"
        );
    }
    // A minimum is kept, and for no longer than it lasts.
    assert!(try_in(&other, "a", Exclusive).await.is_none());
    assert!(rest(&fixture).await <= 60);
}
