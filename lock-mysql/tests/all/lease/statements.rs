//! What a request costs the server, and what its short statement leaves to the long one.

use lock_core::backend::{ReleaseOutcome, Renewal};

use super::support::*;
use crate::support::*;

/// How many statements of each kind the server has executed for others.
async fn executed(observer: &mut Observer) -> [u64; 3] {
    let mut counts = [0; 3];
    for (count, kind) in counts.iter_mut().zip(["COM_UPDATE", "COM_INSERT", "COM_SELECT"]) {
        *count = counted(observer, kind).await;
    }
    counts
}

#[testbed::test]
async fn a_pair_is_two_updates_once_the_name_has_a_row() {
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let pair = async || {
        let granted = grant(&backend, "a", secs(60)).await;
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    };
    pair().await;
    let before = executed(&mut observer).await;
    for _ in 0..10 {
        pair().await;
    }
    let [updates, inserts, selects] = before;
    assert_eq!(executed(&mut observer).await, [updates + 20, inserts, selects]);
}

/// Somebody resets the row's tokens by hand while the name is held.
#[testbed::test]
async fn tokens_changed_by_hand_give_nobody_a_name_that_is_held() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let granted = grant(&backend, "a", secs(60)).await;
    let reset = format!("UPDATE {}_leases SET last_token=0", fixture.table);
    observer.run(&reset).await;
    for _ in 0..2 {
        assert!(try_once(&backend, "a").await.is_err());
    }
    assert!(matches!(
        granted.hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    assert!(grant(&backend, "a", secs(60)).await.token() > granted.token());
}

/// An end that is ahead of the clock, as after a step back, costs the next acquire a second statement, and no later one.
#[testbed::test]
async fn an_end_and_a_mark_ahead_of_the_clock_are_cleared_by_the_next_grant() {
    let fixture = Fixture::own().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    grant(&backend, "a", secs(60)).await.release().await;
    let ahead = format!(
        "UPDATE {}_leases SET expires=expires+9000000000,wanted=expires",
        fixture.table
    );
    observer.run(&ahead).await;
    for inserts in [1, 0] {
        let before = counted(&mut observer, "COM_INSERT").await;
        let granted = grant(&backend, "a", secs(60)).await;
        assert_eq!(counted(&mut observer, "COM_INSERT").await - before, inserts);
        let what = "(expires-FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)) DIV 1000000";
        assert!(in_row(&mut observer, &fixture, "a", what).await <= 60);
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    }
}
