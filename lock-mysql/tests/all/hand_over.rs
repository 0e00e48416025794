//! A hold passes to the next holder within the transaction that keeps the row locked.

use std::sync::Arc;

use futures_util::FutureExt;
use lock_core::backend::{AcquireRequest, DistributedLock, HandOver, Hold, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{ErrorKind, FencingToken, HoldState};
use lock_mysql::RowLockBackend;

use crate::support::proxy::Proxy;
use crate::support::*;

async fn handed_over(giver: &Arc<dyn Hold>, next: &AcquireRequest) -> Arc<dyn Hold> {
    match giver.hand_over(next).await.expect("an answer") {
        HandOver::Granted(hold, _armed) => hold,
        other => panic!("{next:?} was not given it: {other:?}"),
    }
}

#[testbed::test]
async fn the_row_stays_locked_and_nothing_is_committed() {
    // The server counts the statements of all: it has to be this test's alone.
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let giver = grant(&backend, "a", secs(20)).await;
    let connection = observer.holder("a").await;
    let elsewhere = fixture.backend();
    let waiting = tokio::spawn(async move { ask(&elsewhere, options("a", secs(20))).await });
    until("waiting", async || fixture.observer().await.waiters().await == 1).await;

    let commits = observer.counter("Com_commit").await;
    let (mut hold, mut last) = (giver.hold.clone(), giver.token());
    for _ in 0..20 {
        let (next, _control) = options("a", secs(20)).start();
        hold = handed_over(&hold, &next).await;
        assert!(hold.token().as_u64() > last);
        last = hold.token().as_u64();
        assert!(observer.is_locked("a").await);
    }
    assert_eq!(observer.counter("Com_commit").await, commits);
    assert_eq!(observer.holder("a").await, connection, "it is the same connection");
    assert!(!waiting.is_finished(), "somebody else got in between");
    let released = hold.release(ReleaseOptions::default()).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    let theirs = soon("granted", waiting).await.unwrap().unwrap();
    assert!(theirs.token() > last);
}

#[testbed::test]
async fn a_hand_over_is_one_round_trip() {
    let fixture = Fixture::shared().await;
    let proxy = Proxy::of(&fixture).await;
    let backend = proxy.patient(&fixture);
    let giver = grant(&backend, "a", secs(20)).await;
    let mut hold = giver.hold.clone();
    for yields in [false, false, true, false] {
        // A ping of the connection counts as well, so that one more may come in between.
        let mut fewest = usize::MAX;
        for _ in 0..3 {
            let next = options("a", secs(20));
            let next = if yields { next.yields() } else { next };
            let (next, _control) = next.start();
            let before = proxy.requests();
            hold = handed_over(&hold, &next).await;
            fewest = fewest.min(proxy.requests() - before);
        }
        assert_eq!(fewest, 1, "yields: {yields}");
    }
}

#[testbed::test]
async fn the_next_one_has_it_on_its_own_terms() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let giver = grant(&backend, "a", secs(60)).await;
    let now = observer.number("UNIX_TIMESTAMP()*1000000").await;
    let floor = FencingToken::new(now + 3_600_000_000).unwrap();
    let terms = lock_core::backend::Terms::new(secs(20)).label("the next");
    let (next, _control) = lock_core::backend::RequestOptions::new(name("a"), terms)
        .token_above(floor)
        .start();
    let hold = handed_over(&giver.hold, &next).await;
    assert!(hold.token() > floor);
    let status = fixture.backend().status(&name("a")).await.unwrap();
    let [holder] = status.holders.as_slice() else {
        panic!("{status:?}");
    };
    assert_eq!(holder.label.as_deref(), Some("the next"));
    assert_eq!(holder.token, Some(hold.token()));
    assert_eq!(holder.expires_in, None, "renewals do not write it");
    assert!(next.lease().valid_for() <= secs(20));

    // The giver has nothing any more, and does no harm.
    assert!(matches!(giver.hold.renew(secs(60)).await.unwrap(), Renewal::Lost));
    assert_eq!(giver.release().await, ReleaseOutcome::AlreadyLost);
    backend.abandon(&giver.request).await.unwrap();
    let (third, _control) = options("a", secs(60)).start();
    assert!(matches!(
        giver.hold.hand_over(&third).await.unwrap(),
        HandOver::AlreadyLost
    ));
    assert_eq!(next.lease().state(), HoldState::Held);
    assert!(observer.is_locked("a").await);
    // A token ahead of the clock is not granted again, although nothing was committed in the row.
    observer.kill_holder("a").await;
    soon("lost", next.lease().ended()).await;
    let after = soon("free", ask(&backend, options("a", secs(10)))).await.unwrap();
    assert!(after.token() > hold.token().as_u64());
}

#[testbed::test]
async fn it_ends_with_the_next_ones_ttl() {
    let fixture = Fixture::shared().await;
    let (backend, other) = (fixture.backend(), fixture.backend());
    other.connect().await.unwrap();
    let giver = grant(&backend, "a", secs(60)).await;
    let started = tokio::time::Instant::now();
    let (next, _control) = options("a", secs(4)).start();
    handed_over(&giver.hold, &next).await;
    let after = soon("free", ask(&other, options("a", secs(30)))).await.unwrap();
    assert!(started.elapsed() >= secs(4), "{:?}", started.elapsed());
    assert!(matches!(next.lease().state(), HoldState::Lost(_)));
    assert_eq!(after.state(), HoldState::Held);
}

