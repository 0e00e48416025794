//! A Redis Cluster of three masters. What breaks it has one of its own; all else shares one, with slots of its own.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::{join, join_all};
use lock_core::backend::{Attempt, DistributedLock, HolderId, Renewal};
use lock_core::{ErrorKind, Locker};
use lock_redis::{Fence, RedisBackend, RedisConfig};
use testbed::{Cluster, Redis};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::support::proxy::Proxy;
use crate::support::waiter::Waiter;
use crate::support::{
    AT_MOST, LONG, LONG_GRACE, SECOND, TTL, connect, eventually, granted, in_the_end, in_the_end_granted, name,
    refused, release, request, shown, stays_below, take, with_config,
};

mod delay;
mod durable;
mod failing;
mod listing;
mod moving;
mod passwords;
mod runtimes;
mod slots;

/// The connect timeout of a test in which a request gives up.
const GIVES_UP: Duration = RedisConfig::DEFAULT_CONNECT_TIMEOUT;

/// Sooner than a waiter asks that nobody wakes.
const REFRESH: Duration = Duration::from_secs(3);

/// A cluster, and a prefix of the test's own.
pub(crate) struct Fixture {
    pub(crate) cluster: Cluster,
    prefix: String,
}

impl Fixture {
    /// One that others use, too. Nobody harms it: if a node stands still for long, on a busy machine, its slots are waited for.
    async fn shared() -> Self {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        let start = || async { Redis::new().start_cluster(false).await.expect("a cluster") };
        Self::of(SHARED.get_or_init(start).await.clone())
    }

    pub(crate) async fn own(replicas: bool) -> Self {
        Self::of(Redis::new().start_cluster(replicas).await.expect("a cluster"))
    }

    fn of(cluster: Cluster) -> Self {
        let prefix = format!("test-{}:", HolderId::random());
        Self { cluster, prefix }
    }

    /// Nothing stands between that may hang, so it connects in the end. It waits so long for a hash slot, too.
    pub(crate) fn config(&self) -> RedisConfig {
        RedisConfig::from_url(&self.cluster.url())
            .expect("a good URL")
            .with_prefix(&self.prefix)
            .with_connect_timeout(AT_MOST)
    }

    pub(crate) fn backend(&self) -> RedisBackend {
        with_config(self.config())
    }

    /// A backend that reaches each node by a proxy.
    async fn proxied(&self) -> (Vec<Proxy>, RedisBackend) {
        let port = |address: &str| -> u16 {
            let (_, port) = address.rsplit_once(':').expect("a port");
            port.parse().expect("a number")
        };
        let (mut proxies, mut ports) = (Vec::new(), HashMap::new());
        for address in self.cluster.addresses() {
            let proxy = Proxy::start(address).await;
            ports.insert(port(address), port(&proxy.address));
            proxies.push(proxy);
        }
        let config = self.config();
        let config = config.with_node_addresses(move |host, port| (host.to_owned(), ports[&port]));
        (proxies, with_config(config))
    }

    pub(crate) async fn slot(&self, name: &str) -> u16 {
        let slot = self.call(0, &["CLUSTER", "KEYSLOT", &self.key(name)]).await;
        slot.parse().expect("a number")
    }

    pub(crate) async fn master_of(&self, name: &str) -> usize {
        let slot = self.slot(name).await;
        self.cluster.master_of(slot).await.expect("it has one")
    }

    /// A name whose locks this node has.
    pub(crate) async fn name_on(&self, node: usize) -> String {
        for number in 0.. {
            let name = format!("name-{number}");
            if self.master_of(&name).await == node {
                return name;
            }
        }
        unreachable!("each node has slots")
    }

    /// The same in another slot than this one.
    async fn name_on_beside(&self, node: usize, slot: u16) -> String {
        for number in 0.. {
            let name = format!("beside-{number}");
            if self.slot(&name).await != slot && self.master_of(&name).await == node {
                return name;
            }
        }
        unreachable!("each node has several slots")
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) async fn call(&self, node: usize, command: &[&str]) -> String {
        self.cluster.call(node, command).await.expect("an answer")
    }

