//! The suite on a Redis Cluster of three masters, for a user who may do what is documented and no more.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_redis::{RedisBackend, RedisConfig};
use testbed::{Cluster, Error, Redis};
use tokio::sync::OnceCell;

use super::redis::{GRACE, PREFIX, like_keys, prefix, unhurried};
use super::servers::{Started, hosts, server_for};

#[derive(Debug)]
pub(crate) struct ClusterHarness {
    url: String,
    /// `None` in a child process.
    cluster: Option<Cluster>,
}

impl Started for Cluster {
    fn external(&self) -> Option<&str> {
        None
    }
}

async fn start() -> Result<Cluster, Error> {
    let rules = RedisConfig::cluster([("localhost", 7000)])
        .with_prefix(PREFIX)
        .acl_rules();
    let user = ["app", "reset", "on", ">sesame"].map(String::from);
    let redis = Redis::new().setting("user", user.into_iter().chain(rules));
    redis.start_cluster(false).await
}

#[async_trait]
impl Harness for ClusterHarness {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        let cluster = server_for(server, &SHARED, start).await?;
        Ok(Self {
            url: cluster.url().replacen("://", "://app:sesame@", 1),
            cluster: Some(cluster),
        })
    }

    fn attach(address: &str) -> Self {
        Self {
            url: address.to_owned(),
            cluster: None,
        }
    }

    fn address(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn timing(&self) -> Timing {
        Timing::default().with_ttl(Duration::from_millis(2500))
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        super::servers::subject(self.backend(namespace, route).await)
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let cluster = self.cluster.as_ref().expect("the parent takes away");
        let key = format!("{}{name}", prefix(namespace));
        for node in 0..cluster.nodes().len() {
            match cluster.call(node, &["DEL", &key]).await {
                Ok(deleted) => return assert_eq!(deleted, "1", "the lock's key is not where it should be"),
                Err(error) => assert!(error.to_string().contains("MOVED"), "{error}"),
            }
        }
        panic!("nobody has the slot of {key}");
    }

    async fn restart(&self, data: Data) {
        let cluster = self.cluster.as_ref().expect("the parent restarts");
        let restarted = match data {
            Data::Kept => cluster.restart().await,
            Data::Lost => cluster.restart_without_data().await,
        };
        restarted.expect("restart the cluster");
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        like_keys(namespace, name)
    }
}

#[async_trait]
impl BackendHarness for ClusterHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let mut routes = HashMap::new();
        for host in hosts(&self.url).split(',') {
            let address: SocketAddr = host.parse().expect("testbed's URL");
            routes.insert(address.port(), route.resolve(address).await);
        }
        let config = RedisConfig::from_url(&self.url)
            .expect("testbed's URL")
            .with_prefix(prefix(namespace))
            .with_grace(GRACE)
            .with_node_addresses(move |_host, port| {
                let routed = routes[&port];
                (routed.ip().to_string(), routed.port())
            });
        Arc::new(RedisBackend::new(unhurried(config, route)).expect("a valid configuration"))
    }
}
