//! Many renewals in one statement.

use futures_util::future::join_all;
use lock_core::backend::Mode::Shared;
use lock_core::backend::{DistributedLock, Mode, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_postgres::LeaseTableBackend;
use testbed::steady::LONG_TTL;

use super::support::*;

/// How many transactions changed something in the table of leases; each renewal marks its rows with its own.
const RENEWING: &str = "SELECT count(DISTINCT xmin::text) FROM {}_leases WHERE expires>now()+interval '1 h'";

/// Holds of so many names. Each is a commit, and a busy machine may take longer for all of them than a request waits for its answer.
async fn hold_many(backend: &LeaseTableBackend, names: usize, mode: Mode) -> Vec<Granted> {
    const AT_ONCE: usize = 100;
    let names: Vec<_> = (0..names).map(|number| format!("n{number}")).collect();
    let mut held = Vec::new();
    for names in names.chunks(AT_ONCE) {
        let asked = names.iter().map(|name| options(name, LONG_TTL).mode(mode).waits(false));
        let granted = join_all(asked.map(|options| acquire(backend, options))).await;
        held.extend(granted.into_iter().map(|granted| granted.expect("the name is free")));
    }
    held
}

#[testbed::test]
async fn those_of_one_turn_are_one_statement() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = hold_many(&backend, 1100, Mode::Exclusive).await;
    let renewed = join_all(held.iter().map(|held| held.hold.renew(secs(7200)))).await;
    assert!(
        renewed
            .into_iter()
            .all(|renewed| matches!(renewed.unwrap(), Renewal::Renewed(_)))
    );
    assert_eq!(fixture.number(RENEWING).await, 2, "1,000 and 100");
}

/// As an extension and the periodic renewal may come together.
#[testbed::test]
async fn of_two_renewals_of_one_hold_the_longest_counts() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = grant(&backend, "a", secs(60)).await;
    for (one, other) in [(secs(70), secs(7200)), (secs(14_400), secs(70))] {
        let (one, other) = tokio::join!(held.hold.renew(one), held.hold.renew(other));
        assert!(matches!(
            (one.unwrap(), other.unwrap()),
            (Renewal::Renewed(_), Renewal::Renewed(_))
        ));
    }
    let left = "SELECT extract(epoch from expires-now())::bigint FROM {}_leases";
    assert!(fixture.number(left).await > 14_000);
}

#[testbed::test]
async fn a_lost_hold_and_a_locked_row_keep_no_other_from_being_renewed() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = join_all(["a", "b", "c"].map(|name| grant(&backend, name, secs(60)))).await;
    let observer = fixture.observer().await;
    for sql in [
        "UPDATE {}_leases SET holder=NULL WHERE name='b'",
        "BEGIN;SELECT FROM {}_leases WHERE name='c' FOR UPDATE",
    ] {
        observer
            .batch_execute(&sql.replace("{}", &fixture.table))
            .await
            .unwrap();
    }
    let renewed = join_all(held.iter().map(|held| held.hold.renew(secs(60)))).await;
    assert!(matches!(renewed[0], Ok(Renewal::Renewed(_))), "{renewed:?}");
    assert!(matches!(renewed[1], Ok(Renewal::Lost)), "{renewed:?}");
    let locked = renewed[2].as_ref().unwrap_err();
    assert!(
        locked.is_retryable() && locked.to_string().contains("locked"),
        "{locked}"
    );
    observer.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(
        held[2].hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    assert_eq!(held[1].release().await, ReleaseOutcome::AlreadyLost);
}

#[testbed::test]
async fn those_of_readers_are_one_statement_too() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = hold_many(&backend, 1100, Shared).await;
    let renewed = join_all(held.iter().map(|held| held.hold.renew(secs(7200)))).await;
    assert_eq!(renewed.len(), 1100);
    assert!(
        renewed
            .into_iter()
            .all(|renewed| matches!(renewed.unwrap(), Renewal::Renewed(_)))
    );
    assert_eq!(fixture.number(RENEWING).await, 2, "1,000 and 100");
    let together = "SELECT count(*) FROM {}_holders WHERE expires>now()+interval '1 h'";
    assert_eq!(fixture.number(together).await, 1100);
}

