//! The suite on a Redis that Sentinels name.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_redis::{RedisBackend, RedisConfig};
use testbed::{Redis, Watched};
use tokio::sync::OnceCell;

use super::redis::{GRACE, like_keys, prefix, unhurried};
use super::servers::{Started, server_for};

#[derive(Debug)]
pub(crate) struct SentinelHarness {
    url: String,
    /// The master's, as the Sentinels say it.
    master: String,
    /// `None` in a child process.
    watched: Option<Watched>,
}

impl Started for Watched {
    fn external(&self) -> Option<&str> {
        None
    }
}

#[async_trait]
impl Harness for SentinelHarness {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        static SHARED: OnceCell<Watched> = OnceCell::const_new();
        // Without replicas: no case may see a failover because the machine was busy.
        let watched = server_for(server, &SHARED, || Redis::new().start_watched(0)).await?;
        Ok(Self {
            url: watched.url(),
            master: watched.redis()[0].address().to_owned(),
            watched: Some(watched),
        })
    }

    fn attach(address: &str) -> Self {
        let (url, master) = address.split_once(' ').expect("what `address` returns");
        Self {
            url: url.to_owned(),
            master: master.to_owned(),
            watched: None,
        }
    }

    fn address(&self) -> Option<String> {
        Some(format!("{} {}", self.url, self.master))
    }

    fn timing(&self) -> Timing {
        Timing::default().with_ttl(Duration::from_millis(2500))
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        super::servers::subject(self.backend(namespace, route).await)
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let watched = self.watched.as_ref().expect("the parent takes away");
        let key = format!("{}{name}", prefix(namespace));
        let deleted = watched.redis().call(0, &["DEL", &key]).await;
        assert_eq!(
            deleted.expect("an answer"),
            "1",
            "the lock's key is not where it should be"
        );
    }

    async fn restart(&self, data: Data) {
        let master = &self.watched.as_ref().expect("the parent restarts").redis()[0];
        let restarted = match data {
            Data::Kept => master.restart().await,
            Data::Lost => master.restart_without_data().await,
        };
        restarted.expect("restart the master");
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        like_keys(namespace, name)
    }
}

#[async_trait]
impl BackendHarness for SentinelHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        // Faults are those of the way to the master.
        let routed = route.resolve(self.master.parse().expect("a numeric address")).await;
        let config = RedisConfig::from_url(&self.url)
            .expect("testbed's URL")
            .with_prefix(prefix(namespace))
            .with_grace(GRACE)
            .with_node_addresses(move |_host, _port| (routed.ip().to_string(), routed.port()));
        Arc::new(RedisBackend::new(unhurried(config, route)).expect("a valid configuration"))
    }
}
