//! A server whose clock is set.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::{ReleaseOptions, ReleaseOutcome, Renewal};
use lock_mysql::{LeaseTableBackend, Strategy};
use testbed::{Clock, MariaDb};
use tokio::time::Instant;

use super::sharing::{permits, try_in};
use super::support::*;
use crate::support::proxy::Proxy;
use crate::support::*;

const HOUR_NANOS: i64 = 3_600_000_000_000;

async fn with_a_clock() -> (Fixture, Clock) {
    let clock = Clock::new().unwrap();
    let server = MariaDb::new().clock(&clock).start().await.unwrap();
    assert!(
        !server.is_external(),
        "this test needs a server of its own: unset POLYLOCK_MYSQL_URL"
    );
    (Fixture::on(server), clock)
}

/// How long the row's hold lasts, in seconds; large if its end is that far away.
async fn rest(observer: &mut Observer, fixture: &Fixture) -> u64 {
    let what = "(expires-FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)) DIV 1000000";
    in_row(observer, fixture, "a", what).await
}

#[testbed::test]
async fn a_clock_set_back_lengthens_no_hold_and_whoever_asks_shortens_none() {
    let (fixture, clock) = with_a_clock().await;
    let (first, second, mut observer) = (backend(&fixture), backend(&fixture), fixture.observer().await);
    let granted = grant(&first, "a", secs(60)).await;
    clock.set(-HOUR_NANOS).unwrap();
    assert!(
        rest(&mut observer, &fixture).await > 1000,
        "the server runs on the clock"
    );
    // An asker whose own ttl is short.
    let (request, _control) = options("a", secs(1)).waits(false).start();
    let busy = lock_core::backend::DistributedLock::acquire(&second, &request)
        .await
        .unwrap();
    assert!(matches!(busy, lock_core::backend::Attempt::Busy(_)));
    let left = rest(&mut observer, &fixture).await;
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
    assert!(rest(&mut observer, &fixture).await <= 60);
}

