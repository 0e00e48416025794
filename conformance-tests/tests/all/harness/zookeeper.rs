//! The suite on ZooKeeper: the distribution's own, a newer one, and an ensemble; for a user who may do what is documented and no
//! more, and over TLS.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Certificates, Edition, Ensemble, Error, Server, ZooKeeper};
use tokio::sync::OnceCell;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use super::quorum::Node;
use super::servers::{CONNECT, Started};

/// Which servers, and who one is to them.
#[async_trait]
pub(crate) trait Which: Debug + Send + Sync + 'static {
    /// The longest round trip over which a hold is kept. An ensemble keeps it up to 25 percent, where no time is left for a
    /// busy machine.
    const ROUND_TRIP_PERCENT: u32 = 40;

    /// The session timeout.
    const SESSION: Duration = Duration::from_secs(3);

    /// The time that a request may take, if the machine is busy.
    const UNHURRIED: Duration = super::servers::UNHURRIED;

    /// Whether an administrator makes the root paths.
    const HAS_ADMINISTRATOR: bool = false;

    async fn start() -> Result<Servers, Error> {
        ZooKeeper::new().tick(TICK).start().await.map(Servers::One)
    }

    /// Those that cases share.
    fn shared() -> &'static OnceCell<Servers>;

    /// Their URL for clients.
    fn url(servers: &Servers) -> Result<String, NoServer> {
        Ok(servers.url())
    }
}

macro_rules! shared {
    () => {
        fn shared() -> &'static OnceCell<Servers> {
            static SHARED: OnceCell<Servers> = OnceCell::const_new();
            &SHARED
        }
    };
}

/// Open to everybody.
#[derive(Debug)]
pub(crate) struct Standalone;

#[async_trait]
impl Which for Standalone {
    shared!();
}

#[derive(Debug)]
pub(crate) struct Standalone39;

#[async_trait]
impl Which for Standalone39 {
    async fn start() -> Result<Servers, Error> {
        let newer = ZooKeeper::new().edition(Edition::ZooKeeper39);
        newer.tick(TICK).start().await.map(Servers::One)
    }

    shared!();
}

#[derive(Debug)]
pub(crate) struct Three;

#[async_trait]
impl Which for Three {
    const ROUND_TRIP_PERCENT: u32 = 20;
    /// Three servers wait for each other, and stand still for longer on a busy machine.
    const SESSION: Duration = Duration::from_secs(6);

    async fn start() -> Result<Servers, Error> {
        let ensemble = ZooKeeper::new().tick(TICK).start_ensemble();
        ensemble.await.map(Servers::Ensemble)
    }

    shared!();
}

/// A user who may read the root path and create in it.
#[derive(Debug)]
pub(crate) struct LeastAcl;

#[async_trait]
impl Which for LeastAcl {
    const HAS_ADMINISTRATOR: bool = true;

    shared!();

    fn url(servers: &Servers) -> Result<String, NoServer> {
        Ok(format!("zookeeper://{USER}@{}", super::servers::hosts(&servers.url())))
    }
}

/// A user with a certificate, both of which are identities.
#[derive(Debug)]
pub(crate) struct OverTls;

#[async_trait]
impl Which for OverTls {
    /// Less of a longer session.
    const ROUND_TRIP_PERCENT: u32 = 20;
    /// Each connection begins with a handshake, which few threads of the server compute for all cases. On a busy machine they wait for
    /// each other, and so do the heartbeats of those that are connected.
    const SESSION: Duration = Duration::from_secs(10);
    const UNHURRIED: Duration = Duration::from_secs(30);

    async fn start() -> Result<Servers, Error> {
        // Gone with the server.
        let certificates = Certificates::new()?;
        let server = ZooKeeper::new().tick(TICK).tls(&certificates)?.start().await?;
        if !server.is_external() {
            shake_hands(&server.url()).await;
        }
        Ok(Servers::One(server))
    }

    shared!();

    fn url(servers: &Servers) -> Result<String, NoServer> {
        match servers.external() {
            None => Ok(servers.url().replacen("://", &format!("://{USER}@"), 1)),
            Some(address) => Err(NoServer::Offline(format!(
                "nobody knows whether the server at {address} has TLS"
            ))),
        }
    }
}

/// A user and the password, and how the scheme `digest` writes them in an ACL.
const USER: &str = "app:sesame";
const USER_IN_ACL: &str = "app:+QUexaXHpYDk3DhLi0Ks1Ds9OMw=";

/// The servers to which clients connect.
#[derive(Clone, Debug)]
pub(crate) enum Servers {
    One(Server),
    Ensemble(Ensemble),
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Ensemble(ensemble) => ensemble.url(),
        }
    }
}

impl Started for Servers {
    fn external(&self) -> Option<&str> {
        match self {
            Self::One(server) => server.external(),
            Self::Ensemble(_) => None,
        }
    }
}

