//! The suite on a Redis whose replica has to acknowledge each grant, for a user who may do what is documented and no more.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_redis::{RedisBackend, RedisConfig};
use testbed::{Error, Redis, Replicated};
use tokio::sync::OnceCell;

use super::redis::{GRACE, PREFIX, like_keys, prefix, unhurried};
use super::servers::{Started, server_for, subject, url_by};

#[derive(Debug)]
pub(crate) struct ReplicasHarness {
    url: String,
    /// `None` in a child process.
    servers: Option<Replicated>,
}

impl Started for Replicated {
    fn external(&self) -> Option<&str> {
        None
    }
}

fn with_replicas(config: RedisConfig) -> RedisConfig {
    config.with_replicas(1)
}

async fn start() -> Result<Replicated, Error> {
    let config = with_replicas(RedisConfig::new("localhost", 6379).with_prefix(PREFIX));
    let user = ["app", "reset", "on", ">sesame"].map(String::from);
    let redis = Redis::new().setting("user", user.into_iter().chain(config.acl_rules()));
    redis.start_replicated(1).await
}

#[async_trait]
impl Harness for ReplicasHarness {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        static SHARED: OnceCell<Replicated> = OnceCell::const_new();
        let servers = server_for(server, &SHARED, start).await?;
        Ok(Self {
            url: format!("redis://app:sesame@{}", servers[0].address()),
            servers: Some(servers),
        })
    }

    fn attach(address: &str) -> Self {
        Self {
            url: address.to_owned(),
            servers: None,
        }
    }

    fn address(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn timing(&self) -> Timing {
        Timing::default().with_ttl(Duration::from_millis(2500))
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        subject(self.backend(namespace, route).await)
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let servers = self.servers.as_ref().expect("the parent takes away");
        let key = format!("{}{name}", prefix(namespace));
        let deleted = servers.call(0, &["DEL", &key]).await.expect("an answer");
        assert_eq!(deleted, "1", "the lock's key is not where it should be");
    }

    async fn restart(&self, data: Data) {
        let servers = self.servers.as_ref().expect("the parent restarts");
        let restarted = match data {
            Data::Kept => servers[0].restart().await,
            Data::Lost => servers[0].restart_without_data().await,
        };
        restarted.expect("restart the master");
        servers.follow(1, 0).await.expect("the replica follows it");
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        like_keys(namespace, name)
    }
}

#[async_trait]
impl BackendHarness for ReplicasHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let url = url_by(route, &self.url).await;
        let config = RedisConfig::from_url(&url)
            .expect("testbed's URL")
            .with_prefix(prefix(namespace))
            .with_grace(GRACE);
        let config = unhurried(with_replicas(config), route);
        Arc::new(RedisBackend::new(config).expect("a valid configuration"))
    }
}