    /// From now on no master of a cluster with replicas is replaced because a busy machine keeps it from answering.
    async fn bears_pauses(&self) {
        for node in 0..6 {
            self.call(node, &["CONFIG", "SET", "cluster-node-timeout", "60000"])
                .await;
        }
    }

    /// How often a node has answered with this error.
    async fn errors(&self, node: usize, code: &str) -> u64 {
        let stats = self.call(node, &["INFO", "errorstats"]).await;
        let prefix = format!("errorstat_{code}:count=");
        let counts = stats.lines().filter_map(|line| line.strip_prefix(&prefix));
        counts.map(|count| count.trim().parse::<u64>().expect("a number")).sum()
    }

    /// A waiter that has its queue entry.
    pub(crate) async fn queued(&self, backend: &RedisBackend, of: &str, ttl: Duration) -> Waiter {
        let waiter = Waiter::start(backend, of, ttl);
        let (node, key) = (self.master_of(of).await, format!("{{{}}}:queue", self.key(of)));
        eventually("it has its entry", async || {
            self.call(node, &["ZRANGE", &key, "0", "-1"])
                .await
                .contains(&waiter.id())
        })
        .await;
        waiter
    }
}

#[testbed::test]
async fn each_master_has_the_locks_of_its_slots() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    backend.connect().await.expect("all serve");
    for node in 0..3 {
        let of = fixture.name_on(node).await;
        let hold = take(&backend, &of).await;
        assert_eq!(fixture.call(node, &["EXISTS", &fixture.key(&of)]).await, "1");
        assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Renewed(_)));
        assert_eq!(backend.status(&name(&of)).await.expect("an answer").holders.len(), 1);
        let other = fixture.backend();
        let busy = other.acquire(&request(&of, TTL).0).await.expect("an answer");
        assert!(matches!(busy, Attempt::Busy(_)), "{busy:?}");
        assert!(release(&hold).await);
        assert_eq!(fixture.call(node, &["EXISTS", &fixture.key(&of)]).await, "0");
    }
}

/// With channels that all nodes know, the scripts see only the subscribers at their own node: a waiter that is connected to
/// another one counted as dead.
#[testbed::test]
async fn a_waiter_is_alive_wherever_else_it_is_connected() {
    let fixture = Fixture::shared().await;
    for node in 0..3 {
        let of = fixture.name_on(node).await;
        stays_below(REFRESH, "the waiter was not woken", async || {
            let first = take(&fixture.backend(), &of).await;
            // One node alone: it says where the others are.
            let seed = format!("redis+cluster://{}", fixture.cluster.addresses()[(node + 1) % 3]);
            let config = RedisConfig::from_url(&seed).expect("a good URL");
            let backend = with_config(config.with_prefix(fixture.key("")));
            let waiter = fixture.queued(&backend, &of, TTL).await;
            let released = Instant::now();
            assert!(release(&first).await);
            let hold = waiter.granted().await;
            let waited = released.elapsed();
            assert!(release(&hold).await);
            waited
        })
        .await;
    }
}

#[testbed::test]
async fn waiters_are_granted_in_their_order() {
    let fixture = Fixture::shared().await;
    let patient = || with_config(fixture.config().with_grace(LONG_GRACE));
    let first = take(&patient(), "a").await;
    let backends = [patient(), patient(), patient()];
    let mut waiters = Vec::new();
    for backend in &backends {
        waiters.push(fixture.queued(backend, "a", TTL).await);
    }
    assert!(release(&first).await);
    let mut waiters = waiters.into_iter();
    while let Some(waiter) = waiters.next() {
        let hold = waiter.granted().await;
        assert!(waiters.as_slice().iter().all(Waiter::is_waiting));
        assert!(release(&hold).await);
    }
}

/// The server rejects a script whose keys are in several slots.
#[testbed::test]
async fn a_fence_lies_in_the_slot_of_its_resource() {
    let fixture = Fixture::shared().await;
    for resource in ["stock", "{shop}:stock", "a{b}c"] {
        let resource = format!("{}{resource}", fixture.key(""));
        let slot = fixture.cluster.slot_of(&resource).await.expect("an answer");
        let master = fixture.cluster.master_of(slot).await.expect("it has one");
        let redis = connect(&format!("redis://{}", fixture.cluster.addresses()[master])).await;
        let hold = take(&fixture.backend(), &resource).await;
        let fence = Fence::new(redis, &*resource).expect("it can have one");
        let fenced = fence.enter(hold.token()).await.expect("it is the newest");
        fenced.set(7).await.expect("it is the newest");
        assert_eq!(fenced.get::<u32>().await.expect("it is the newest"), 7);
        assert!(release(&hold).await);
    }
}

