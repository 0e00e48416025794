//! The suite on a ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, LockerSubject, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Server, ZooKeeper};
use tokio::sync::OnceCell;

static SHARED: OnceCell<Server> = OnceCell::const_new();

/// What the sessions ask for: four ticks of testbed's server.
const SESSION: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct ZooKeeperHarness {
    url: String,
    /// `None` in a child process.
    server: Option<Server>,
}

#[async_trait]
impl Harness for ZooKeeperHarness {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        let server = super::servers::server_for(server, &SHARED, || ZooKeeper::new().tick(TICK).start()).await?;
        Ok(Self {
            url: server.url(),
            server: Some(server),
        })
    }

    fn attach(address: &str) -> Self {
        Self {
            url: address.to_owned(),
            server: None,
        }
    }

    fn address(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn timing(&self) -> Timing {
        Timing::default().with_ttl(SESSION).with_tick(TICK)
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(LockerSubject::new(self.backend(namespace, route).await))
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let address = super::servers::address_of(&self.url).to_string();
        let client = zookeeper_client::Client::connect(&address)
            .await
            .expect("connect to ZooKeeper");
        let directory = format!("/{namespace}/{name}");
        let places = client
            .list_children(&directory)
            .await
            .expect("list the lock's directory");
        let holder = places
            .iter()
            .min_by_key(|place| sequence(place))
            .expect("somebody holds it");
        client
            .delete(&format!("{directory}/{holder}"), None)
            .await
            .expect("delete the holder's node");
    }

    async fn restart(&self, data: Data) {
        let server = self.server.as_ref().expect("the parent restarts");
        let restarted = match data {
            Data::Kept => server.restart().await,
            Data::Lost => server.restart_without_data().await,
        };
        restarted.expect("restart ZooKeeper");
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        vec![
            format!("{name}/_c_00000000-0000-0000-0000-000000000000-lock-0000000000"),
            format!("{name}/lock-0000000000"),
            format!("/{namespace}/{name}"),
            format!("{namespace}/{name}"),
            format!("{name}%2Flock-0000000000"),
            format!("{name}/.."),
            format!("../{namespace}/{name}"),
            format!("./{name}"),
        ]
    }
}

/// The number that the server gave to a node.
fn sequence(place: &str) -> i32 {
    let digits = place.rsplit("lock-").next().expect("a split has a last part");
    digits
        .parse()
        .unwrap_or_else(|error| panic!("the sequence of {place:?}: {error}"))
}

#[async_trait]
impl BackendHarness for ZooKeeperHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let url = super::servers::url_by(route, &self.url).await;
        let config = ZooKeeperConfig::from_url(&url).expect("a valid URL");
        let config = config.with_root(format!("/{namespace}")).with_session_timeout(SESSION);
        Arc::new(ZooKeeperBackend::new(config).expect("a valid configuration"))
    }
}
