//! TLS: locks over it, and faults that say which certificate is wrong.

use lock_core::backend::DistributedLock;
use lock_core::{Error, ErrorKind};
use lock_postgres::{LeaseTableBackend, PostgresConfig, Tls};
use testbed::{Certificates, Postgres};

use super::support::*;

async fn refused(config: PostgresConfig) -> Error {
    let backend = LeaseTableBackend::new(config).unwrap();
    let error = happens("an answer to the connect", backend.connect())
        .await
        .unwrap_err();
    assert!(!error.is_retryable() && error.is_not_executed(), "{error:?}");
    error
}

#[testbed::test]
async fn a_lock_is_taken_over_tls_and_every_fault_is_named() {
    let (certificates, others) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let server = Postgres::new().tls(&certificates).start().await.unwrap();
    for host in ["127.0.0.1", "localhost"] {
        let url = server.url_at(&format!("{host}:{}", server.port()));
        let config = PostgresConfig::from_url(&url)
            .unwrap()
            .with_connect_timeout(PATIENCE)
            .with_response_timeout(PATIENCE);
        let backend = LeaseTableBackend::new(config).unwrap();
        grant(&backend, "a", secs(60)).await.release().await;
    }
    let (certificate, key) = certificates.client();
    let config = PostgresConfig::from_url(&server.url())
        .unwrap()
        .with_connect_timeout(PATIENCE);
    let strange = Tls::new().with_ca(others.ca()).with_certificate(&certificate, &key);
    let error = refused(config.clone().with_tls(strange)).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let missing = Tls::new()
        .with_ca("/nowhere/ca.pem")
        .with_certificate(&certificate, &key);
    let error = refused(config.with_tls(missing)).await;
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
    // Its own server lets only those in who have TLS.
    let plain = PostgresConfig::new("127.0.0.1", server.port())
        .with_user("app")
        .with_password("secret")
        .with_database("app")
        .with_connect_timeout(PATIENCE);
    let error = refused(plain.clone().with_user("stranger")).await;
    assert!(error.to_string().contains("tls=true"), "{error}");
}

#[testbed::test]
async fn a_server_without_tls_is_named() {
    let fixture = Fixture::shared().await;
    let error = refused(fixture.config().with_tls(Tls::new())).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}
