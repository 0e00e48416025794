//! What keeps a hold, and what that costs the server.

use lock_core::{HoldState, Locker};
use lock_mysql::{MySqlConfig, RowLockBackend};
use tokio::time::timeout;

use crate::support::*;

const TTL: std::time::Duration = secs(2);

/// A client of a user whom a read-only server refuses.
async fn plain_user(fixture: &Fixture, observer: &mut Observer) -> RowLockBackend {
    observer
        .run("CREATE USER 'plain'@'%' IDENTIFIED BY 's3cret';GRANT SELECT,INSERT,UPDATE,CREATE ON app.* TO 'plain'@'%'")
        .await;
    let url = format!(
        "mysql://plain:s3cret@{}/app?table={}",
        fixture.server.address(),
        fixture.table
    );
    RowLockBackend::new(MySqlConfig::from_url(&url).unwrap()).unwrap()
}

/// A backup takes it, and an administrator before a switch of servers.
#[testbed::test]
async fn a_server_that_may_not_write_loses_no_hold() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let locks = Locker::new(plain_user(&fixture, &mut observer).await);
    for (forbid, permit) in [
        ("FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES"),
        ("SET GLOBAL read_only=1", "SET GLOBAL read_only=0"),
    ] {
        let guard = locks.lock("a").ttl(TTL).acquire().await.unwrap();
        observer.run(forbid).await;
        let lost = timeout(3 * TTL, guard.lost()).await;
        assert!(lost.is_err(), "{forbid}: {lost:?}");
        assert_eq!(guard.state(), HoldState::Held);
        observer.run(permit).await;
        assert!(observer.is_locked("a").await);
        guard.release().await.unwrap();
    }
}

#[testbed::test]
async fn renewals_write_nothing() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let granted = grant(&fixture.backend(), "a", secs(60)).await;
    let before = observer.counter("Com_update").await;
    for _ in 0..100 {
        granted.hold.renew(secs(60)).await.unwrap();
    }
    assert_eq!(observer.counter("Com_update").await, before);
    assert_eq!(granted.state(), HoldState::Held);
}
