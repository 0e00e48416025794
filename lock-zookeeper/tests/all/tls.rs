//! TLS: locks over it, and faults that say which certificate is wrong.

use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::{Error, ErrorKind, Locker};
use lock_zookeeper::{Tls, ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Certificates, Flaw, Redis, Server, ZooKeeper};
use tokio::net::TcpListener;
use zookeeper_client::Client;

use crate::support::*;

async fn server(certificates: &Certificates) -> Server {
    ZooKeeper::new().tls(certificates).unwrap().start().await.unwrap()
}

fn client_of(certificates: &Certificates) -> Tls {
    let (certificate, key) = certificates.client();
    Tls::new().with_ca(certificates.ca()).with_certificate(certificate, key)
}

/// With a connect timeout for which no test waits.
fn with_tls(address: &str, tls: Tls) -> ZooKeeperBackend {
    let config = config(address, "/tls").with_connect_timeout(Duration::from_secs(3600));
    backend_with(config.with_tls(tls))
}

async fn fault(backend: &ZooKeeperBackend) -> Error {
    let error = happens("an answer to the connect", backend.connect())
        .await
        .unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    error
}

/// The subject of the client's certificate is who may access the nodes.
#[testbed::test]
async fn a_lock_is_taken_over_tls_by_name_and_by_address() {
    let certificates = Certificates::new().unwrap();
    let server = server(&certificates).await;
    for host in ["127.0.0.1", "localhost"] {
        let address = format!("{host}:{}", server.port());
        let url = server.url_at(&address).replace("/?", "/tls?connect_timeout=30s&");
        let backend = ZooKeeperBackend::from_url(&url).unwrap();
        let (hold, ..) = hold(&backend, "a").await;
        let stranger = Client::connector().with_session_timeout(GENEROUS);
        let stranger = stranger.connect(&server.plain_address().unwrap()).await.unwrap();
        let denied = stranger.list_children("/tls/a").await;
        assert_eq!(denied, Err(zookeeper_client::Error::NoAuth));
        happens("the release", hold.release(Default::default())).await.unwrap();
    }
}

#[testbed::test]
async fn a_session_over_tls_outlasts_a_restart() {
    let certificates = Certificates::new().unwrap();
    let server = server(&certificates).await;
    let config = config(server.address(), "/tls").with_session_timeout(LONG);
    let backend = backend_with(config.with_connect_timeout(GENEROUS).with_tls(client_of(&certificates)));
    let locker = Locker::new(backend).with_ttl(2 * LONG);
    let guard = locker.lock("a").acquire().await.unwrap();
    server.restart().await.unwrap();
    let other = happens("an answer to the acquire", locker.lock("b").acquire())
        .await
        .unwrap();
    guard.check().unwrap();
    other.release().await.unwrap();
    guard.release().await.unwrap();
}

#[testbed::test]
async fn a_fault_of_the_servers_certificate_is_final_and_says_so() {
    let (good, stranger) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let valid = server(&good).await;
    for tls in [client_of(&good).with_ca(stranger.ca()), Tls::new()] {
        let error = fault(&with_tls(valid.address(), tls)).await;
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
        let error = fault(&with_tls(server.address(), client_of(&flawed))).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains(said), "{flaw:?}: {error}");
    }
}

#[testbed::test]
async fn a_fault_of_the_clients_certificate_is_final_and_says_so() {
    let (good, stranger) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let server = server(&good).await;
    let error = fault(&with_tls(server.address(), Tls::new().with_ca(good.ca()))).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("wants a client certificate"), "{error}");
    let error = fault(&with_tls(server.address(), client_of(&stranger).with_ca(good.ca()))).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("rejects our client certificate"), "{error}");
}

#[testbed::test]
async fn a_file_that_cannot_be_used_is_named() {
    let error = fault(&with_tls("127.0.0.1:1", Tls::new().with_ca("/nowhere/ca.pem"))).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        error.to_string().contains("ca=/nowhere/ca.pem cannot be read"),
        "{error}"
    );
}

#[testbed::test]
async fn tls_at_the_wrong_port_is_named_on_either_side() {
    let certificates = Certificates::new().unwrap();
    let server = server(&certificates).await;
    let error = fault(&with_tls(&server.plain_address().unwrap(), client_of(&certificates))).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("answers there without TLS"), "{error}");
    let plain = config(server.address(), "/tls").with_connect_timeout(Duration::from_secs(3600));
    let error = fault(&backend_with(plain)).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("wants TLS: add tls=true"), "{error}");
}

#[testbed::test]
async fn another_server_is_named_over_tls_too() {
    let redis = Redis::new().start().await.unwrap();
    let error = fault(&with_tls(redis.address(), Tls::new())).await;
    assert!(error.to_string().contains("but Redis answers there"), "{error}");
}

#[tokio::test]
async fn a_server_that_never_answers_a_handshake_is_unavailable_after_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let config = ZooKeeperConfig::new([address]).with_open_acl();
    let backend = backend_with(config.with_tls(Tls::new()).with_connect_timeout(Duration::from_secs(3)));
    let error = happens("an answer to the connect", backend.connect())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// As a comment of another encoding makes them: PEM ends no text that is not its own.
#[testbed::test]
async fn a_file_need_not_be_utf_8_outside_its_sections() {
    let certificates = Certificates::new().unwrap();
    let server = server(&certificates).await;
    let (certificate, key) = certificates.client();
    for file in [certificates.ca(), certificate, key] {
        let mut text = b"Schl\xFCssel\n".to_vec();
        text.extend(std::fs::read(&file).unwrap());
        std::fs::write(&file, text).unwrap();
    }
    let backend = with_tls(server.address(), client_of(&certificates));
    happens("an answer to the connect", backend.connect()).await.unwrap();
}
