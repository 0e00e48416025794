//! The server ends, and comes back.

use lock_core::backend::{ReleaseOutcome, Renewal};

use super::support::*;
use crate::support::*;

#[testbed::test]
async fn a_hold_outlasts_a_killed_server_that_comes_back_in_time() {
    let fixture = Fixture::own().await;
    let (first, second) = (backend(&fixture), backend(&fixture));
    let granted = grant(&first, "a", secs(60)).await;
    fixture.server.kill().unwrap();
    assert!(granted.hold.renew(secs(60)).await.is_err());
    fixture.server.restart().await.unwrap();
    assert!(matches!(
        granted.hold.renew(secs(60)).await.unwrap(),
        Renewal::Renewed(_)
    ));
    assert!(try_once(&second, "a").await.is_err());
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    let next = grant(&second, "a", secs(60)).await;
    assert!(next.token() > granted.token());
}

#[testbed::test]
async fn a_waiter_outlasts_a_restart() {
    let fixture = Fixture::own().await;
    let (first, second) = (locker(&fixture), locker(&fixture));
    // On a busy machine the server may need a minute.
    let guard = first.lock("a").ttl(secs(600)).acquire().await.unwrap();
    let mut observer = fixture.observer().await;
    let waiting = tokio::spawn(async move { second.lock("a").acquire().await });
    let sql = format!("SELECT COUNT(*) FROM {}_leases WHERE wanted>0", fixture.table);
    until("waited", async || observer.number(&sql).await == 1).await;
    fixture.server.kill().unwrap();
    fixture.server.restart().await.unwrap();
    guard.release().await.unwrap();
    let next = soon("granted", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}
