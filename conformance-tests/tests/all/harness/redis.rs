//! The suite on Redis: the distribution's own, also for a user who may do what is documented and no more, and those of
//! other makers and versions.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_redis::{RedisBackend, RedisConfig};
use testbed::{Certificates, Edition, Redis, Server};
use tokio::sync::OnceCell;

use super::quorum::Node;
use super::servers::UNHURRIED;

/// Which server, and who one is to it.
pub(crate) trait Which: Debug + Send + Sync + 'static {
    fn server() -> Redis;

    /// The one that cases share.
    fn shared() -> &'static OnceCell<Server>;

    /// Its URL for clients.
    fn url(server: &Server) -> Result<String, NoServer> {
        Ok(server.url())
    }
}

macro_rules! shared {
    () => {
        fn shared() -> &'static OnceCell<Server> {
            static SHARED: OnceCell<Server> = OnceCell::const_new();
            &SHARED
        }
    };
}

#[derive(Debug)]
pub(crate) struct Own;

impl Which for Own {
    fn server() -> Redis {
        Redis::new()
    }

    shared!();
}

/// Another one, beside [`Own`].
#[derive(Debug)]
pub(crate) struct Second;

impl Which for Second {
    fn server() -> Redis {
        Redis::new()
    }

    shared!();
}

/// And a third.
#[derive(Debug)]
pub(crate) struct Third;

impl Which for Third {
    fn server() -> Redis {
        Redis::new()
    }

    shared!();
}

/// With a certificate of the client's.
#[derive(Debug)]
pub(crate) struct OverTls;

impl Which for OverTls {
    fn server() -> Redis {
        // Gone with the server.
        let certificates = Certificates::new().expect("certificates");
        Redis::new().tls(&certificates).expect("a free port")
    }

    shared!();

    fn url(server: &Server) -> Result<String, NoServer> {
        match server.is_external() {
            false => Ok(server.url()),
            true => Err(NoServer::Offline(format!(
                "nobody knows whether the server at {} has TLS",
                server.address()
            ))),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Redis8;

impl Which for Redis8 {
    fn server() -> Redis {
        Redis::new().edition(Edition::Redis8)
    }

    shared!();
}

#[derive(Debug)]
pub(crate) struct Valkey9;

impl Which for Valkey9 {
    fn server() -> Redis {
        Redis::new().edition(Edition::Valkey9)
    }

    shared!();
}

#[derive(Debug)]
pub(crate) struct LeastPrivilege;

impl Which for LeastPrivilege {
    fn server() -> Redis {
        let rules = RedisConfig::new("localhost", 6379).with_prefix(PREFIX).acl_rules();
        let user = ["app", "reset", "on", ">sesame"].map(String::from);
        Redis::new().setting("user", user.into_iter().chain(rules))
    }

    shared!();

    fn url(server: &Server) -> Result<String, NoServer> {
        if server.is_external() {
            let why = format!("the server at {} is not ours to add a user to", server.address());
            return Err(NoServer::Offline(why));
        }
        Ok(format!("redis://app:sesame@{}", server.address()))
    }
}

/// The prefix of all names.
pub(super) const PREFIX: &str = "suite:";

/// Longer than a busy machine keeps a waiter from confirming: the order of the queue is to be seen.
pub(super) const GRACE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct RedisHarness<W> {
    url: String,
    /// `None` in a child process.
    server: Option<Server>,
    which: PhantomData<W>,
}

/// The same, but a client without a link waits longer for an answer.
pub(super) fn unhurried(config: RedisConfig, route: &Route) -> RedisConfig {
    match route {
        Route::Direct => config.with_connect_timeout(UNHURRIED).with_response_timeout(UNHURRIED),
        _ => config,
    }
}

pub(super) fn prefix(namespace: &str) -> String {
    format!("{PREFIX}{namespace}:")
}

/// Names that look like keys of a lock.
pub(super) fn like_keys(namespace: &str, name: &str) -> Vec<String> {
    const PURPOSES: [&str; 6] = ["", ":fence", ":queue", ":lock", ":lock:fence", ":lock:queue"];
    let plain = format!("{}{name}", prefix(namespace));
    let like_keys = [name, &plain].into_iter().flat_map(|name| {
        let forms = [name.to_owned(), format!("{{{name}}}"), format!("%7B{name}%7D")];
        forms
            .into_iter()
            .flat_map(|form| PURPOSES.map(|purpose| format!("{form}{purpose}")))
    });
    like_keys.filter(|like| like != name).collect()
}

#[async_trait]
impl<W: Which> Harness for RedisHarness<W> {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        let server = super::servers::server_for(server, W::shared(), || W::server().start()).await?;
        Ok(Self {
            url: W::url(&server)?,
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
        Timing::default().with_ttl(Duration::from_millis(2500))
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        super::servers::subject(self.backend(namespace, route).await)
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let is_ended = self.end_hold(namespace, name).await;
        assert!(is_ended, "the lock's key is not where it should be");
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
        like_keys(namespace, name)
    }
}

#[async_trait]
impl<W: Which> BackendHarness for RedisHarness<W> {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let url = super::servers::url_by(route, &self.url).await;
        let config = RedisConfig::from_url(&url)
            .expect("testbed's URL")
            .with_prefix(prefix(namespace))
            .with_grace(GRACE);
        Arc::new(RedisBackend::new(unhurried(config, route)).expect("a valid configuration"))
    }
}

#[async_trait]
impl<W: Which> Node for RedisHarness<W> {
    async fn end_hold(&self, namespace: &str, name: &str) -> bool {
        // The driver has no TLS.
        let plain = self.server.as_ref().and_then(Server::plain_address);
        let url = plain.map_or_else(|| self.url.clone(), |address| format!("redis://{address}"));
        let client = lock_redis::redis::Client::open(url).expect("testbed's URL");
        // The driver's defaults are a second to connect and half a second for an answer.
        let patience = Some(Duration::from_secs(60));
        let patient = lock_redis::redis::AsyncConnectionConfig::new()
            .set_connection_timeout(patience)
            .set_response_timeout(patience);
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&patient)
            .await
            .expect("connect to Redis");
        let deleted: u32 = lock_redis::redis::cmd("DEL")
            .arg(format!("{}{name}", prefix(namespace)))
            .query_async(&mut connection)
            .await
            .expect("delete the key");
        deleted == 1
    }
}