#[testbed::test]
async fn a_lost_reader_and_a_locked_row_keep_no_other_from_being_renewed() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = join_all(["a", "b", "c", "d"].map(|name| try_in(&backend, name, Shared))).await;
    let held: Vec<_> = held.into_iter().flatten().collect();
    let (of_name, of_holder) = (fixture.observer().await, fixture.observer().await);
    for (observer, sql) in [
        (&of_name, "DELETE FROM {}_holders WHERE name='b'"),
        (&of_name, "BEGIN;SELECT FROM {}_leases WHERE name='c' FOR UPDATE"),
        (&of_holder, "BEGIN;SELECT FROM {}_holders WHERE name='d' FOR UPDATE"),
    ] {
        observer
            .batch_execute(&sql.replace("{}", &fixture.table))
            .await
            .unwrap();
    }
    let renewed = join_all(held.iter().map(|held| held.hold.renew(secs(60)))).await;
    assert!(matches!(renewed[0], Ok(Renewal::Renewed(_))), "{renewed:?}");
    assert!(matches!(renewed[1], Ok(Renewal::Lost)), "{renewed:?}");
    for locked in &renewed[2..] {
        let locked = locked.as_ref().unwrap_err();
        assert!(
            locked.is_retryable() && locked.to_string().contains("locked"),
            "{locked}"
        );
    }
    for observer in [&of_name, &of_holder] {
        observer.batch_execute("COMMIT").await.unwrap();
    }
    for held in &held[2..] {
        assert!(matches!(held.hold.renew(secs(60)).await.unwrap(), Renewal::Renewed(_)));
    }
}

/// One after the other, they would wait for the row for a second each, for longer than the other hold's TTL.
#[testbed::test]
async fn many_readers_of_a_locked_name_cost_no_other_hold_its_ttl() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = join_all((0..60).map(|_| try_in(&backend, "a", Shared))).await;
    let other = acquire(&backend, options("b", secs(40)).mode(Shared).waits(false)).await;
    let other = other.expect("the name is free");
    let locking = fixture.lock_row("a").await;
    let renewals = held.iter().flatten().map(|held| held.hold.renew(secs(60)));
    let (locked, renewed) = tokio::join!(join_all(renewals), other.hold.renew(secs(40)));
    assert!(locked.len() == 60 && locked.iter().all(Result::is_err), "{locked:?}");
    assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{renewed:?}");
    drop(locking);
}

#[testbed::test]
async fn a_renewal_shows_that_a_row_is_not_locked_any_more() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = grant(&backend, "a", secs(60)).await;
    let locking = fixture.lock_row("a").await;
    assert!(held.hold.renew(secs(60)).await.unwrap_err().is_retryable());
    locking.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(held.hold.renew(secs(60)).await, Ok(Renewal::Renewed(_))));
    locking
        .batch_execute(&format!(
            "BEGIN;SELECT FROM {}_leases WHERE name='a' FOR UPDATE",
            fixture.table
        ))
        .await
        .unwrap();
    let started = tokio::time::Instant::now();
    let refused = held.hold.release(ReleaseOptions::default()).await;
    assert!(refused.unwrap_err().is_retryable());
    assert!(started.elapsed() > secs(1) / 2, "it waited as for any row");
    locking.batch_execute("COMMIT").await.unwrap();
    assert_eq!(held.release().await, ReleaseOutcome::Released);
}

/// A second for each of them is more than the server has for an answer.
#[testbed::test]
async fn requests_for_a_row_that_is_known_to_be_locked_delay_no_others() {
    let fixture = Fixture::shared().await;
    let config = fixture.config().with_response_timeout(secs(8));
    let backend = LeaseTableBackend::new(config).unwrap();
    grant(&backend, "a", secs(60)).await.release().await;
    let locking = fixture.lock_row("a").await;
    let refused = async || {
        let (request, _control) = options("a", secs(60)).waits(false).start();
        let error = backend.acquire(&request).await.unwrap_err();
        assert!(error.is_retryable() && error.is_not_executed(), "{error}");
    };
    refused().await;
    let (_, other) = tokio::join!(
        join_all((0..20).map(|_| refused())),
        acquire(&backend, options("b", secs(60)).waits(false))
    );
    assert!(other.is_some());
    locking.batch_execute("COMMIT").await.unwrap();
    grant(&backend, "a", secs(60)).await.release().await;
}
