//! TLS: locks over it, and faults that say which certificate is wrong.

use lock_core::backend::DistributedLock;
use lock_core::{Error, ErrorKind};
use lock_mysql::{MySqlConfig, RowLockBackend, Tls};
use sqlx::Connection;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use testbed::{Certificates, Edition, Flaw, MariaDb, Server};

use crate::support::*;

async fn server(certificates: &Certificates) -> Server {
    MariaDb::new().tls(certificates).start().await.unwrap()
}

fn client_of(certificates: &Certificates) -> Tls {
    let (certificate, key) = certificates.client();
    Tls::new().with_ca(certificates.ca()).with_certificate(certificate, key)
}

/// With a connect timeout for which no test waits.
fn at(server: &Server, tls: Option<Tls>) -> RowLockBackend {
    let config = MySqlConfig::new("127.0.0.1", server.port());
    let config = config.with_user("app").with_password("secret").with_database("app");
    let config = config.with_connect_timeout(secs(3600)).with_response_timeout(PATIENCE);
    RowLockBackend::new(match tls {
        Some(tls) => config.with_tls(tls),
        None => config,
    })
    .unwrap()
}

async fn fault(backend: &RowLockBackend) -> Error {
    let error = soon("refused", backend.connect()).await.unwrap_err();
    assert!(!error.is_retryable() && error.is_not_executed(), "{error}");
    error
}

async fn a_lock_is_taken(server: &Server) {
    for host in ["127.0.0.1", "localhost"] {
        let url = server.url_at(&format!("{host}:{}", server.port()));
        let backend = RowLockBackend::new(patient(&url)).unwrap();
        let hold = grant(&backend, "a", secs(10)).await;
        hold.release().await;
    }
}

#[testbed::test]
async fn a_lock_is_taken_over_tls_by_name_and_by_address() {
    let certificates = Certificates::new().unwrap();
    let server = server(&certificates).await;
    a_lock_is_taken(&server).await;
    // The user may log in over TLS alone, and with a certificate: so these holds were over TLS.
    let options = MySqlConnectOptions::new().host("127.0.0.1").port(server.port());
    let options = options
        .username("app")
        .password("secret")
        .ssl_mode(MySqlSslMode::Disabled);
    MySqlConnection::connect_with(&options).await.unwrap_err();
}

#[testbed::test]
async fn a_lock_is_taken_over_tls_on_mysql() {
    let certificates = Certificates::new().unwrap();
    let started = MariaDb::new().edition(Edition::MySql9).tls(&certificates).start().await;
    if let Some(server) = testbed::skip_left_out(started) {
        a_lock_is_taken(&server).await;
    }
}

#[testbed::test]
async fn a_fault_of_the_servers_certificate_is_final_and_says_so() {
    let (good, stranger) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let valid = server(&good).await;
    for tls in [client_of(&good).with_ca(stranger.ca()), Tls::new()] {
        let error = fault(&at(&valid, Some(tls))).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(
            error.to_string().contains("was not issued by a trusted authority"),
            "{error}"
        );
        assert!(error.to_string().contains(valid.address()), "{error}");
    }
    for (flaw, said) in [(Flaw::Expired, "has expired"), (Flaw::OtherHost, "is for another host")] {
        let flawed = Certificates::with_flaw(flaw).unwrap();
        let server = server(&flawed).await;
        let error = fault(&at(&server, Some(client_of(&flawed)))).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains(said), "{flaw:?}: {error}");
    }
}

#[testbed::test]
async fn a_fault_of_the_clients_certificate_is_final_and_says_so() {
    let (good, stranger) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let server = server(&good).await;
    let error = fault(&at(&server, Some(Tls::new().with_ca(good.ca())))).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("a client certificate"), "{error}");
    let error = fault(&at(&server, Some(client_of(&stranger).with_ca(good.ca())))).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("rejects our client certificate"), "{error}");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_before_a_server_is_dialled() {
    let config = MySqlConfig::new("127.0.0.1", 1)
        .with_database("app")
        .with_connect_timeout(secs(3600));
    let backend = RowLockBackend::new(config.with_tls(Tls::new().with_ca("/nowhere/ca.pem"))).unwrap();
    let error = fault(&backend).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        error.to_string().contains("ca=/nowhere/ca.pem cannot be read"),
        "{error}"
    );
}

#[testbed::test]
async fn a_server_without_tls_and_one_that_demands_it_are_named() {
    let plain = Fixture::own_with(["--loose-skip-ssl", "--loose-tls-version="]).await;
    let error = fault(&at(&plain.server, Some(Tls::new()))).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("check that it has TLS"), "{error}");
    let certificates = Certificates::new().unwrap();
    let (certificate, key) = certificates.server();
    // Its user needs no certificate, which the server would notice first.
    let demanding = MariaDb::new()
        .option(format!("--ssl-cert={}", certificate.display()))
        .option(format!("--ssl-key={}", key.display()))
        .option("--require-secure-transport=ON");
    let demanding = demanding.start().await.unwrap();
    let url = format!(
        "mysql://app:secret@{}/app?tls=false&connect_timeout=1h",
        demanding.address()
    );
    // A MySQL says so (3159), a MariaDB refuses the login.
    let error = fault(&RowLockBackend::from_url(&url).unwrap()).await;
    assert!(error.to_string().contains("tls=true"), "{error}");
}

/// After the server was reached too, when requests go on through an outage.
#[testbed::test]
async fn a_file_that_has_gone_is_named() {
    let certificates = Certificates::new().unwrap();
    let server = server(&certificates).await;
    let backend = at(&server, Some(client_of(&certificates)));
    grant(&backend, "a", secs(10)).await.release().await;
    let (_, key) = certificates.client();
    let moved = key.with_extension("moved");
    std::fs::rename(&key, &moved).unwrap();
    server.restart().await.unwrap();
    let (request, _control) = options("a", secs(10)).start();
    let error = soon("refused", backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let named = format!("key={} cannot be read", key.display());
    assert!(error.to_string().contains(&named), "{error}");
    std::fs::rename(&moved, &key).unwrap();
    grant(&backend, "a", secs(10)).await.release().await;
}
