//! Acquire, release, renew, expire, repeat, abandon.

use std::time::Duration;

use lock_core::backend::{Attempt, DistributedLock, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{HoldState, LostCause};
use lock_mysql::RowLockBackend;
use tokio::time::Instant;

use crate::support::proxy::Proxy;
use crate::support::*;

#[testbed::test]
async fn a_hold_is_a_locked_row_until_it_is_released() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let granted = grant(&backend, "a", secs(10)).await;
    assert!(observer.is_locked("a").await);
    assert_eq!(granted.state(), HoldState::Held);
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    assert!(!observer.is_locked("a").await);
    assert_eq!(observer.holder("a").await, None);
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
}

#[testbed::test]
async fn busy_says_who_has_it() {
    let fixture = Fixture::shared().await;
    let (holder, other) = (fixture.backend(), fixture.backend());
    let granted = grant(&holder, "a", secs(10)).await;
    for backend in [&holder, &other] {
        let busy = try_once(backend, "a").await.expect_err("it is taken");
        assert_eq!(busy.holder.as_deref(), Some("tester"));
    }
    let status = other.status(&name("a")).await.unwrap();
    assert_eq!(status.holders.len(), 1);
    assert_eq!(status.holders[0].label.as_deref(), Some("tester"));
    assert_eq!(status.holders[0].token, Some(granted.hold.token()));
    // A renewal writes nothing, so that nobody else knows.
    assert_eq!(status.holders[0].expires_in, None);
    granted.release().await;
    assert!(!other.status(&name("a")).await.unwrap().is_held());
    assert!(!other.status(&name("never seen")).await.unwrap().is_held());
    try_once(&other, "a").await.expect("it is free");
}

#[testbed::test]
async fn connections_are_used_again() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let mut ids = Vec::new();
    for round in 0..5 {
        let granted = grant(&backend, &format!("name {round}"), secs(10)).await;
        ids.push(observer.holder(&format!("name {round}")).await.unwrap());
        granted.release().await;
        try_once(&backend, "name 0").await.expect("it is free").release().await;
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
}

#[testbed::test]
async fn an_unrenewed_hold_ends_with_its_ttl_and_not_before() {
    let fixture = Fixture::shared().await;
    let (backend, other) = (fixture.backend(), fixture.backend());
    other.connect().await.unwrap();
    let started = Instant::now();
    let granted = grant(&backend, "a", secs(2)).await;
    let next = soon("free", ask(&other, options("a", secs(30)))).await.unwrap();
    assert!(started.elapsed() >= secs(2), "{:?}", started.elapsed());
    assert!(next.token() > granted.token());
    assert!(matches!(granted.state(), HoldState::Lost(_)));
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    assert_eq!(next.state(), HoldState::Held);
}

/// A hold of 2 s that was renewed. On a busy machine its time may be up before that: then there is another one.
async fn renewed(backend: &RowLockBackend, name: &str, ttl: Duration) -> Granted {
    loop {
        let asked = Instant::now();
        let granted = soon("free", ask(backend, options(name, secs(2)))).await.unwrap();
        match granted.hold.renew(ttl).await {
            Ok(Renewal::Renewed(_)) => return granted,
            Ok(_lost) => {}
            Err(error) => assert!(error.is_lost(), "{error:?}"),
        }
        let held_for = asked.elapsed();
        assert!(held_for >= Duration::from_millis(1800), "lost after {held_for:?}");
    }
}

#[testbed::test]
async fn renewals_keep_it_and_never_shorten_it() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let granted = renewed(&backend, "a", secs(60)).await;
    assert!(granted.request.lease().valid_for() > secs(30));
    assert!(matches!(
        granted.hold.renew(secs(2)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    assert!(granted.request.lease().valid_for() > secs(30));
    tokio::time::sleep(secs(3)).await;
    assert!(observer.is_locked("a").await);
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
}

#[testbed::test]
async fn the_server_is_told_how_long_to_keep_a_silent_client() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let _granted = renewed(&backend, "a", secs(60)).await;
    let id = observer.holder("a").await.unwrap();
    let proxy = Proxy::of(&fixture).await;
    let through = proxy.backend(&fixture);
    let silent = grant_in_the_end(&through, "b", secs(2)).await;
    proxy.stall();
    let started = Instant::now();
    let next = soon("free", ask(&backend, options("b", secs(2)))).await.unwrap();
    assert!(next.token() > silent.token());
    assert!(started.elapsed() < secs(20), "{:?}", started.elapsed());
    assert_eq!(observer.holder("a").await, Some(id));
}

#[testbed::test]
async fn a_fixed_lease_ends_when_it_said() {
    const TTL: Duration = secs(4);
    let fixture = Fixture::shared().await;
    let (backend, other) = (fixture.backend(), fixture.backend());
    other.connect().await.unwrap();
    let started = Instant::now();
    let granted = ask(&backend, options("a", TTL).fixed(true)).await.unwrap();
    let status = other.status(&name("a")).await.unwrap();
    let rest = status.holders[0].expires_in.expect("it is known");
    assert!(rest <= TTL, "{rest:?}");
    assert!(matches!(
        granted.hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    soon("free", ask(&other, options("a", secs(2)))).await.unwrap();
    assert!(
        started.elapsed() >= TTL && started.elapsed() < PATIENCE,
        "{:?}",
        started.elapsed()
    );
}

#[testbed::test]
async fn the_same_request_again_is_the_same_grant() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let first = grant(&backend, "a", secs(20)).await;
    let before = first.request.lease().valid_for();
    tokio::time::sleep(secs(3)).await;
    let asked = Instant::now();
    let Attempt::Granted(again, _) = backend.acquire(&first.request).await.unwrap() else {
        panic!("it is ours");
    };
    assert_eq!(again.token(), first.hold.token());
    // It lasts from the second request on.
    let left = first.request.lease().valid_for();
    assert!(left + asked.elapsed() + secs(1) > before, "{left:?} after {before:?}");
    assert_eq!(first.release().await, ReleaseOutcome::Released);
    assert!(!observer.is_locked("a").await);
}

#[testbed::test]
async fn abandoning_undoes_a_hold_and_retires_the_id() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let granted = grant(&backend, "a", secs(10)).await;
    backend.abandon(&granted.request).await.unwrap();
    assert!(!observer.is_locked("a").await);
    backend.abandon(&granted.request).await.unwrap();
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    try_once(&backend, "a").await.expect("it is free");
}

#[testbed::test]
async fn abandoning_ends_a_wait_under_way() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let granted = grant(&backend, "a", secs(30)).await;
    let (request, _control) = options("a", secs(30)).start();
    let waiting = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { backend.acquire(&request).await }
    });
    until("waiting", async || observer.waiters().await > 0).await;
    backend.abandon(&request).await.unwrap();
    assert_eq!(observer.waiters().await, 0);
    assert!(soon("ended", waiting).await.unwrap().is_err());
    granted.release().await;
    assert!(!observer.is_locked("a").await);
}

