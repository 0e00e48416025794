//! A row that a stranger keeps locked.

use lock_core::backend::{DistributedLock, Mode, ReleaseOptions, ReleaseOutcome, Renewal};
use std::sync::Arc;

use lock_core::ErrorKind;
use testbed::Server;
use tokio::task::JoinSet;

use super::sharing::{grant_in, permits};
use super::support::*;
use crate::support::*;

/// All other acquires wait behind a statement that waits for a row.
#[testbed::test]
async fn acquires_of_a_row_that_a_stranger_locks_wait_for_it_only_once() {
    let fixture = Fixture::own().await;
    let (backend, mut stranger, mut observer) = (backend(&fixture), fixture.observer().await, fixture.observer().await);
    grant(&backend, "a", secs(60)).await.release().await;
    let table = &fixture.table;
    let refused = async |mode: Mode| {
        let (request, control) = options("a", secs(60)).waits(false).mode(mode).start();
        let error = soon("refused", backend.acquire(&request)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_not_executed() && error.is_retryable(), "{error}");
        control.give_up();
    };
    for _ in 0..2 {
        let before = counted(&mut observer, "Innodb_row_lock_waits").await;
        stranger
            .run(&format!("BEGIN;SELECT 1 FROM {table}_leases WHERE name='a' FOR UPDATE"))
            .await;
        for _ in 0..3 {
            for mode in [Mode::Exclusive, Mode::Shared, permits(1, 2)] {
                refused(mode).await;
                grant(&backend, "b", secs(60)).await.release().await;
            }
        }
        let waits = counted(&mut observer, "Innodb_row_lock_waits").await - before;
        assert_eq!(waits, 1, "the first acquire waits");
        stranger.run("ROLLBACK").await;
        // It is forgotten then.
        grant(&backend, "a", secs(60)).await.release().await;
    }
}

/// All renewals of a process go over the same connections. None waits at the server for that row, whether it is asked for alone
/// or with the others: nobody waits with it.
async fn a_row_that_a_stranger_locks_costs_only_its_own_hold(server: Server) {
    const LOCKED: usize = 3;
    let fixture = Fixture::on(server);
    let (backend, mut stranger, mut observer) = (backend(&fixture), fixture.observer().await, fixture.observer().await);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let mut holds = Vec::new();
        for number in 0..20 {
            holds.push(Arc::new(grant_in(&backend, &format!("{mode:?} {number}"), mode).await));
        }
        let lock = format!(
            "BEGIN;SELECT 1 FROM {}_leases WHERE name='{mode:?} {LOCKED}' FOR UPDATE",
            fixture.table
        );
        stranger.run(&lock).await;
        let before = counted(&mut observer, "Innodb_row_lock_waits").await;
        let alone = soon("refused", holds[LOCKED].hold.renew(secs(60))).await;
        assert_eq!(alone.unwrap_err().kind(), ErrorKind::Unavailable);
        for round in 0..3 {
            let mut renewing = JoinSet::new();
            for (number, granted) in holds.iter().cloned().enumerate() {
                renewing.spawn(async move { (number, granted.hold.renew(secs(60)).await) });
            }
            let renewed = soon("renewed", renewing.join_all()).await;
            let failed: Vec<_> = renewed.iter().filter(|(_, renewed)| renewed.is_err()).collect();
            let [(LOCKED, Err(error))] = failed[..] else {
                panic!("{failed:?}");
            };
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let all_held = renewed.iter().all(|(_, renewed)| !matches!(renewed, Ok(Renewal::Lost)));
            assert!(all_held, "round {round}: {renewed:?}");
        }
        let waits = counted(&mut observer, "Innodb_row_lock_waits").await - before;
        assert_eq!(waits, 0, "{mode:?}");
        stranger.run("ROLLBACK").await;
        for granted in &holds {
            let renewed = granted.hold.renew(secs(60)).await;
            assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{renewed:?}");
        }
        for granted in holds {
            assert_eq!(granted.release().await, ReleaseOutcome::Released);
        }
    }
}

/// The first release that finds the row locked waits for it, with what goes over its connection; the next ones fail at once.
async fn releases_of_a_row_that_a_stranger_locks_wait_for_it_only_once(server: Server) {
    let fixture = Fixture::on(server);
    let (backend, mut stranger, mut observer) = (backend(&fixture), fixture.observer().await, fixture.observer().await);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let name = format!("{mode:?}");
        let held = grant_in(&backend, &name, mode).await;
        let lock = format!(
            "BEGIN;SELECT 1 FROM {}_leases WHERE name='{name}' FOR UPDATE",
            fixture.table
        );
        stranger.run(&lock).await;
        let before = counted(&mut observer, "Innodb_row_lock_waits").await;
        for _ in 0..3 {
            let released = soon("refused", held.hold.release(ReleaseOptions::default())).await;
            let error = released.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.is_not_executed() && error.is_retryable(), "{error}");
            grant(&backend, "another", secs(60)).await.release().await;
        }
        let waits = counted(&mut observer, "Innodb_row_lock_waits").await - before;
        assert_eq!(waits, 1, "{mode:?}: the first release waits");
        stranger.run("ROLLBACK").await;
        assert_eq!(held.release().await, ReleaseOutcome::Released);
        assert!(try_once(&backend, &name).await.is_ok());
    }
}

mod mariadb {
    #[testbed::test]
    async fn releases_of_a_row_that_a_stranger_locks_wait_for_it_only_once() {
        let server = crate::support::Fixture::own().await.server;
        super::releases_of_a_row_that_a_stranger_locks_wait_for_it_only_once(server).await;
    }

    #[testbed::test]
    async fn a_row_that_a_stranger_locks_costs_only_its_own_hold() {
        let server = crate::support::Fixture::own().await.server;
        super::a_row_that_a_stranger_locks_costs_only_its_own_hold(server).await;
    }
}

mod mysql9 {
    #[testbed::test]
    async fn releases_of_a_row_that_a_stranger_locks_wait_for_it_only_once() {
        if let Some(server) = testbed::skip_left_out(testbed::Edition::MySql9.start().await) {
            super::releases_of_a_row_that_a_stranger_locks_wait_for_it_only_once(server).await;
        }
    }

    #[testbed::test]
    async fn a_row_that_a_stranger_locks_costs_only_its_own_hold() {
        if let Some(server) = testbed::skip_left_out(testbed::Edition::MySql9.start().await) {
            super::a_row_that_a_stranger_locks_costs_only_its_own_hold(server).await;
        }
    }
}