/// The first handshake: the server loads its TLS meanwhile, which takes longer on a busy machine than a client waits.
async fn shake_hands(url: &str) {
    let config = ZooKeeperConfig::from_url(url).expect("testbed's URL");
    let client = ZooKeeperBackend::new(config.with_connect_timeout(Duration::from_secs(50)));
    let connected = client.expect("testbed's URL").connect().await;
    connected.expect("connect to ZooKeeper over TLS");
}

const TICK: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct ZooKeeperHarness<W> {
    url: String,
    /// `None` in a child process.
    servers: Option<Servers>,
    which: PhantomData<W>,
}

impl<W: Which> ZooKeeperHarness<W> {
    /// Another client, who may access the same nodes.
    async fn observer(&self) -> Client {
        let plain = match &self.servers {
            Some(Servers::One(server)) => server.plain_address(),
            _ => None,
        };
        let hosts = plain.unwrap_or_else(|| super::servers::hosts(&self.url).to_owned());
        let connector = Client::connector().with_auth("digest", USER.as_bytes());
        connector.connect(&hosts).await.expect("connect to ZooKeeper")
    }

    /// Makes the root path as an administrator.
    async fn make_root(&self, root: &str) {
        let hosts = super::servers::hosts(&self.url);
        let connector = Client::connector().with_auth("digest", b"administrator:x");
        let administrator = connector.connect(hosts).await.expect("connect to ZooKeeper");
        let user = AuthId::new("digest", USER_IN_ACL);
        let acls = [
            Acl::new(Permission::READ, user.clone()),
            Acl::new(Permission::CREATE, user),
            Acl::new(Permission::ALL, AuthId::new("auth", "")),
        ];
        let options = CreateMode::Persistent.with_acls(Acls::new(&acls));
        match administrator.create(root, b"", &options).await {
            Ok(_) | Err(zookeeper_client::Error::NodeExists) => {}
            Err(error) => panic!("cannot make {root}: {error}"),
        }
    }
}

#[async_trait]
impl<W: Which> Harness for ZooKeeperHarness<W> {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        let servers = super::servers::server_for(server, W::shared(), W::start).await?;
        Ok(Self {
            url: W::url(&servers)?,
            servers: Some(servers),
            which: PhantomData,
        })
    }

    fn attach(address: &str) -> Self {
        Self {
            url: address.to_owned(),
            servers: None,
            which: PhantomData,
        }
    }

    fn address(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn timing(&self) -> Timing {
        Timing::default()
            .with_ttl(W::SESSION)
            .with_tick(TICK)
            .with_patience(2 * W::UNHURRIED)
            .with_round_trip_percent(W::ROUND_TRIP_PERCENT)
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        super::servers::subject_within(W::UNHURRIED, self.backend(namespace, route).await)
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        assert!(self.end_hold(namespace, name).await, "nobody holds {name:?}");
    }

    async fn restart(&self, data: Data) {
        let servers = self.servers.as_ref().expect("the parent restarts");
        let restarted = match (servers, data) {
            (Servers::One(server), Data::Kept) => server.restart().await,
            (Servers::One(server), Data::Lost) => server.restart_without_data().await,
            (Servers::Ensemble(ensemble), Data::Kept) => ensemble.restart().await,
            (Servers::Ensemble(ensemble), Data::Lost) => ensemble.restart_without_data().await,
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
impl<W: Which> BackendHarness for ZooKeeperHarness<W> {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        if W::HAS_ADMINISTRATOR {
            self.make_root(&format!("/{namespace}")).await;
        }
        let url = super::servers::url_by(route, &self.url).await;
        let config = ZooKeeperConfig::from_url(&url).expect("a valid URL");
        let config = config
            .with_root(format!("/{namespace}"))
            .with_session_timeout(W::SESSION);
        let config = match route {
            Route::Direct => config.with_connect_timeout(W::UNHURRIED),
            _ => config.with_connect_timeout(CONNECT),
        };
        Arc::new(ZooKeeperBackend::new(config).expect("a valid configuration"))
    }
}

#[async_trait]
impl<W: Which> Node for ZooKeeperHarness<W> {
    async fn end_hold(&self, namespace: &str, name: &str) -> bool {
        let client = self.observer().await;
        let directory = format!("/{namespace}/{name}");
        // A follower may be late.
        client.sync(&directory).await.expect("ask the leader");
        let places = match client.list_children(&directory).await {
            // The server deletes a directory without children once a minute.
            Err(zookeeper_client::Error::NoNode) => return false,
            places => places.expect("list the lock's directory"),
        };
        let Some(holder) = places.iter().min_by_key(|place| sequence(place)) else {
            return false;
        };
        match client.delete(&format!("{directory}/{holder}"), None).await {
            Ok(()) => true,
            Err(zookeeper_client::Error::NoNode) => false,
            Err(error) => panic!("cannot delete the holder's node: {error}"),
        }
    }
}
