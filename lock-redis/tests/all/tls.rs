//! TLS: locks over it, and faults that say which certificate is wrong.

use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::{Error, ErrorKind, Locker};
use lock_redis::{RedisBackend, RedisConfig, Tls};
use testbed::happens;
use testbed::{Certificates, Flaw, Redis, Server};
use tokio::net::TcpListener;

use crate::support::{AT_MOST, LONG, connect, release, take};

mod topologies;

async fn server(certificates: &Certificates) -> Server {
    let redis = Redis::new().tls(certificates).expect("a free port");
    redis.start().await.expect("a Redis")
}

/// Nothing stands between that may hang, so it connects in the end.
fn patient(url: &str) -> RedisConfig {
    RedisConfig::from_url(url)
        .expect("a good URL")
        .with_connect_timeout(AT_MOST)
}

fn at(address: &str) -> RedisConfig {
    RedisConfig::from_url(&format!("redis://{address}"))
        .expect("a good URL")
        .with_connect_timeout(LONG)
}

fn with_tls(address: &str, tls: Tls) -> RedisBackend {
    RedisBackend::new(at(address).with_tls(tls)).expect("a good configuration")
}

/// How it fails, long before its connect timeout.
async fn fault(backend: &RedisBackend) -> Error {
    let connecting = happens("it fails at once", backend.connect()).await;
    let error = connecting.expect_err("it must fail");
    assert!(!error.is_retryable(), "{error}");
    error
}

fn client_of(certificates: &Certificates) -> Tls {
    let (certificate, key) = certificates.client();
    Tls::new().with_ca(certificates.ca()).with_certificate(certificate, key)
}

#[testbed::test]
async fn a_lock_is_taken_over_tls_by_name_and_by_address() {
    let certificates = Certificates::new().expect("certificates");
    let server = server(&certificates).await;
    let plain = server.plain_address().expect("a port without TLS");
    let mut raw = connect(&format!("redis://{plain}")).await;
    for host in ["127.0.0.1", "localhost"] {
        let address = format!("{host}:{}", server.port());
        let backend = RedisBackend::new(patient(&server.url_at(&address))).expect("a good configuration");
        let hold = take(&backend, "a").await;
        let value: String = redis::cmd("GET")
            .arg("polylock:a")
            .query_async(&mut raw)
            .await
            .expect("a reply");
        assert!(!value.is_empty());
        assert!(release(&hold).await);
        // The driver's task ends with the backend, and so does its connection.
        drop((hold, backend));
        happens("its connection ends", async {
            loop {
                let clients: String = redis::cmd("CLIENT")
                    .arg("LIST")
                    .query_async(&mut raw)
                    .await
                    .expect("a list");
                if !clients.contains("lib-name=polylock") {
                    break;
                }
            }
        })
        .await;
    }
}

#[testbed::test]
async fn a_connection_over_tls_is_made_again() {
    let certificates = Certificates::new().expect("certificates");
    let server = server(&certificates).await;
    let locker = Locker::new(RedisBackend::new(patient(&server.url())).expect("a good configuration"));
    locker
        .lock("a")
        .acquire()
        .await
        .expect("a grant")
        .release()
        .await
        .expect("released");
    server.restart().await.expect("it starts again");
    let again = happens("in time", locker.lock("a").acquire()).await;
    again.expect("a grant").release().await.expect("released");
}

#[testbed::test]
async fn a_fault_of_the_servers_certificate_is_final_and_says_so() {
    let (good, stranger) = (Certificates::new().expect("made"), Certificates::new().expect("made"));
    let valid = server(&good).await;
    let unknown = fault(&with_tls(valid.address(), client_of(&good).with_ca(stranger.ca()))).await;
    let native = fault(&with_tls(valid.address(), Tls::new())).await;
    for error in [unknown, native] {
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(
            error.to_string().contains("was not issued by a trusted authority"),
            "{error}"
        );
        assert!(error.to_string().contains(valid.address()), "{error}");
    }
    for (flaw, said) in [(Flaw::Expired, "has expired"), (Flaw::OtherHost, "is for another host")] {
        let flawed = Certificates::with_flaw(flaw).expect("made");
        let server = server(&flawed).await;
        let error = fault(&with_tls(server.address(), client_of(&flawed))).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains(said), "{flaw:?}: {error}");
    }
}

#[testbed::test]
async fn a_fault_of_the_clients_certificate_is_final_and_says_so() {
    let (good, stranger) = (Certificates::new().expect("made"), Certificates::new().expect("made"));
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
    let certificates = Certificates::new().expect("made");
    let server = server(&certificates).await;
    let (certificate, key) = certificates.client();
    for (tls, said) in [
        (
            Tls::new().with_ca("/nowhere/ca.pem"),
            "ca=/nowhere/ca.pem cannot be read",
        ),
        (Tls::new().with_ca(&key), "has no certificate in PEM"),
        (
            client_of(&certificates).with_certificate("/nowhere.pem", &key),
            "cert=/nowhere.pem cannot be read",
        ),
        (
            client_of(&certificates).with_certificate(&certificate, &certificate),
            "has no private key",
        ),
        (
            client_of(&certificates).with_certificate(&certificate, certificates.server().1),
            "is not the private key of",
        ),
    ] {
        let error = fault(&with_tls(server.address(), tls)).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[testbed::test]
async fn tls_at_the_wrong_port_is_named_on_either_side() {
    let certificates = Certificates::new().expect("made");
    let server = server(&certificates).await;
    let plain = server.plain_address().expect("a port without TLS");
    let error = fault(&with_tls(&plain, client_of(&certificates))).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("answers there without TLS"), "{error}");
    let error = fault(&RedisBackend::new(at(server.address())).expect("a good configuration")).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("wants TLS: add tls=true"), "{error}");
}

#[testbed::test]
async fn another_server_is_named_over_tls_too() {
    let mariadb = testbed::MariaDb::new().start().await.expect("a MariaDB");
    let error = fault(&with_tls(mariadb.address(), Tls::new())).await;
    assert!(
        error.to_string().contains("but MySQL or MariaDB answers there"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_never_answers_a_handshake_is_unavailable_after_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let limit = Duration::from_secs(2);
    let config = at(&address).with_tls(Tls::new()).with_connect_timeout(limit);
    let backend = RedisBackend::new(config).expect("a good configuration");
    let connecting = happens("it ends", backend.connect()).await;
    assert_eq!(connecting.expect_err("it must fail").kind(), ErrorKind::Unavailable);
}
