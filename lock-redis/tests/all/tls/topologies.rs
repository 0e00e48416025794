//! TLS to Sentinels and the server that they name, and to the nodes of a Cluster.

use lock_core::backend::{DistributedLock, Renewal};
use lock_core::{Error, ErrorKind};
use lock_redis::{RedisBackend, RedisConfig};
use testbed::{Certificates, Cluster, Redis, Watched};
use tokio::sync::OnceCell;

use super::{LONG, client_of, fault};
use crate::support::waiter::Waiter;
use crate::support::{TTL, eventually, in_the_end, in_the_end_released, release, take};

/// Shared by the tests.
async fn sentinels() -> &'static (Watched, Certificates) {
    static SHARED: OnceCell<(Watched, Certificates)> = OnceCell::const_new();
    let start = || async {
        let (redis, certificates) = redis();
        (redis.start_watched(1).await.expect("it starts"), certificates)
    };
    SHARED.get_or_init(start).await
}

async fn cluster() -> &'static (Cluster, Certificates) {
    static SHARED: OnceCell<(Cluster, Certificates)> = OnceCell::const_new();
    let start = || async {
        let (redis, certificates) = redis();
        (redis.start_cluster(false).await.expect("it starts"), certificates)
    };
    SHARED.get_or_init(start).await
}

fn redis() -> (Redis, Certificates) {
    let certificates = Certificates::new().expect("made");
    (Redis::new().tls(&certificates).expect("a free port"), certificates)
}

fn config(url: &str) -> RedisConfig {
    RedisConfig::from_url(url)
        .expect("a good URL")
        .with_connect_timeout(LONG)
}

fn at(url: &str) -> RedisBackend {
    RedisBackend::new(config(url)).expect("a good configuration")
}

#[testbed::test]
async fn sentinels_and_the_masters_that_they_name_are_reached_over_tls() {
    let (watched, _) = sentinels().await;
    assert!(watched.url().starts_with("rediss+sentinel://"), "{}", watched.url());
    let backend = at(&watched.url());
    let hold = take(&backend, "sentinel").await;
    let master = watched.settled().await.expect("all is well");
    let key = "polylock:sentinel";
    let value = watched.redis().call(master, &["GET", key]).await.expect("an answer");
    assert!(!value.is_empty());
    eventually("the replica has it", async || {
        let there = watched.redis().call(1 - master, &["GET", key]).await;
        there.expect("an answer") == value
    })
    .await;
    watched.fail_over().await.expect("it is replaced");
    let renewed = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    in_the_end_released(&hold).await;
}

#[testbed::test]
async fn a_certificate_that_is_wrong_for_sentinels_is_final_and_said() {
    let (watched, certificates) = sentinels().await;
    let sentinels = watched.sentinels();
    for error in wrong(&watched.url(), certificates).await {
        let mut addresses = sentinels.iter().map(|sentinel| sentinel.address());
        let is_named = addresses.any(|address| error.to_string().contains(&format!("the Sentinel at {address}")));
        assert!(is_named, "{error}");
    }
}

#[testbed::test]
async fn the_nodes_of_a_cluster_are_reached_over_tls() {
    let (cluster, _) = cluster().await;
    assert!(cluster.url().starts_with("rediss+cluster://"), "{}", cluster.url());
    let (backend, other) = (at(&cluster.url()), at(&cluster.url()));
    backend.connect().await.expect("all serve");
    let mut masters = std::collections::BTreeSet::new();
    for number in 0.. {
        let name = format!("cluster-{number}");
        let key = format!("polylock:{name}");
        let hold = take(&backend, &name).await;
        let slot = cluster.slot_of(&key).await.expect("an answer");
        let master = cluster.master_of(slot).await.expect("it has one");
        assert_eq!(cluster.call(master, &["EXISTS", &key]).await.expect("an answer"), "1");
        // Its wake-ups have a connection of their own.
        let waiter = Waiter::start(&other, &name, TTL);
        eventually("it waits", async || {
            let queue = format!("{{{key}}}:queue");
            let queue = cluster.call(master, &["ZRANGE", &queue, "0", "-1"]).await;
            queue.expect("an answer").contains(&waiter.id())
        })
        .await;
        assert!(release(&hold).await);
        assert!(release(&waiter.granted().await).await);
        masters.insert(master);
        if masters.len() == 3 {
            break;
        }
    }
}

#[testbed::test]
async fn a_certificate_that_is_wrong_for_a_cluster_is_final_and_said() {
    let (cluster, certificates) = cluster().await;
    for error in wrong(&cluster.url(), certificates).await {
        assert!(error.to_string().contains("Redis at 127.0.0.1:"), "{error}");
    }
}

/// The errors with another authority, with another authority's client certificate, and without any.
async fn wrong(url: &str, good: &Certificates) -> [Error; 3] {
    let stranger = Certificates::new().expect("made");
    let with = async |tls| fault(&RedisBackend::new(config(url).with_tls(tls)).expect("a good configuration")).await;
    let unknown = with(client_of(good).with_ca(stranger.ca())).await;
    assert_eq!(unknown.kind(), ErrorKind::Misconfigured, "{unknown}");
    let said = "was not issued by a trusted authority";
    assert!(unknown.to_string().contains(said), "{unknown}");
    let strange = with(client_of(&stranger).with_ca(good.ca())).await;
    assert_eq!(strange.kind(), ErrorKind::Denied, "{strange}");
    assert!(
        strange.to_string().contains("rejects our client certificate"),
        "{strange}"
    );
    let none = with(lock_redis::Tls::new().with_ca(good.ca())).await;
    assert_eq!(none.kind(), ErrorKind::Denied, "{none}");
    assert!(none.to_string().contains("wants a client certificate"), "{none}");
    [unknown, strange, none]
}
