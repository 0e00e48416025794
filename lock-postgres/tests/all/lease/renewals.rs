//! Many renewals in one statement.

use futures_util::future::join_all;
use lock_core::backend::{ReleaseOutcome, Renewal};

use super::support::*;

/// How many transactions changed something in the table of leases; each renewal marks its rows with its own.
const RENEWING: &str = "SELECT count(DISTINCT xmin::text) FROM {}_leases WHERE expires>now()+interval '1 h'";

#[testbed::test]
async fn those_of_one_turn_are_one_statement() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let names: Vec<_> = (0..1100).map(|number| format!("n{number}")).collect();
    let held = join_all(names.iter().map(|name| grant(&backend, name, secs(60)))).await;
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
