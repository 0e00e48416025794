//! A server whose clock is set.

use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{ReleaseOptions, ReleaseOutcome, Renewal};
use tokio::time::Instant;

use crate::support::waiter::{Hung, Waiter};
use crate::support::{Fixture, SECOND, TTL, busy, eventually, granted, name, release, request, take, with_config};

const HOUR_NANOS: i64 = 3_600_000_000_000;

/// `None` where the server is not ours.
async fn with_a_clock() -> Option<(Fixture, testbed::Clock)> {
    let clock = testbed::Clock::new().expect("a clock");
    let fixture = Fixture::own_of(testbed::Redis::new().clock(&clock)).await?;
    Some((fixture, clock))
}

#[testbed::test]
async fn a_clock_set_back_lengthens_no_hold_and_whoever_asks_shortens_none() {
    let Some((fixture, clock)) = with_a_clock().await else {
        return;
    };
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    clock.set(-HOUR_NANOS).expect("it is set");
    // It looks at its clock between requests; Valkey does so less often.
    eventually("the server has seen it", async || {
        fixture.rest("a").await > TTL + 1000 * SECOND
    })
    .await;
    // An asker whose own ttl is shorter.
    let (other, _control) = request("a", TTL / 3);
    busy(&fixture.backend(), &other).await;
    let rest = fixture.rest("a").await;
    assert!(rest <= TTL && rest > TTL / 2, "{rest:?}");
    assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Renewed(_)));
    assert!(release(&hold).await);

    let next = granted(&backend, &other).await;
    assert!(next.token() > hold.token(), "though the clock is behind the last token");
    assert!(release(&next).await);
}

#[testbed::test]
async fn the_longest_term_that_a_holder_asked_for_is_remembered() {
    let Some((fixture, clock)) = with_a_clock().await else {
        return;
    };
    let backend = fixture.backend();
    let terms = Terms::new(SECOND * 30).label("one with a label");
    let hold = granted(&backend, &RequestOptions::new(name("a"), terms).start().0).await;
    for ttl in [20 * TTL, TTL, SECOND] {
        assert!(matches!(hold.renew(ttl).await.expect("an answer"), Renewal::Renewed(_)));
    }
    let longest = 20 * TTL.as_millis();
    assert!(
        fixture
            .value("a")
            .await
            .ends_with(&format!(" {longest} one with a label"))
    );
    clock.set(-HOUR_NANOS).expect("it is set");
    busy(&fixture.backend(), &request("a", SECOND).0).await;
    let rest = fixture.rest("a").await;
    assert!(rest <= 20 * TTL && rest > 10 * TTL, "{rest:?}: the extension counts");
    assert!(release(&hold).await);
}

#[testbed::test]
async fn a_clock_set_back_keeps_no_name_for_longer_than_its_minimum() {
    let Some((fixture, clock)) = with_a_clock().await else {
        return;
    };
    let keep = 2 * SECOND;
    let hold = take(&fixture.with_long_grace(), "a").await;
    let first = Waiter::queued(&fixture, &fixture.with_long_grace(), "a", TTL).await;
    let start = Instant::now();
    let how = ReleaseOptions::default().keep_for(keep);
    assert_eq!(hold.release(how).await.expect("an answer"), ReleaseOutcome::Released);
    clock.set(-HOUR_NANOS).expect("it is set");
    // Whoever comes then asks the server to keep the name for it, once it is over.
    let second = Waiter::queued(&fixture, &fixture.with_long_grace(), "a", TTL).await;
    let next = first.granted().await;
    assert!(start.elapsed() >= keep);
    assert!(next.token() > hold.token() && second.is_waiting());
    assert!(release(&next).await);
    assert!(release(&second.granted().await).await);
}

#[testbed::test]
async fn a_clock_set_back_keeps_no_name_for_the_grace_as_well() {
    let Some((fixture, clock)) = with_a_clock().await else {
        return;
    };
    let (keep, grace) = (30 * SECOND, 5 * SECOND);
    let backend = with_config(fixture.config().with_grace(grace));
    let hold = take(&backend, "a").await;
    let how = ReleaseOptions::default().keep_for(keep);
    assert_eq!(hold.release(how).await.expect("an answer"), ReleaseOutcome::Released);
    let kept_until = async || {
        let value = fixture.value("a").await;
        let millis = value[..32].trim_start_matches("kept").parse().expect("milliseconds");
        Duration::from_millis(millis)
    };
    let before = kept_until().await;
    clock.set(-HOUR_NANOS).expect("it is set");
    eventually("somebody asks after it", async || {
        busy(&backend, &request("a", TTL).0).await;
        kept_until().await < before
    })
    .await;
    let now = fixture.now().await;
    assert!(kept_until().await <= now + keep, "kept for longer than asked");
    assert!(fixture.rest("a").await <= keep, "nobody waits for it");
}

#[testbed::test]
async fn queue_entries_from_before_a_step_back_expire_in_time() {
    let Some((fixture, clock)) = with_a_clock().await else {
        return;
    };
    let hold = take(&fixture.backend(), "a").await;
    let hung = Hung::queued(&fixture, "a", TTL).await;
    clock.set(-HOUR_NANOS).expect("it is set");
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
    let left: u64 = fixture.raw(&["PTTL", &fixture.queue_key("a")]).await;
    assert!(left <= 15_000, "{left}");
    assert_eq!(fixture.queue("a").await, [hung.waiter.id(), waiter.id()]);
    assert!(release(&hold).await);
    assert!(release(&waiter.granted().await).await);
}

#[testbed::test]
async fn a_step_forward_ends_holds_and_queue_entries_and_waiters_queue_again() {
    let Some((fixture, clock)) = with_a_clock().await else {
        return;
    };
    let (ttl, of_waiter) = (TTL, 9 * SECOND);
    let (request, _control) = request("a", ttl);
    let start = Instant::now();
    let hold = granted(&fixture.backend(), &request).await;
    // It refreshes after a third of its ttl.
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", of_waiter).await;
    clock.set(HOUR_NANOS).expect("it is set");
    eventually("the hold has ended", async || {
        !fixture.value("a").await.starts_with(&request.holder().to_string())
    })
    .await;
    let next = waiter.granted().await;
    assert!(start.elapsed() < ttl, "a refresh finds the name free");
    assert!(next.token() > hold.token());
    assert!(!release(&hold).await);
    assert!(release(&next).await);
    clock.set(0).expect("it is set");
    let last = take(&fixture.backend(), "a").await;
    assert!(last.token() > next.token());
}
