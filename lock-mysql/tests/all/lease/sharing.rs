//! Readers and permits, and what the tables say of them.

use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::{DistributedLock, Mode, Permits, ReleaseOutcome, Renewal};
use lock_mysql::LeaseTableBackend;
use tokio::task::JoinSet;

use super::support::*;
use crate::support::*;

pub(super) fn permits(take: u32, of: u32) -> Mode {
    Mode::Permits(Permits::new(take, of).unwrap())
}

pub(super) async fn try_in(backend: &LeaseTableBackend, name: &str, mode: Mode) -> Option<Granted> {
    ask(backend, options(name, secs(60)).mode(mode).waits(false)).await.ok()
}

pub(super) async fn grant_in(backend: &LeaseTableBackend, name: &str, mode: Mode) -> Granted {
    try_in(backend, name, mode).await.expect("it fits")
}

/// How many rows there are of those who share names.
async fn holder_rows(observer: &mut Observer, fixture: &Fixture) -> u64 {
    let sql = format!("SELECT COUNT(*) FROM {}_lease_holders", fixture.table);
    observer.number(&sql).await
}

#[testbed::test]
async fn whatever_is_acquired_fits_as_the_rules_say() {
    let fixture = Fixture::shared().await;
    let backend = backend(&fixture);
    let modes = [
        Exclusive,
        Shared,
        permits(1, 3),
        permits(2, 3),
        permits(3, 3),
        permits(1, 9),
    ];
    for first in modes {
        for second in modes {
            for third in modes {
                let mut held: Vec<(Mode, Granted)> = Vec::new();
                for mode in [first, second, third] {
                    let fits = lock_core::backend::rules::fits(held.iter().map(|(mode, _)| *mode), mode);
                    let granted = try_in(&backend, "a", mode).await;
                    assert_eq!(granted.is_some(), fits, "{mode:?} beside {held:?}");
                    held.extend(granted.map(|granted| (mode, granted)));
                }
                let tokens: Vec<_> = held.iter().map(|(_, granted)| granted.token()).collect();
                assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
                for (_, granted) in held {
                    assert_eq!(granted.release().await, ReleaseOutcome::Released);
                }
            }
        }
    }
}

