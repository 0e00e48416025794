//! A standby, and its promotion.

use lock_core::backend::{DistributedLock, ReleaseOutcome, Renewal};
use lock_core::{ErrorKind, Guarantee, Locker};
use lock_postgres::{LeaseTableBackend, PostgresConfig};
use testbed::Postgres;

use super::support::*;

fn config(url: &str) -> PostgresConfig {
    PostgresConfig::from_url(url)
        .unwrap()
        .with_connect_timeout(PATIENCE)
        .with_response_timeout(PATIENCE)
}

#[testbed::test]
async fn a_hold_survives_the_promotion_of_a_synchronous_standby() {
    let servers = Postgres::new().start_replicated(1).await.unwrap();
    servers.set_synchronous(0, true).await.unwrap();
    let standby = config(&servers[1].url());
    let refused = LeaseTableBackend::new(standby).unwrap().connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("is a standby"), "{refused}");
    // The standby comes first, and is passed over.
    let url = servers[1].url();
    let both = url.replacen(
        servers[1].address(),
        &format!("{},{}", servers[1].address(), servers[0].address()),
        1,
    );
    let backend = LeaseTableBackend::new(config(&both)).unwrap();
    let held = grant(&backend, "a", secs(600)).await;
    let before = grant(&backend, "b", secs(600)).await;
    before.release().await;
    servers[0].kill().unwrap();
    servers.promote(1).await.unwrap();
    eventually("renewing", async || {
        matches!(held.hold.renew(secs(600)).await, Ok(Renewal::Renewed(_)))
    })
    .await;
    let other = LeaseTableBackend::new(config(&url)).unwrap();
    assert!(acquire(&other, options("a", secs(60)).waits(false)).await.is_none());
    assert!(grant(&other, "b", secs(60)).await.token() > before.token());
}

/// As before a planned switchover: the next server may grant what this one holds.
#[testbed::test]
async fn a_server_that_was_made_read_only_renews_nothing() {
    let fixture = Fixture::own(Postgres::new()).await;
    let backend = fixture.backend();
    let held = grant(&backend, "a", secs(600)).await;
    let observer = fixture.observer().await;
    let set = async |value: &str| {
        let change = format!("ALTER SYSTEM SET default_transaction_read_only={value}");
        observer.batch_execute(&change).await.unwrap();
        observer.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    };
    set("on").await;
    let takes_no_writes = |error: &lock_core::Error| {
        error.kind() == ErrorKind::Unavailable && error.to_string().contains("takes no writes")
    };
    eventually("refusing a renewal", async || {
        held.hold
            .renew(secs(600))
            .await
            .is_err_and(|error| takes_no_writes(&error))
    })
    .await;
    let refused = fixture.backend().connect().await.unwrap_err();
    assert!(takes_no_writes(&refused), "{refused}");
    set("off").await;
    eventually("renewing", async || {
        matches!(held.hold.renew(secs(600)).await, Ok(Renewal::Renewed(_)))
    })
    .await;
    assert_eq!(held.release().await, ReleaseOutcome::Released);
}

/// As the page says: without a synchronous standby, only the fence protects after a promotion.
#[testbed::test]
async fn a_standby_that_lacks_a_grant_loses_it_and_tokens_go_on() {
    let servers = Postgres::new().start_replicated(1).await.unwrap();
    let url = servers[0].url();
    let hosts = format!("{},{}", servers[0].address(), servers[1].address());
    let both = url.replacen(servers[0].address(), &hosts, 1);
    let backend = LeaseTableBackend::new(config(&both)).unwrap();
    let before = grant(&backend, "a", secs(600)).await;
    assert_eq!(before.release().await, ReleaseOutcome::Released);
    let ask = async |server: usize, sql: &str| servers.call(server, sql).await.unwrap();
    eventually("replicating", async || {
        let free = "SELECT count(*) FROM pg_class WHERE relname='polylock_leases'";
        ask(1, free).await == ["1"]
            && ask(1, "SELECT count(*) FROM polylock_leases WHERE holder IS NULL").await == ["1"]
    })
    .await;
    servers.fall_behind(1, 0).await.unwrap();
    let lost = grant(&backend, "a", secs(600)).await;
    servers[0].kill().unwrap();
    servers.promote(1).await.unwrap();
    let promoted = config(&servers[1].url());
    let other = LeaseTableBackend::new(promoted).unwrap();
    let next = grant(&other, "a", secs(600)).await;
    assert!(next.token() > lost.token(), "the fence rejects the lost one");
    eventually("learning of the loss", async || {
        matches!(lost.hold.renew(secs(600)).await, Ok(Renewal::Lost))
    })
    .await;
    assert_eq!(next.release().await, ReleaseOutcome::Released);
}

/// What the first server said of itself says nothing about the next one.
#[testbed::test]
async fn a_promoted_server_is_judged_by_its_own_settings() {
    let servers = Postgres::new().start_replicated(1).await.unwrap();
    servers.set_synchronous(0, true).await.unwrap();
    let hosts = format!("{},{}", servers[0].address(), servers[1].address());
    let both = servers[0].url().replacen(servers[0].address(), &hosts, 1);
    let backend = LeaseTableBackend::new(config(&both)).unwrap();
    let failover = [Guarantee::Failover];
    let locks = Locker::new(backend).require(failover).trusting(failover);
    let granted = happens("granted", locks.lock("a").acquire()).await.unwrap();
    granted.release().await.unwrap();

    servers[0].kill().unwrap();
    servers.promote(1).await.unwrap();
    let refused = async || match locks.lock("a").try_acquire().await {
        Err(error) if error.kind() == ErrorKind::Misconfigured => Some(error.to_string()),
        _ => None,
    };
    let mut said = None;
    eventually("refused", async || {
        said = refused().await;
        said.is_some()
    })
    .await;
    let said = said.unwrap();
    assert!(said.contains("set synchronous_standby_names"), "{said}");

    // Connecting again is enough, without a new connection.
    servers
        .call(1, "ALTER SYSTEM SET synchronous_standby_names='*'")
        .await
        .unwrap();
    servers.call(1, "SELECT pg_reload_conf()").await.unwrap();
    eventually("read again", async || locks.connect().await.is_ok()).await;
}
