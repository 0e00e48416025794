//! Readers and permits in the tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::{DistributedLock, Mode, Permits, ReleaseOptions, ReleaseOutcome, Renewal, Revoke, Revoked};
use lock_postgres::{LeaseTableBackend, Pooler};
use testbed::assert_safe;

use super::support::*;

fn permits(take: u32, of: u32) -> Mode {
    Mode::Permits(Permits::new(take, of).unwrap())
}

#[testbed::test]
async fn a_name_is_taken_until_the_last_reader_has_left() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let (one, two) = (
        try_in(&backend, "a", Shared).await.unwrap(),
        try_in(&backend, "a", Shared).await.unwrap(),
    );
    assert!(two.token() > one.token());
    for mode in [Exclusive, permits(1, 9)] {
        assert!(try_in(&fixture.backend(), "a", mode).await.is_none(), "{mode:?}");
    }
    assert!(matches!(one.hold.renew(secs(3600)).await.unwrap(), Renewal::Renewed(_)));
    assert_eq!(one.release().await, ReleaseOutcome::Released);
    // The name lasts as long as those who are left, and no longer.
    let left = "SELECT extract(epoch from expires-now())::bigint FROM {}_leases WHERE name='a'";
    assert!(fixture.number(left).await <= 60);
    assert!(try_in(&backend, "a", Exclusive).await.is_none());
    assert_eq!(two.release().await, ReleaseOutcome::Released);
    assert_eq!(two.release().await, ReleaseOutcome::AlreadyLost);
    let writer = try_in(&backend, "a", Exclusive).await.unwrap();
    assert!(writer.token() > two.token());
    assert_eq!(fixture.number("SELECT count(*) FROM {}_holders").await, 0);
}

#[testbed::test]
async fn readers_who_ended_with_their_row_do_not_come_back() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let reader = try_in(&backend, "a", Shared).await.unwrap();
    let free = "UPDATE {}_leases SET expires=statement_timestamp() WHERE name='a'".replace("{}", &fixture.table);
    fixture.observer().await.batch_execute(&free).await.unwrap();
    let next = try_in(&backend, "a", permits(1, 1)).await.unwrap();
    assert!(try_in(&backend, "a", permits(1, 1)).await.is_none());
    assert!(matches!(reader.hold.renew(secs(600)).await.unwrap(), Renewal::Lost));
    assert_eq!(reader.release().await, ReleaseOutcome::AlreadyLost);
    assert_eq!(next.release().await, ReleaseOutcome::Released);
}

/// Behind a pooler of transactions, where no connection sets its own `lock_timeout`.
#[testbed::test]
async fn a_name_whose_row_is_deleted_meanwhile_is_asked_for_again() {
    let fixture = Fixture::shared().await;
    let config = fixture.config().with_pooler(Pooler::Transaction);
    let backend = LeaseTableBackend::new(config).unwrap();
    for mode in [Shared, permits(1, 2)] {
        grant(&backend, "a", secs(60)).await.release().await;
        let cleaning = fixture.lock_row("a").await;
        let (request, _control) = options("a", secs(60)).mode(mode).waits(false).start();
        let asking = begin(&backend, &request);
        eventually("waiting for the row", async || fixture.waiting_for_rows().await == 1).await;
        let delete = format!("DELETE FROM {}_leases;COMMIT", fixture.table);
        cleaning.batch_execute(&delete).await.unwrap();
        let hold = granted(happens("the grant", asking).await.unwrap().unwrap()).expect("nobody has it");
        hold.release(ReleaseOptions::default()).await.unwrap();
    }
}

/// Counted in one statement without the lock of the row, up to six held three permits.
#[testbed::test]
async fn many_clients_never_hold_more_permits_than_there_are() {
    let fixture = Fixture::shared().await;
    let inside = Arc::new(AtomicI64::new(0));
    let clients = (0..8).map(|_| {
        let (backend, inside) = (fixture.backend(), inside.clone());
        tokio::spawn(async move {
            for _ in 0..10 {
                let held = acquire(&backend, options("a", secs(600)).mode(permits(1, 3)))
                    .await
                    .unwrap();
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                assert_safe!(now <= 3, "{now} hold three permits");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(held.release().await, ReleaseOutcome::Released);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        happens("the task ends", client).await.unwrap();
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {}_waiters").await, 0);
}

#[testbed::test]
async fn one_of_several_readers_is_revoked() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let (one, two) = (
        try_in(&backend, "a", Shared).await.unwrap(),
        try_in(&backend, "a", Shared).await.unwrap(),
    );
    let name = name("a");
    let revoked = backend.revoke(&name, one.token(), Revoke::Now).await.unwrap();
    assert!(
        matches!(revoked, Revoked::Done { lease_left: Some(left) } if left <= secs(600)),
        "{revoked:?}"
    );
    assert_eq!(
        backend.revoke(&name, one.token(), Revoke::Now).await.unwrap(),
        Revoked::NotHeld
    );
    assert!(matches!(one.hold.renew(secs(600)).await.unwrap(), Renewal::Lost));
    assert!(matches!(two.hold.renew(secs(600)).await.unwrap(), Renewal::Renewed(_)));
}

#[testbed::test]
async fn a_minimum_is_kept_if_nobody_knows_whether_the_hold_was_downgraded() {
    let fixture = Fixture::shared().await;
    let held = grant(&fixture.backend(), "a", secs(60)).await;
    let locking = fixture.lock_row("a").await;
    held.hold.downgrade(secs(60)).await.unwrap_err();
    locking.batch_execute("COMMIT").await.unwrap();
    let kept = ReleaseOptions::default().keep_for(secs(3600));
    assert_eq!(held.hold.release(kept).await.unwrap(), ReleaseOutcome::Released);
    assert!(try_in(&fixture.backend(), "a", Exclusive).await.is_none());
    let left = "SELECT extract(epoch from expires-now())::bigint FROM {}_leases WHERE holder IS NOT NULL";
    assert!(fixture.number(left).await > 60);
}

/// Newcomers must not take the name before the one that was passed.
#[testbed::test]
async fn a_reader_that_passes_another_leaves_the_mark_that_keeps_newcomers_out() {
    let fixture = Fixture::shared().await;
    let writer = grant(&fixture.backend(), "a", secs(60)).await;
    let (passed, passes) = (fixture.backend(), fixture.backend());
    let mut waiting = Vec::new();
    let mut controls = Vec::new();
    for (number, backend) in [&passed, &passes].into_iter().enumerate() {
        let (request, control) = options("a", secs(60)).mode(Shared).start();
        waiting.push(begin(backend, &request));
        controls.push(control);
        eventually("queueing", async || {
            usize::try_from(fixture.number("SELECT count(*) FROM {}_waiters").await) == Ok(number + 1)
        })
        .await;
    }
    // The first one hangs.
    let first = waiting.remove(0);
    first.abort();
    drop((first.await, passed));
    let lasts = "UPDATE {}_waiters SET expires=clock_timestamp()+interval '9 s' WHERE place=(SELECT min(place) FROM {}_waiters)";
    let lasts = lasts.replace("{}", &fixture.table);
    fixture.observer().await.batch_execute(&lasts).await.unwrap();
    assert_eq!(writer.release().await, ReleaseOutcome::Released);
    assert!(granted(happens("an answer", waiting.remove(0)).await.unwrap().unwrap()).is_some());
    let marked = "SELECT count(*) FROM {}_leases WHERE wanted>'-infinity'";
    assert_eq!(fixture.number(marked).await, 1);
}
