//! A server that takes no writes for a while.

use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{ErrorKind, Locker};
use lock_mysql::{LeaseTableBackend, MySqlConfig, Strategy};

use super::support::*;
use crate::support::proxy::Proxy;
use crate::support::*;
use crate::switchover::{is_mariadb, plain_user, replicated, switch_over};

/// Nothing is renewed or ended meanwhile, and nothing is lost before its time.
#[testbed::test]
async fn a_read_only_server_refuses_what_writes_and_loses_no_hold() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    // Those who may do everything may write all the same.
    observer
        .run(
            "CREATE USER 'plain'@'%' IDENTIFIED BY 's3cret';\
             GRANT SELECT, INSERT, UPDATE, CREATE ON app.* TO 'plain'@'%'",
        )
        .await;
    let url = format!("mysql://plain:s3cret@{}/app", fixture.server.address());
    let config = MySqlConfig::from_url(&url).unwrap().with_strategy(Strategy::Lease);
    let plain = LeaseTableBackend::new(config.with_table(&fixture.table)).unwrap();
    let held = grant(&plain, "a", secs(60)).await;
    observer.run("SET GLOBAL read_only=1").await;
    let (request, _control) = options("b", secs(60)).waits(false).start();
    let renewing = soon("refused", held.hold.renew(secs(60))).await.unwrap_err();
    let acquiring = soon("refused", plain.acquire(&request)).await.unwrap_err();
    let releasing = soon("refused", held.hold.release(ReleaseOptions::default())).await;
    let releasing = releasing.unwrap_err();
    assert!(acquiring.is_not_executed() && releasing.is_not_executed());
    for error in [renewing, acquiring, releasing] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains("read-only"), "{error}");
    }
    assert_eq!(held.state(), lock_core::HoldState::Held);
    assert!(is_held(&mut observer, &fixture, "a").await);
    observer.run("SET GLOBAL read_only=0").await;
    plain.abandon(&request).await.unwrap();
    assert!(!is_held(&mut observer, &fixture, "b").await);
    assert!(matches!(held.hold.renew(secs(60)).await.unwrap(), Renewal::Renewed(_)));
    assert!(try_once(&backend(&fixture), "a").await.is_err());
    assert_eq!(held.release().await, ReleaseOutcome::Released);
    let next = grant(&backend(&fixture), "a", secs(60)).await;
    assert!(next.token() > held.token());
}

/// Waiting acquires ask several times a second.
#[testbed::test]
async fn a_read_only_server_is_not_dialled_after_each_refusal() {
    let fixture = Fixture::own().await;
    plain_user(&fixture).await;
    let proxy = Proxy::of(&fixture).await;
    let url = format!("mysql://plain:s3cret@{}/app", proxy.address());
    let config = patient(&url).with_strategy(Strategy::Lease).with_table(&fixture.table);
    let plain = LeaseTableBackend::new(config).unwrap();
    let held = grant(&plain, "a", secs(600)).await;
    fixture.observer().await.run("SET GLOBAL read_only=1").await;
    let (start, before) = (std::time::Instant::now(), proxy.dials());
    for _ in 0..60 {
        let error = soon("refused", held.hold.renew(secs(600))).await.unwrap_err();
        assert!(error.to_string().contains("read-only"), "{error}");
    }
    // Two connections, each at most once a second.
    let most = 2 * (usize::try_from(start.elapsed().as_secs()).unwrap() + 2);
    assert!(proxy.dials() - before <= most, "{} dials", proxy.dials() - before);
}

/// The address leads to the new primary, and the connections to the old one stay open. The rows are on both.
#[testbed::test]
async fn holds_and_waiters_follow_a_switchover_to_the_new_primary() {
    const TTL: std::time::Duration = secs(600);
    if !is_mariadb().await {
        return;
    }
    let (old, new) = replicated().await;
    plain_user(&old).await;
    let proxy = Proxy::of(&old).await;
    let plain = || {
        let url = format!("mysql://plain:s3cret@{}/app", proxy.address());
        let config = patient(&url).with_strategy(Strategy::Lease).with_table(&old.table);
        LeaseTableBackend::new(config).unwrap()
    };
    let (backend, waiter) = (plain(), Locker::new(plain()).with_ttl(TTL));
    let held = grant(&backend, "a", TTL).await;
    let waiting = tokio::spawn(async move { waiter.lock("a").acquire().await.unwrap() });
    let (mut at_old, mut at_new) = (old.observer().await, new.observer().await);
    until("waiting", async || {
        in_row(&mut at_old, &old, "a", "waiter IS NOT NULL").await == 1
    })
    .await;

    switch_over(&old, &new).await;
    proxy.lead_to(&new);
    let expires = in_row(&mut at_new, &new, "a", "expires").await;
    let renewed = insist("renewed", async || held.hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    assert!(in_row(&mut at_new, &new, "a", "expires").await > expires);
    let locks = Locker::new(backend).with_ttl(TTL);
    let next = soon("granted by the new server", locks.lock("b").acquire())
        .await
        .unwrap();
    assert!(is_held(&mut at_new, &new, "b").await && !is_held(&mut at_old, &old, "b").await);
    let released = insist("released", async || held.hold.release(ReleaseOptions::default()).await).await;
    assert_eq!(released, ReleaseOutcome::Released);
    let in_turn = soon("granted in turn", waiting).await.unwrap();
    assert!(in_turn.token() > held.hold.token() && is_held(&mut at_new, &new, "a").await);
    next.release().await.unwrap();
}
