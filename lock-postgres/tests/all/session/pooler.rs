//! Behind a PgBouncer.

use lock_core::ErrorKind;
use lock_core::backend::DistributedLock;
use lock_postgres::{Pooler, PostgresConfig, SessionBackend};
use testbed::PgBouncer;

use super::locks;
use crate::lease::support::*;

/// A configuration that leads to a PgBouncer in this mode.
async fn pooled(fixture: &Fixture, settings: &[(&str, &str)]) -> (testbed::Server, PostgresConfig) {
    let pooler = PgBouncer::of(fixture.server.port());
    let pooler = settings
        .iter()
        .fold(pooler, |pooler, (name, value)| pooler.setting(*name, *value));
    let pooler = pooler.start().await.unwrap();
    let direct = fixture.session_config();
    let config = PostgresConfig::from_url(&pooler.url())
        .unwrap()
        .with_connect_timeout(PATIENCE)
        .with_response_timeout(PATIENCE)
        .with_strategy(direct.strategy())
        .with_session_timeout(secs(60))
        .with_restart_delay(std::time::Duration::ZERO)
        .with_table(&fixture.table);
    (pooler, config)
}

async fn refused(config: PostgresConfig, said: &str) {
    let backend = SessionBackend::new(config).unwrap();
    let (request, _control) = options("a", secs(60)).waits(false).start();
    for error in [
        happens("an answer", backend.acquire(&request)).await.unwrap_err(),
        happens("an answer", backend.connect()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[testbed::test]
async fn a_pooler_that_nobody_declared_is_refused() {
    let fixture = Fixture::shared().await;
    let ignores = ("ignore_startup_parameters", "options");
    for settings in [
        &[][..],
        &[ignores],
        &[("pool_mode", "session")],
        &[("pool_mode", "session"), ignores],
    ] {
        let (_pooler, config) = pooled(&fixture, settings).await;
        refused(config, "a pooler is between").await;
    }
    assert_eq!(locks(&fixture, "a", true).await, 0);
}

#[testbed::test]
async fn a_pooler_of_transactions_is_refused_whatever_is_declared() {
    let fixture = Fixture::shared().await;
    let (_pooler, config) = pooled(&fixture, &[]).await;
    refused(config.clone().with_pooler(Pooler::Session), "to several clients").await;
    let error = SessionBackend::new(config.with_pooler(Pooler::Transaction)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("strategy=lease"), "{error}");
    assert_eq!(locks(&fixture, "a", true).await, 0);
}

#[testbed::test]
async fn a_pooler_of_sessions_that_was_declared_serves() {
    let fixture = Fixture::shared().await;
    let (_pooler, config) = pooled(&fixture, &[("pool_mode", "session"), ("default_pool_size", "20")]).await;
    let backend = SessionBackend::new(config.with_pooler(Pooler::Session)).unwrap();
    happens("an answer", backend.connect()).await.unwrap();
    let held = grant(&backend, "a", secs(60)).await;
    assert!(
        acquire(&fixture.sessions(), options("a", secs(60)).waits(false))
            .await
            .is_none()
    );
    held.release().await;
    drop(held);
    let again = grant(&backend, "a", secs(60)).await;
    drop((again, backend));
    // The pooler frees what its client had.
    eventually("freeing the name", async || {
        acquire(&fixture.sessions(), options("a", secs(60)).waits(false))
            .await
            .is_some()
    })
    .await;
}
