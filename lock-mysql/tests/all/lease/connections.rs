//! A few connections serve any number of holds and waiters.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::backend::{ReleaseOutcome, Renewal};
use testbed::steady::{AT_MOST, LONG_TTL};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::support::*;
use crate::support::*;

/// What a process may have, whatever it does.
const MOST: u64 = 4;

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_holds_are_kept_over_four_connections() {
    const HOLDS: usize = 10_000;
    const AT_ONCE: usize = 500;
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let mut holds = Vec::new();
    // Each is a commit, and a busy machine may need a minute for all of them.
    for first in (0..HOLDS).step_by(AT_ONCE) {
        let mut acquiring = JoinSet::new();
        for number in first..first + AT_ONCE {
            let backend = backend.clone();
            acquiring.spawn(async move { grant(&backend, &format!("name {number}"), secs(600)).await });
        }
        holds.extend(
            all_soon("granted", acquiring.join_all())
                .await
                .into_iter()
                .map(Arc::new),
        );
    }
    assert!(connections(&mut observer).await <= MOST);

    let before = counted(&mut observer, "COM_UPDATE").await + counted(&mut observer, "COM_UPDATE_MULTI").await;
    let mut renewing = JoinSet::new();
    for granted in &holds {
        let granted = granted.clone();
        renewing.spawn(async move { granted.hold.renew(secs(600)).await });
    }
    for renewed in all_soon("all renewed", renewing.join_all()).await {
        assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{renewed:?}");
    }
    let after = counted(&mut observer, "COM_UPDATE").await + counted(&mut observer, "COM_UPDATE_MULTI").await;
    let statements = after - before;
    assert!(statements < HOLDS as u64 / 10, "{statements} statements");
    assert!(connections(&mut observer).await <= MOST);

    let mut releasing = JoinSet::new();
    for granted in holds {
        releasing.spawn(async move { granted.release().await });
    }
    for released in all_soon("all released", releasing.join_all()).await {
        assert_eq!(released, ReleaseOutcome::Released);
    }
    assert!(connections(&mut observer).await <= MOST);
}

/// Of those that are renewed together, the lost ones alone learn of it.
#[testbed::test]
async fn a_lost_hold_is_told_apart_from_those_renewed_with_it() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let mut holds = Vec::new();
    for number in 0..9 {
        holds.push(grant(&backend, &format!("name {number}"), secs(60)).await);
    }
    let table = &fixture.table;
    for lost in [2, 5] {
        let rob = format!("UPDATE {table}_leases SET holder=NULL WHERE name='name {lost}'");
        observer.run(&rob).await;
    }
    let renewals = holds.iter().enumerate().map(|(number, granted)| async move {
        let ttl = if number % 3 == 0 { secs(60) } else { secs(70) };
        granted.hold.renew(ttl).await.unwrap()
    });
    let renewed = join_all(renewals).await;
    for (number, renewed) in renewed.iter().enumerate() {
        let is_lost = matches!(renewed, Renewal::Lost);
        assert_eq!(is_lost, [2, 5].contains(&number), "{number}: {renewed:?}");
    }
}

/// Of those that are renewed together, the one whose row a stranger has locked alone is not, and no connection is lost.
#[testbed::test]
async fn a_locked_row_keeps_no_other_hold_from_being_renewed() {
    let fixture = Fixture::own().await;
    let (backend, mut locking, mut observer) = (backend(&fixture), fixture.observer().await, fixture.observer().await);
    let mut holds = Vec::new();
    for number in 0..9 {
        holds.push(grant(&backend, &format!("name {number}"), secs(60)).await);
    }
    let renew = async || {
        let renewals = holds.iter().map(|granted| granted.hold.renew(secs(60)));
        join_all(renewals).await
    };
    // All connections are made, and have served.
    for _ in 0..3 {
        assert!(renew().await.iter().all(Result::is_ok));
    }
    let before = counted(&mut observer, "Connections").await;
    let table = &fixture.table;
    locking
        .run(&format!(
            "BEGIN;SELECT 1 FROM {table}_leases WHERE name='name 4' FOR UPDATE"
        ))
        .await;
    for (number, renewed) in renew().await.iter().enumerate() {
        match number {
            4 => assert!(renewed.is_err(), "{renewed:?}"),
            number => assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{number}: {renewed:?}"),
        }
    }
    locking.run("COMMIT").await;
    assert!(renew().await.iter().all(Result::is_ok));
    assert_eq!(counted(&mut observer, "Connections").await, before);
}

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_names_are_waited_for_without_a_storm() {
    const NAMES: usize = 1000;
    const AT_ONCE: usize = 100;
    let fixture = Fixture::own().await;
    let (holder, mut observer) = (backend(&fixture), fixture.observer().await);
    // For all names, a busy machine may take longer than a request waits, and than a hold lasts by default.
    let waiter = locker(&fixture).with_ttl(LONG_TTL).with_operation_timeout(AT_MOST);
    let mut holds = Vec::new();
    for first in (0..NAMES).step_by(AT_ONCE) {
        let granting = (first..first + AT_ONCE).map(|number| {
            let holder = &holder;
            async move { grant(holder, &format!("name {number}"), LONG_TTL).await }
        });
        holds.extend(all_soon("all granted", join_all(granting)).await);
    }
    let mut waiting = JoinSet::new();
    for number in 0..NAMES {
        let lock = waiter.lock(format!("name {number}"));
        waiting.spawn(async move { lock.acquire().await });
    }
    let marks = format!("SELECT COUNT(*) FROM {}_leases WHERE wanted>0", fixture.table);
    let marked = async {
        while observer.number(&marks).await < NAMES as u64 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    all_soon("all waited", marked).await;
    // From then on, the pauses are as long as they become.
    sleep(secs(2)).await;
    let (before, start) = (counted(&mut observer, "COM_INSERT").await, Instant::now());
    sleep(secs(2)).await;
    let asked = counted(&mut observer, "COM_INSERT").await - before;
    let most = 2.5 * NAMES as f64 * start.elapsed().as_secs_f64();
    println!("{NAMES} names are asked for {asked} times in {:?}", start.elapsed());
    assert!((asked as f64) < most, "{asked} questions in {:?}", start.elapsed());
    assert!(connections(&mut observer).await <= 2 * MOST);
    for granted in holds {
        granted.release().await;
    }
    for guard in all_soon("all granted", waiting.join_all()).await {
        guard.unwrap().release().await.unwrap();
    }
}
