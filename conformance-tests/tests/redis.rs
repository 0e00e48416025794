//! The suite on Redis: the distribution's own, and those of other makers and versions.

mod servers;

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{
    BackendHarness, Data, Harness, LockerSubject, NoServer, Route, ServerUse, Subject, Timing, conformance,
};
use lock_core::backend::DistributedLock;
use lock_redis::{RedisBackend, RedisConfig};
use testbed::{Edition, Redis, Server};
use tokio::sync::OnceCell;

conformance!(redis, RedisHarness<Own>);
conformance!(redis8, RedisHarness<Redis8>);
conformance!(valkey9, RedisHarness<Valkey9>);

/// Which server.
trait Which: Debug + Send + Sync + 'static {
    const EDITION: Edition;

    /// The one that cases share.
    fn shared() -> &'static OnceCell<Server>;
}

/// One for each line: a type, and its edition.
macro_rules! which {
    ($($name:ident)+) => {
        $(
            #[derive(Debug)]
            struct $name;

            impl Which for $name {
                const EDITION: Edition = Edition::$name;

                fn shared() -> &'static OnceCell<Server> {
                    static SHARED: OnceCell<Server> = OnceCell::const_new();
                    &SHARED
                }
            }
        )+
    };
}

which!(Own Redis8 Valkey9);

#[derive(Debug)]
struct RedisHarness<W> {
    url: String,
    /// `None` in a child process.
    server: Option<Server>,
    which: PhantomData<W>,
}

fn prefix(namespace: &str) -> String {
    format!("{namespace}:")
}

#[async_trait]
impl<W: Which> Harness for RedisHarness<W> {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        let start = || Redis::new().edition(W::EDITION).start();
        let server = servers::server_for(server, W::shared(), start).await?;
        Ok(Self {
            url: server.url(),
            server: Some(server),
            which: PhantomData,
        })
    }

    fn attach(address: &str) -> Self {
        Self {
            url: address.to_owned(),
            server: None,
            which: PhantomData,
        }
    }

    fn address(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn timing(&self) -> Timing {
        Timing::default().with_ttl(Duration::from_millis(1500))
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(LockerSubject::new(self.backend(namespace, route).await))
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let client = lock_redis::redis::Client::open(self.url.as_str()).expect("testbed's URL");
        let mut connection = client
            .get_multiplexed_async_connection()
            .await
            .expect("connect to Redis");
        let deleted: u32 = lock_redis::redis::cmd("DEL")
            .arg(format!("{}{name}", prefix(namespace)))
            .query_async(&mut connection)
            .await
            .expect("delete the key");
        assert_eq!(deleted, 1, "the lock's key is not where it should be");
    }

    async fn restart(&self, data: Data) {
        let server = self.server.as_ref().expect("the parent restarts");
        let restarted = match data {
            Data::Kept => server.restart().await,
            Data::Lost => server.restart_without_data().await,
        };
        restarted.expect("restart Redis");
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        let plain = format!("{}{name}", prefix(namespace));
        [name, &plain]
            .into_iter()
            .flat_map(|name| {
                [
                    format!("{{{name}}}"),
                    format!("{{{name}}}:fence"),
                    format!("{{{name}}}:lock"),
                    format!("{{{name}}}:lock:fence"),
                    format!("{name}:fence"),
                    format!("{name}:lock"),
                    format!("{name}:lock:fence"),
                    format!("%7B{name}%7D"),
                    format!("%7B{name}%7D:fence"),
                ]
            })
            .chain([plain.clone()])
            .collect()
    }
}

#[async_trait]
impl<W: Which> BackendHarness for RedisHarness<W> {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let url = servers::url_by(route, &self.url).await;
        let config = RedisConfig::from_url(&url)
            .expect("testbed's URL")
            .with_prefix(prefix(namespace));
        Arc::new(RedisBackend::new(config).expect("a valid configuration"))
    }
}