#[testbed::test]
async fn the_longest_term_that_a_holder_asked_for_is_remembered() {
    let (fixture, clock) = with_a_clock().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let granted = grant(&backend, "a", secs(60)).await;
    for ttl in [secs(600), secs(60)] {
        assert!(matches!(granted.hold.renew(ttl).await.unwrap(), Renewal::Renewed(_)));
    }
    clock.set(-HOUR_NANOS).unwrap();
    assert!(matches!(
        granted.hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    let left = rest(&mut observer, &fixture).await;
    assert!((300..=600).contains(&left), "{left}");
    assert!(try_once(&backend, "a").await.is_err());
}

#[testbed::test]
async fn a_clock_set_back_keeps_no_name_for_longer_than_its_minimum() {
    let (fixture, clock) = with_a_clock().await;
    let (first, second) = (backend(&fixture), locker(&fixture));
    let granted = grant(&first, "a", secs(60)).await;
    let start = Instant::now();
    let how = ReleaseOptions::default().keep_for(secs(2));
    assert_eq!(granted.hold.release(how).await.unwrap(), ReleaseOutcome::Released);
    clock.set(-HOUR_NANOS).unwrap();
    let guard = soon("granted", second.lock("a").acquire()).await.unwrap();
    assert!(start.elapsed() >= secs(2));
    assert!(guard.token().as_u64() > granted.token());
    guard.release().await.unwrap();
}

/// A mark from before the step keeps nobody away.
#[testbed::test]
async fn a_waiters_mark_is_void_after_a_step_back() {
    let (fixture, clock) = with_a_clock().await;
    let (first, mut observer) = (backend(&fixture), fixture.observer().await);
    let granted = grant(&first, "a", secs(60)).await;
    {
        let waiter = locker(&fixture);
        let waiting = tokio::spawn(async move { waiter.lock("a").acquire().await });
        until("waited", async || {
            in_row(&mut observer, &fixture, "a", "wanted").await > 0
        })
        .await;
        waiting.abort();
    }
    let mark = format!(
        "UPDATE {}_leases SET waiter='somebody', sleeper=0, wanted=FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)+9000000",
        fixture.table
    );
    observer.run(&mark).await;
    granted.release().await;
    assert!(try_once(&first, "a").await.is_err(), "kept for the one who waits");
    clock.set(-HOUR_NANOS).unwrap();
    grant(&first, "a", secs(60)).await;
}

#[testbed::test]
async fn a_step_forward_ends_holds_and_tokens_keep_growing() {
    let (fixture, clock) = with_a_clock().await;
    let (first, second) = (backend(&fixture), backend(&fixture));
    let granted = grant(&first, "a", secs(60)).await;
    clock.set(HOUR_NANOS).unwrap();
    let next = grant(&second, "a", secs(60)).await;
    assert!(next.token() > granted.token());
    assert!(matches!(granted.hold.renew(secs(60)).await.unwrap(), Renewal::Lost));
    assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    assert!(try_once(&first, "a").await.is_err(), "a successor holds it");
    next.release().await;
    clock.set(0).unwrap();
    let last = grant(&first, "a", secs(60)).await;
    assert!(last.token() > next.token());
}

/// Of the holds that are renewed together some have expired. The clock is set back before the client knows which.
#[testbed::test]
async fn a_renewal_that_came_too_late_is_none_after_a_step_back() {
    let (fixture, clock) = with_a_clock().await;
    let proxy = Proxy::of(&fixture).await;
    let through = proxy.config(&fixture).with_strategy(Strategy::Lease);
    let (backend, mut observer) = (LeaseTableBackend::new(through).unwrap(), fixture.observer().await);
    let mut holds = Vec::new();
    for number in 0..8 {
        let ttl = if number < 4 { secs(60) } else { secs(7200) };
        holds.push(grant(&backend, &format!("{number}"), ttl).await);
    }
    clock.set(HOUR_NANOS).unwrap();
    let renewed = format!(
        "SELECT COUNT(*) FROM {}_leases WHERE expires>(UNIX_TIMESTAMP(NOW(6))+7000)*1000000",
        fixture.table
    );
    assert_eq!(observer.number(&renewed).await, 0);
    proxy.delay(Duration::from_millis(500));
    let renewing = join_all(holds.iter().map(|granted| granted.hold.renew(secs(7200))));
    let (answers, ()) = tokio::join!(renewing, async {
        until("renewed", async || observer.number(&renewed).await == 4).await;
        clock.set(0).unwrap();
    });
    proxy.heal();
    let mut renewed = Vec::new();
    for (number, answer) in answers.into_iter().enumerate() {
        if let Renewal::Renewed(_) = answer.unwrap() {
            renewed.push(number);
            let what = "(expires-FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)) DIV 1000000";
            let left = in_row(&mut observer, &fixture, &number.to_string(), what).await;
            assert!(left > 7000, "the lease lasts for two hours, and the row for {left} s");
        }
    }
    assert!(renewed.ends_with(&[4, 5, 6, 7]), "these had not expired: {renewed:?}");
}

/// Of those who share a name, each is cut to its own term, whatever the others' terms are.
#[testbed::test]
async fn a_clock_set_back_keeps_nobody_out_beyond_the_term_of_each_sharer() {
    let (fixture, clock) = with_a_clock().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let ended = |ttl| options("a", ttl).mode(permits(1, 2));
    let silent = ask(&backend, ended(secs(5))).await.unwrap();
    let live = ask(&backend, ended(secs(600))).await.unwrap();
    clock.set(-HOUR_NANOS).unwrap();
    assert!(try_in(&backend, "a", permits(1, 2)).await.is_none());
    let rest = |holder| {
        format!(
            "SELECT (expires-FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)) DIV 1000000 FROM {}_lease_holders WHERE holder='{holder}'",
            fixture.table
        )
    };
    assert!(observer.number(&rest(silent.request.holder())).await <= 5);
    let left = observer.number(&rest(live.request.holder())).await;
    assert!((300..=600).contains(&left), "{left}");
    until("free", async || try_in(&backend, "a", permits(1, 2)).await.is_some()).await;
    assert!(matches!(live.hold.renew(secs(600)).await.unwrap(), Renewal::Renewed(_)));
    assert!(matches!(silent.hold.renew(secs(5)).await.unwrap(), Renewal::Lost));
    assert_eq!(live.release().await, ReleaseOutcome::Released);
}

/// A writer asks with its one statement, which sees the row of the name alone.
#[testbed::test]
async fn a_clock_set_back_keeps_no_writer_out_beyond_the_readers_terms() {
    let (fixture, clock) = with_a_clock().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let long = ask(&backend, options("a", secs(600)).mode(Shared)).await.unwrap();
    let silent = ask(&backend, options("a", secs(5)).mode(Shared)).await.unwrap();
    clock.set(-HOUR_NANOS).unwrap();
    assert!(try_in(&backend, "a", Exclusive).await.is_none());
    assert!((300..=600).contains(&rest(&mut observer, &fixture).await));
    assert!(matches!(long.hold.renew(secs(600)).await.unwrap(), Renewal::Renewed(_)));
    assert_eq!(long.release().await, ReleaseOutcome::Released);
    assert!(rest(&mut observer, &fixture).await <= 5);
    until("free", async || try_in(&backend, "a", Exclusive).await.is_some()).await;
    assert!(matches!(silent.hold.renew(secs(5)).await.unwrap(), Renewal::Lost));
}

/// A statement that waits for the row knows the clock from before the step. Meanwhile another client has cut the hold to what its
/// term allows by the clock after it.
#[testbed::test]
async fn a_question_from_before_a_step_back_takes_no_name_that_is_held() {
    let (fixture, clock) = with_a_clock().await;
    let (first, second, mut stranger) = (backend(&fixture), locker(&fixture), fixture.observer().await);
    let mut observer = fixture.observer().await;
    second.connect().await.unwrap();
    for round in 0..20 {
        let (name, table) = (format!("{round}"), &fixture.table);
        let granted = grant(&first, &name, secs(60)).await;
        stranger
            .run(&format!(
                "BEGIN;SELECT 1 FROM {table}_leases WHERE name='{name}' FOR UPDATE"
            ))
            .await;
        let lock = second.lock(&name);
        let asking = tokio::spawn(async move { lock.try_acquire().await });
        until("waiting for the row", async || {
            let waits = |sql: &String| sql.contains(&format!("{table}_leases")) && !sql.starts_with("SELECT");
            observer.statements().await.iter().any(waits) || asking.is_finished()
        })
        .await;
        clock.set(-HOUR_NANOS).unwrap();
        let cut = format!(
            "UPDATE {table}_leases SET expires=LEAST(expires,FLOOR(UNIX_TIMESTAMP(SYSDATE(6))*1000000)+term) \
             WHERE name='{name}';COMMIT"
        );
        stranger.run(&cut).await;
        // On a busy machine it has waited for too long.
        if let Ok(taken) = soon("answered", asking).await.unwrap() {
            assert!(taken.is_none(), "the first still holds it");
            assert!(matches!(
                granted.hold.renew(secs(60)).await.unwrap(),
                Renewal::Renewed(_)
            ));
            return;
        }
        clock.set(0).unwrap();
    }
    panic!("the server refuses to wait");
}