#[testbed::test]
async fn a_hand_over_that_yields_releases_the_row() {
    let fixture = Fixture::shared().await;
    let (backend, other) = (fixture.backend(), fixture.backend());
    let giver = grant(&backend, "a", secs(20)).await;
    let (next, _control) = options("a", secs(20)).yields().start();
    let hold = handed_over(&giver.hold, &next).await;
    assert!(hold.token().as_u64() > giver.token());
    let connection = fixture.observer().await.holder("a").await;

    let waiting = tokio::spawn(async move { ask(&other, options("a", secs(20))).await });
    until("waiting", async || fixture.observer().await.waiters().await == 1).await;
    let (third, _control) = options("a", secs(20)).yields().start();
    assert!(matches!(hold.hand_over(&third).await.unwrap(), HandOver::Yielded));
    let theirs = soon("granted", waiting).await.unwrap().unwrap();
    assert!(theirs.token() > hold.token().as_u64());
    assert_eq!(third.lease().state(), HoldState::Released, "nothing has armed it");
    backend.abandon(&third).await.unwrap();
    assert_eq!(
        hold.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::AlreadyLost
    );
    // Its connection is there for others.
    let mut observer = fixture.observer().await;
    let second = grant(&backend, "b", secs(20)).await;
    assert_eq!(observer.holder("b").await, connection);
    assert_eq!(theirs.release().await, ReleaseOutcome::Released);
    assert_eq!(second.release().await, ReleaseOutcome::Released);
    // No transaction is left open, which would keep the table from being changed.
    let change = format!("ALTER TABLE {} COMMENT='changed'", fixture.table);
    soon("changed", observer.run(&change)).await;
}

/// The server refuses the hand-over and nothing else: the giver still has the hold. If the same text would have released the
/// name, nobody knows which statement was refused, and the connection is ended.
#[testbed::test]
async fn a_refused_hand_over_leaves_the_hold() {
    let fixture = Fixture::shared().await;
    let mut observer = fixture.observer().await;
    fixture.backend().connect().await.unwrap();
    let table = &fixture.table;
    observer
        .run(&format!(
            "CREATE USER 'poor_{table}'@'%' IDENTIFIED BY 's3cret';\
             GRANT SELECT, INSERT, UPDATE ON app.{table}_tokens TO 'poor_{table}'@'%';\
             GRANT SELECT, INSERT, UPDATE ON app.{table} TO 'poor_{table}'@'%'"
        ))
        .await;
    let url = format!(
        "mysql://poor_{table}:s3cret@{}/app?table={table}",
        fixture.server.address()
    );
    let backend = RowLockBackend::new(patient(&url)).unwrap();
    let giver = grant(&backend, "a", secs(20)).await;
    let revoke = format!("REVOKE UPDATE ON app.{table} FROM 'poor_{table}'@'%'");
    let permit = format!("GRANT UPDATE ON app.{table} TO 'poor_{table}'@'%'");
    observer.run(&revoke).await;
    let (next, _control) = options("a", secs(20)).start();
    let error = giver.hold.hand_over(&next).await.expect_err("it is not permitted");
    assert!(error.is_not_executed(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Denied);
    backend.abandon(&next).await.unwrap();
    assert!(observer.is_locked("a").await);
    observer.run(&permit).await;
    assert!(matches!(giver.hold.renew(secs(20)).await.unwrap(), Renewal::Renewed(_)));
    let (next, _control) = options("a", secs(20)).start();
    let hold = handed_over(&giver.hold, &next).await;

    observer.run(&revoke).await;
    let (next, _control) = options("a", secs(20)).yields().start();
    let error = hold.hand_over(&next).await.expect_err("it is not permitted");
    assert!(!error.is_not_executed(), "{error}");
    assert_eq!(
        hold.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::AlreadyLost
    );
    backend.abandon(&next).await.unwrap();
    assert!(!observer.is_locked("a").await);
}

/// Dropped half-way and repeated, as when another runtime takes over, it is one grant.
#[testbed::test]
async fn a_hand_over_that_was_dropped_is_finished_or_undone() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    for is_repeated in [true, false] {
        let giver = soon("free", ask(&backend, options("a", secs(20)))).await.unwrap();
        let (next, _control) = options("a", secs(20)).start();
        let dropped = giver.hold.hand_over(&next).now_or_never();
        assert!(dropped.is_none(), "it was answered at once");
        if is_repeated {
            let hold = handed_over(&giver.hold, &next).await;
            let again = handed_over(&giver.hold, &next).await;
            assert_eq!(again.token(), hold.token());
            assert!(observer.is_locked("a").await);
            assert_eq!(
                hold.release(ReleaseOptions::default()).await.unwrap(),
                ReleaseOutcome::Released
            );
        } else {
            assert_eq!(giver.release().await, ReleaseOutcome::AlreadyLost);
            backend.abandon(&next).await.unwrap();
        }
        assert!(!observer.is_locked("a").await);
        assert!(matches!(
            giver.hold.hand_over(&next).await.unwrap(),
            HandOver::AlreadyLost
        ));
        assert!(!observer.is_locked("a").await);
    }
    assert_eq!(observer.holder("a").await, None);
}

/// A connection that breaks takes both with it.
#[testbed::test]
async fn a_hold_that_was_handed_over_is_lost_with_the_connection() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let giver = grant(&backend, "a", secs(60)).await;
    let (next, _control) = options("a", secs(60)).start();
    let hold = handed_over(&giver.hold, &next).await;
    observer.kill_holder("a").await;
    soon("lost", next.lease().ended()).await;
    assert!(matches!(next.lease().state(), HoldState::Lost(_)));
    let (third, _control) = options("a", secs(60)).start();
    assert!(matches!(hold.hand_over(&third).await.unwrap(), HandOver::AlreadyLost));
    assert_eq!(third.lease().state(), HoldState::Released);
    assert!(!observer.is_locked("a").await);
}
