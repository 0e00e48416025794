//! A standby, and its promotion.

use lock_core::ErrorKind;
use lock_core::backend::{DistributedLock, Renewal};
use lock_postgres::{LeaseTableBackend, PostgresConfig};
use testbed::Postgres;

use super::support::*;

#[testbed::test]
async fn a_hold_survives_the_promotion_of_a_synchronous_standby() {
    let servers = Postgres::new().start_replicated(1).await.unwrap();
    servers.set_synchronous(0, true).await.unwrap();
    let standby = PostgresConfig::from_url(&servers[1].url()).unwrap();
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
    let backend = LeaseTableBackend::new(PostgresConfig::from_url(&both).unwrap()).unwrap();
    let held = grant(&backend, "a", secs(600)).await;
    let before = grant(&backend, "b", secs(600)).await;
    before.release().await;
    servers[0].kill().unwrap();
    servers.promote(1).await.unwrap();
    until("renewing", async || {
        matches!(held.hold.renew(secs(600)).await, Ok(Renewal::Renewed(_)))
    })
    .await;
    let other = LeaseTableBackend::new(PostgresConfig::from_url(&url).unwrap()).unwrap();
    assert!(acquire(&other, options("a", secs(60)).waits(false)).await.is_none());
    assert!(grant(&other, "b", secs(60)).await.token() > before.token());
}