/// Nobody needs the permission to delete, and the table does not grow with the number of acquires.
#[testbed::test]
async fn rows_of_holders_that_ended_are_used_again() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    for mode in [Shared, permits(1, 5)] {
        for _ in 0..5 {
            let holds = [
                grant_in(&backend, "a", mode).await,
                grant_in(&backend, "a", mode).await,
                grant_in(&backend, "a", mode).await,
            ];
            for granted in &holds {
                granted.release().await;
            }
            assert_eq!(holds[0].release().await, ReleaseOutcome::AlreadyLost);
        }
    }
    assert_eq!(holder_rows(&mut observer, &fixture).await, 3);
    let one = grant_in(&backend, "a", Exclusive).await;
    assert!(matches!(
        one.hold.downgrade(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    assert_eq!(holder_rows(&mut observer, &fixture).await, 3);
    assert_eq!(one.release().await, ReleaseOutcome::Released);
}

/// An exclusive hold that came after the readers' row expired ends them for good, whatever their own rows say.
#[testbed::test]
async fn holders_end_with_the_row_of_their_name() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let old = [
        grant_in(&backend, "a", permits(2, 2)).await,
        grant_in(&backend, "b", Shared).await,
    ];
    let table = &fixture.table;
    observer.run(&format!("UPDATE {table}_leases SET expires=1")).await;
    grant_in(&backend, "a", Exclusive).await.release().await;
    let next = grant_in(&backend, "a", permits(1, 2)).await;
    let second = grant_in(&backend, "a", permits(1, 2)).await;
    for granted in old {
        assert!(matches!(granted.hold.renew(secs(60)).await.unwrap(), Renewal::Lost));
        assert_eq!(granted.release().await, ReleaseOutcome::AlreadyLost);
    }
    assert!(matches!(next.hold.renew(secs(60)).await.unwrap(), Renewal::Renewed(_)));
    for granted in [next, second] {
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    }
}

#[testbed::test]
async fn the_status_names_all_holders_with_their_modes() {
    let fixture = Fixture::shared().await;
    let backend = backend(&fixture);
    let name = name("a");
    for modes in [
        vec![Exclusive],
        vec![Shared, Shared],
        vec![permits(2, 7), permits(1, 5)],
    ] {
        let mut holds = Vec::new();
        for mode in &modes {
            holds.push(grant_in(&backend, "a", *mode).await);
        }
        let status = backend.status(&name).await.unwrap();
        assert_eq!(status.holders.len(), modes.len(), "{status:?}");
        for ((holder, mode), granted) in status.holders.iter().zip(&modes).zip(&holds) {
            assert_eq!(holder.mode, Some(*mode));
            assert_eq!(holder.label.as_deref(), Some("tester"));
            assert_eq!(holder.token, Some(granted.hold.token()));
            let rest = holder.expires_in.unwrap();
            assert!(secs(30) < rest && rest <= secs(60), "{rest:?}");
        }
        for granted in holds {
            granted.release().await;
        }
        assert!(!backend.status(&name).await.unwrap().is_held());
    }
}

/// Each hold ends and is renewed by itself, and the name is taken until the last one ends.
#[testbed::test]
async fn a_release_leaves_the_name_to_those_who_hold_it_for_longest() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let rest = "(CAST(expires AS SIGNED)-FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)) DIV 1000000";
    let long = ask(&backend, options("a", secs(600)).mode(Shared)).await.unwrap();
    let short = ask(&backend, options("a", secs(60)).mode(Shared)).await.unwrap();
    assert!((500..=600).contains(&in_row(&mut observer, &fixture, "a", rest).await));
    short.hold.renew(secs(900)).await.unwrap();
    assert!((800..=900).contains(&in_row(&mut observer, &fixture, "a", rest).await));
    short.hold.renew(secs(5)).await.unwrap();
    assert!((800..=900).contains(&in_row(&mut observer, &fixture, "a", rest).await));
    short.release().await;
    assert!((500..=600).contains(&in_row(&mut observer, &fixture, "a", rest).await));
    assert_eq!(in_row(&mut observer, &fixture, "a", "term DIV 1000000").await, 600);
    long.release().await;
    assert!(!is_held(&mut observer, &fixture, "a").await);
}

#[testbed::test]
async fn renewals_of_many_readers_are_few_statements() {
    const HOLDS: usize = 400;
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let mut acquiring = JoinSet::new();
    for number in 0..HOLDS {
        let backend = backend.clone();
        acquiring.spawn(async move { grant_in(&backend, &format!("name {}", number / 2), Shared).await });
    }
    let holds = all_soon("all granted", acquiring.join_all()).await;
    let lost = format!(
        "UPDATE {}_lease_holders SET expires=1 WHERE name='name 7'",
        fixture.table
    );
    observer.run(&lost).await;
    let before = counted(&mut observer, "COM_UPDATE_MULTI").await;
    let renewals = holds.iter().map(|granted| granted.hold.renew(secs(600)));
    let renewed = futures_util::future::join_all(renewals).await;
    let statements = counted(&mut observer, "COM_UPDATE_MULTI").await - before;
    assert!((1..HOLDS as u64 / 10).contains(&statements), "{statements} statements");
    for (granted, renewed) in holds.iter().zip(renewed) {
        let is_lost = matches!(renewed.unwrap(), Renewal::Lost);
        assert_eq!(is_lost, granted.request.name().as_str() == "name 7");
    }
    let short = format!(
        "SELECT COUNT(*) FROM {}_lease_holders WHERE term<>600000000",
        fixture.table
    );
    assert_eq!(observer.number(&short).await, 2);
}
