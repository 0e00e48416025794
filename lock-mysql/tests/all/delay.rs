//! Lines on which every answer is late.

use std::time::Duration;

use lock_core::backend::{ReleaseOutcome, Renewal};
use lock_core::{Guard, HoldState, Locker, LostCause};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::proxy::Proxy;
use crate::support::*;

const TTL: Duration = secs(5);
/// Both ways together just below two fifths of it.
const DELAY: Duration = Duration::from_millis(950);

/// Once in three times: on such a line, a machine that stands still for two seconds ends a hold. A mistake of ours ends
/// it every time.
async fn survives(mut holding: impl AsyncFnMut() -> Result<(), String>) {
    let mut lost = Vec::new();
    for _ in 0..3 {
        match holding().await {
            Ok(()) => return,
            Err(how) => lost.push(how),
        }
    }
    panic!("{lost:#?}");
}

#[testbed::test]
async fn a_hold_survives_round_trips_of_two_fifths_of_its_ttl() {
    survives(hold_and_renew).await;
}

async fn hold_and_renew() -> Result<(), String> {
    let fixture = Fixture::shared().await;
    let proxy = Proxy::of(&fixture).await;
    let backend = proxy.patient(&fixture);
    grant(&backend, "a", secs(60)).await.release().await;
    proxy.delay(DELAY);
    let granted = grant(&backend, "a", TTL).await;
    // As core does while none is answered.
    let mut renewals = JoinSet::new();
    let started = Instant::now();
    while started.elapsed() < 2 * TTL {
        let hold = granted.hold.clone();
        renewals.spawn(async move { hold.renew(TTL).await });
        sleep(TTL / 6).await;
        if granted.state() != HoldState::Held {
            return Err(format!("{:?} after {:?}", granted.state(), started.elapsed()));
        }
    }
    proxy.heal();
    while let Some(renewed) = renewals.join_next().await {
        match renewed.unwrap() {
            Ok(Renewal::Renewed(_)) => {}
            lost => return Err(format!("{lost:?}")),
        }
    }
    match granted.release().await {
        ReleaseOutcome::Released => Ok(()),
        lost => Err(format!("{lost:?}")),
    }
}

#[testbed::test]
async fn a_guard_survives_round_trips_of_two_fifths_of_its_ttl() {
    survives(async || {
        let fixture = Fixture::shared().await;
        let proxy = Proxy::of(&fixture).await;
        let locks = Locker::new(proxy.patient(&fixture));
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
        proxy.delay(DELAY);
        let guard = locks.lock("a").ttl(TTL).acquire().await.unwrap();
        is_kept(guard, 2 * TTL).await
    })
    .await;
}

/// Whether a guard outlasts this time and can be released then.
async fn is_kept(guard: Guard, time: Duration) -> Result<(), String> {
    if let Ok(lost) = timeout(time, guard.lost()).await {
        return Err(format!("{lost:?}"));
    }
    guard.release().await.map(drop).map_err(|error| format!("{error:?}"))
}

#[testbed::test]
async fn a_renewal_behind_a_ping_is_not_too_late() {
    survives(async || {
        let fixture = Fixture::shared().await;
        let proxy = Proxy::of(&fixture).await;
        let locks = Locker::new(proxy.patient(&fixture));
        locks.connect().await.unwrap();
        let guard = locks.lock("a").ttl(TTL).acquire().await.unwrap();
        // The line becomes slow between two pings, of which the second goes out just before the renewal.
        sleep(Duration::from_millis(1250)).await;
        proxy.delay(DELAY);
        is_kept(guard, 2 * TTL).await
    })
    .await;
}

#[testbed::test]
async fn pings_on_a_slow_line_end_no_hold_before_its_time() {
    let fixture = Fixture::shared().await;
    let proxy = Proxy::of(&fixture).await;
    let backend = proxy.patient(&fixture);
    grant(&backend, "a", secs(60)).await.release().await;
    proxy.delay(DELAY);
    let asked = Instant::now();
    let fixed = ask(&backend, options("a", TTL).waits(false).fixed(true))
        .await
        .expect("it is free");
    soon("over", fixed.request.lease().ended()).await;
    let HoldState::Lost(lost) = fixed.state() else {
        panic!("{:?}", fixed.state());
    };
    assert_eq!(lost.cause(), LostCause::Expired);
    // As long as core believes in it.
    assert!(asked.elapsed() >= TTL - TTL / 10, "{:?}", asked.elapsed());
}

#[testbed::test]
async fn renewals_that_wait_for_each_other_are_one_statement() {
    let fixture = Fixture::own().await;
    let (proxy, mut observer) = (Proxy::of(&fixture).await, fixture.observer().await);
    let granted = grant(&proxy.patient(&fixture), "a", secs(60)).await;
    let before = observer.counter("Com_set_option").await;
    proxy.stall();
    let mut renewals = JoinSet::new();
    for number in 0..50 {
        let hold = granted.hold.clone();
        let ttl = secs(if number == 25 { 3000 } else { 60 });
        renewals.spawn(async move { hold.renew(ttl).await });
    }
    let early = timeout(Duration::from_millis(200), renewals.join_next()).await;
    assert!(early.is_err(), "nothing gets through");
    let healed = Instant::now();
    proxy.heal();
    while let Some(renewed) = soon("answered", renewals.join_next()).await {
        assert!(matches!(renewed.unwrap().unwrap(), Renewal::Renewed(_)));
    }
    // One that was under way, and one for all that waited behind it, by the longest ttl. Pings were due as well.
    let sent = observer.counter("Com_set_option").await - before;
    assert!(sent <= 10, "{sent}");
    assert!(granted.request.lease().valid_for() > secs(2000));
    assert!(granted.request.lease().valid_for() <= secs(2700) + healed.elapsed());
}
