//! TLS where two crypto providers are compiled in, as in many applications, and none is installed for the process.
//!
//! In a process of its own, since a provider is installed for good.
#![forbid(unsafe_code)]
#![cfg(all(feature = "redis", feature = "mysql", feature = "tls", feature = "zookeeper-tls"))]

use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use testbed::{Certificates, MariaDb, Redis, ZooKeeper};

async fn lock(url: &str) {
    let locks = polylock::connect(url).await.expect("a connection over TLS");
    let guard = locks.lock("a").acquire().await.expect("a grant");
    guard.release().await.expect("released");
    locks.shutdown().await.expect("nothing is left");
}

#[testbed::test]
async fn redis_and_mysql_need_no_provider_of_the_process_and_zookeeper_installs_one() {
    let ambiguous = std::panic::catch_unwind(|| drop(ClientConfig::builder()));
    assert!(
        ambiguous.is_err(),
        "rustls could choose: one provider alone is compiled in"
    );
    let certificates = Certificates::new().expect("certificates");
    let redis = Redis::new().tls(&certificates).expect("a free port");
    let redis = redis.start().await.expect("a Redis");
    let mariadb = MariaDb::new().tls(&certificates).start().await.expect("a MariaDB");
    lock(&redis.url()).await;
    lock(&mariadb.url()).await;
    assert!(CryptoProvider::get_default().is_none(), "somebody installed a provider");
    let zookeeper = ZooKeeper::new().tls(&certificates).expect("a free port");
    let zookeeper = zookeeper.start().await.expect("a ZooKeeper");
    lock(&zookeeper.url()).await;
    assert!(CryptoProvider::get_default().is_some());
}
