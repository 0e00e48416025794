//! Servers with TLS.
#![forbid(unsafe_code)]

use std::net::TcpStream;

use testbed::{Certificates, MariaDb, Redis, ZooKeeper};

#[testbed::test]
async fn they_start_and_listen_with_and_without_tls() {
    let certificates = Certificates::new().unwrap();
    let redis = Redis::new().tls(&certificates).unwrap().start().await.unwrap();
    let zookeeper = ZooKeeper::new().tls(&certificates).unwrap().start().await.unwrap();
    let mariadb = MariaDb::new().tls(&certificates).start().await.unwrap();
    assert!(mariadb.plain_address().is_none());
    for server in [redis, zookeeper] {
        assert!(
            server.url().contains("ca=") && server.url().contains("cert="),
            "{}",
            server.url()
        );
        for address in [server.address().to_owned(), server.plain_address().unwrap()] {
            TcpStream::connect(&address).unwrap();
        }
    }
    let file = certificates.ca();
    assert!(file.is_file());
    drop(certificates);
}

#[test]
fn certificates_go_with_their_owner() {
    let certificates = Certificates::new().unwrap();
    let file = certificates.ca();
    assert!(file.is_file());
    drop(certificates.clone());
    assert!(file.is_file());
    drop(certificates);
    assert!(!file.exists());
}