#[testbed::test]
async fn a_locker_waits_and_passes_on() {
    let fixture = Fixture::shared().await;
    let locker = Locker::new(fixture.backend());
    let work = (0..4).map(|_| {
        let locker = locker.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                let guard = locker.lock("a").acquire().await.expect("a grant");
                guard.release().await.expect("held until then");
            }
        })
    });
    for work in work.collect::<Vec<_>>() {
        work.await.expect("no panic");
    }
}

#[testbed::test]
async fn what_is_no_cluster_is_a_typed_error() {
    let fixture = Fixture::shared().await;
    let server = Redis::new().start().await.expect("a Redis");
    if !server.is_external() {
        let url = format!("redis+cluster://{}", server.address());
        let error = refused(&RedisBackend::from_url(&url).expect("a good URL"), "a").await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(error.to_string().contains("is no node of a Redis Cluster"), "{error}");
    }

    let url = format!("redis://{}", fixture.cluster.addresses()[0]);
    let error = refused(&RedisBackend::from_url(&url).expect("a good URL"), "a").await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("redis+cluster://"), "{error}");

    for (url, what) in [
        ("redis+cluster://a:1,b:2/1", "database"),
        ("redis+cluster://a:1,", "host"),
        ("redis+cluster://a:1,b:99999", "host"),
        ("unix+cluster://a", "begins with"),
    ] {
        let error = RedisBackend::from_url(url).expect_err("a bad URL");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[testbed::test]
async fn a_cluster_of_which_no_node_is_reached_is_unavailable() {
    // Nobody listens there.
    let nodes = [("127.0.0.1", 1), ("127.0.0.1", 2)];
    let config = RedisConfig::cluster(nodes).with_connect_timeout(SECOND / 2);
    let backend = with_config(config);
    let start = Instant::now();
    let error = refused(&backend, "a").await;
    assert!(start.elapsed() < AT_MOST);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_not_executed(), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("the Redis Cluster at 127.0.0.1:1,127.0.0.1:2"), "{said}");
    backend
        .abandon(&request("a", TTL).0)
        .await
        .expect("nothing was ever sent");
    let error = in_the_end(async || match backend.connect().await {
        Err(error) => Ok(error),
        Ok(()) => panic!("there is nobody"),
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

/// So that a request that is sent away by one node is known to have gone to another.
#[testbed::test]
async fn what_an_old_map_sends_astray_is_sent_on() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let of = fixture.name_on(1).await;
    let slot = fixture.slot(&of).await;
    let (first, _control) = request(&of, TTL);
    let hold = granted(&backend, &first).await;
    assert!(release(&hold).await);
    fixture.cluster.move_slot(slot, 1, 0).await.expect("it moves");
    let before = fixture.errors(1, "MOVED").await;
    let hold = take(&backend, &of).await;
    // Other tests are sent on by this node, too.
    assert!(fixture.errors(1, "MOVED").await > before);
    assert!(release(&hold).await);
    fixture.cluster.move_slot(slot, 0, 1).await.expect("it moves back");
}

/// Nobody has to wait for another name.
#[testbed::test]
async fn a_subscription_ends_some_time_after_its_last_use() {
    let fixture = Fixture::shared().await;
    let (holder, backend) = (fixture.backend(), fixture.backend());
    let node = fixture.master_of("a").await;
    let is_subscribed = async || {
        let channels = fixture.call(node, &["PUBSUB", "SHARDCHANNELS"]).await;
        channels.contains(&fixture.prefix)
    };
    for _ in 0..2 {
        let hold = take(&holder, "a").await;
        let waiter = fixture.queued(&backend, "a", TTL).await;
        assert!(is_subscribed().await, "it is woken there");
        assert!(release(&hold).await);
        assert!(release(&waiter.granted().await).await);
        eventually("the subscription to end", async || !is_subscribed().await).await;
    }
}