#[testbed::test]
async fn a_hold_that_is_taken_away_is_lost_at_once() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let granted = grant(&backend, "a", secs(60)).await;
    observer.kill_holder("a").await;
    soon("lost", granted.request.lease().ended()).await;
    let HoldState::Lost(lost) = granted.state() else {
        panic!("{:?}", granted.state());
    };
    assert_eq!(lost.cause(), LostCause::Disconnected);
    assert!(matches!(granted.hold.renew(secs(60)).await.unwrap(), Renewal::Lost));
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
}

#[testbed::test]
async fn what_a_late_release_finds_is_not_touched() {
    let fixture = Fixture::shared().await;
    let (backend, other, mut observer) = (fixture.backend(), fixture.backend(), fixture.observer().await);
    let granted = grant(&backend, "a", secs(60)).await;
    observer.kill_holder("a").await;
    let next = soon("free", ask(&other, options("a", secs(60)))).await.unwrap();
    soon("lost", granted.request.lease().ended()).await;
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    assert!(observer.is_locked("a").await);
    assert_eq!(next.state(), HoldState::Held);
}

#[testbed::test]
async fn a_hold_that_ended_never_touches_its_connections_next_one() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let first = grant(&backend, "a", secs(60)).await;
    let Attempt::Granted(copy, _) = backend.acquire(&first.request).await.unwrap() else {
        panic!("it is ours");
    };
    let connection = observer.holder("a").await;
    first.release().await;
    let second = grant(&backend, "b", secs(60)).await;
    assert_eq!(observer.holder("b").await, connection);
    assert!(matches!(copy.renew(secs(60)).await.unwrap(), Renewal::Lost));
    assert_eq!(
        copy.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::AlreadyLost
    );
    assert!(observer.is_locked("b").await);
    assert_eq!(second.state(), HoldState::Held);
    assert_eq!(second.release().await, ReleaseOutcome::Released);
}

#[testbed::test]
async fn a_hold_released_twice_at_the_same_time_gives_its_connection_back_once() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    for _ in 0..20 {
        let first = grant(&backend, "a", secs(60)).await;
        let Attempt::Granted(copy, _) = backend.acquire(&first.request).await.unwrap() else {
            panic!("it is ours");
        };
        let (one, other) = tokio::join!(
            first.hold.release(ReleaseOptions::default()),
            copy.release(ReleaseOptions::default())
        );
        assert!([one.unwrap(), other.unwrap()].contains(&ReleaseOutcome::Released));
        let (b, c) = tokio::join!(grant(&backend, "b", secs(60)), grant(&backend, "c", secs(60)));
        assert_ne!(observer.holder("b").await, observer.holder("c").await);
        b.release().await;
        c.release().await;
    }
}

#[testbed::test]
async fn a_release_right_after_the_hold_was_taken_away_says_so() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    for _ in 0..5 {
        let granted = soon("free", ask(&backend, options("a", secs(60)))).await.unwrap();
        observer.kill_holder("a").await;
        // A KILL takes effect a moment after it was answered.
        // Without a pause, so that the release comes right after it.
        soon("unlocked", async {
            while observer.is_locked("a").await {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    }
}

/// A connection that was killed is at the server for a moment after the next holder has the row.
#[testbed::test]
async fn a_hold_that_has_a_successor_is_never_released() {
    let fixture = Fixture::shared().await;
    let rounds = (0..8).map(|worker| {
        let fixture = &fixture;
        async move {
            let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
            let name = format!("a{worker}");
            let wait_for_it = || ask(&backend, options(&name, secs(60)));
            for _ in 0..25 {
                let stale = soon("free", wait_for_it()).await.unwrap();
                observer.kill_holder(&name).await;
                let successor = soon("free", wait_for_it()).await.unwrap();
                assert_eq!(stale.release().await, ReleaseOutcome::AlreadyLost);
                assert_eq!(successor.release().await, ReleaseOutcome::Released);
            }
        }
    });
    futures_util::future::join_all(rounds).await;
}
