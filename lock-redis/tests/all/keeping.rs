//! Keeping a name for a minimum time.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, Hold, ReleaseOptions, ReleaseOutcome, Renewal};
use tokio::time::Instant;

use crate::support::waiter::{Hung, Waiter};
use crate::support::{
    Fixture, SECOND, TTL, busy, eventually, granted, name, release, request, stays_below, take, with_config,
};

async fn kept(hold: &Arc<dyn Hold>, time: Duration) -> ReleaseOutcome {
    let how = ReleaseOptions::default().keep_for(time);
    hold.release(how).await.expect("an answer")
}

#[testbed::test]
async fn a_kept_name_is_nobodys_until_the_time_is_over_and_no_longer() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let terms = Terms::new(TTL).label("was here");
    let hold = granted(&backend, &RequestOptions::new(name("a"), terms).start().0).await;
    let keep = TTL / 2;
    assert_eq!(kept(&hold, keep).await, ReleaseOutcome::Released);
    assert!(fixture.rest("a").await <= keep, "although the ttl was longer");
    let (other, _control) = request("a", TTL);
    assert_eq!(busy(&backend, &other).await.holder.as_deref(), Some("was here"));
    let theirs: Option<String> = fixture
        .raw(&["SET", &fixture.lock_key("a"), "theirs", "NX", "PX", "60000"])
        .await;
    assert_eq!(theirs, None);

    // The id is retired.
    assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Lost));
    assert_eq!(kept(&hold, TTL).await, ReleaseOutcome::AlreadyLost);
    assert!(!release(&hold).await);
    assert!(fixture.rest("a").await <= keep);

    let brief = take(&backend, "b").await;
    let (keep, start) = (SECOND, Instant::now());
    assert_eq!(kept(&brief, keep).await, ReleaseOutcome::Released);
    eventually("it is free", async || !fixture.exists("b").await).await;
    assert!(start.elapsed() >= keep);

    // Longer than what was left of the ttl, too.
    let short = granted(&backend, &request("b", 10 * SECOND).0).await;
    assert!(short.token() > brief.token());
    assert_eq!(kept(&short, TTL).await, ReleaseOutcome::Released);
    let rest = fixture.rest("b").await;
    assert!(rest > TTL / 2 && rest <= TTL, "{rest:?}");
    assert!(fixture.keys().await.len() == 4, "two locks and their fences");
}

#[testbed::test]
async fn a_kept_name_is_reserved_for_the_first_that_waits_then() {
    stays_below(4 * SECOND, "nobody was woken", async || {
        let fixture = Fixture::new().await;
        let grace = SECOND;
        let backend = with_config(fixture.config().with_grace(grace));
        let hold = take(&backend, "a").await;
        let leaving = Waiter::queued(&fixture, &backend, "a", TTL).await;
        let hung = Hung::queued(&fixture, "a", TTL).await;
        let (keep, start) = (Duration::from_millis(700), Instant::now());
        assert_eq!(kept(&hold, keep).await, ReleaseOutcome::Released);
        // Both came, and one went, while it was kept.
        let last = Waiter::come(&fixture, &backend, "a", TTL).await;
        leaving.leave().await;
        let next = last.granted().await;
        let waited = start.elapsed();
        assert!(
            waited >= keep + grace,
            "{waited:?}: it was reserved for the hung one first"
        );
        assert!(next.token() > hold.token());
        assert_eq!(fixture.queue("a").await, [hung.waiter.id()]);
        assert!(release(&next).await);
        waited
    })
    .await;
}

#[testbed::test]
async fn who_comes_first_while_a_name_is_kept_has_it_before_a_later_request() {
    let fixture = Fixture::new().await;
    // So long that the first one is there in time.
    let backend = fixture.with_long_grace();
    let (keep, start) = (3 * SECOND, Instant::now());
    let hold = take(&backend, "a").await;
    assert_eq!(kept(&hold, keep).await, ReleaseOutcome::Released);
    let first = Waiter::come(&fixture, &backend, "a", TTL).await;
    let second = Waiter::queued(&fixture, &backend, "a", TTL).await;
    let later = async {
        let other = fixture.backend();
        let (request, _control) = request("a", TTL);
        while first.is_waiting() {
            match other.acquire(&request).await.expect("an answer") {
                lock_core::backend::Attempt::Busy(_) => {}
                taken => panic!("a later request was served first: {taken:?}"),
            }
        }
    };
    later.await;
    assert!(start.elapsed() >= keep);
    let hold = first.granted().await;
    assert!(second.is_waiting());
    assert!(release(&hold).await);
    assert!(release(&second.granted().await).await);
}

#[testbed::test]
async fn who_comes_when_a_kept_name_is_reserved_for_one_that_hangs_waits_for_the_grace_alone() {
    let (keep, grace) = (Duration::from_millis(300), 2 * SECOND);
    stays_below(keep + 2 * grace, "it looked a grace too late", async || {
        let fixture = Fixture::new().await;
        let backend = with_config(fixture.config().with_grace(grace));
        let hold = take(&backend, "a").await;
        let hung = Hung::queued(&fixture, "a", TTL).await;
        let start = Instant::now();
        assert_eq!(kept(&hold, keep).await, ReleaseOutcome::Released);
        // It is to come after the minimum, of whose end nobody is told but the hung one.
        tokio::time::sleep(keep).await;
        let late = Waiter::come(&fixture, &backend, "a", TTL).await;
        let next = late.granted().await;
        let waited = start.elapsed();
        assert!(waited >= keep + grace, "{waited:?}");
        assert_eq!(fixture.queue("a").await, [hung.waiter.id()]);
        assert!(release(&next).await);
        waited
    })
    .await;
}

#[testbed::test]
async fn waiters_of_different_graces_do_not_keep_a_name_for_each_other() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let patient = fixture.with_long_grace();
    patient.connect().await.expect("it is there");
    assert_eq!(kept(&hold, 2 * SECOND).await, ReleaseOutcome::Released);
    let waiter = Waiter::come(&fixture, &patient, "a", TTL).await;
    let others = fixture.backend();
    let asking = tokio::spawn(async move {
        loop {
            let (request, _control) = RequestOptions::new(name("a"), Terms::new(TTL)).waits(false).start();
            others.acquire(&request).await.expect("an answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(release(&waiter.granted().await).await);
    asking.abort();
}
