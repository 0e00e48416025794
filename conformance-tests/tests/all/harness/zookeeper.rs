//! The suite on a ZooKeeper: open to everybody, for a user who may do what is documented and no more, and over TLS.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, LockerSubject, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::backend::DistributedLock;
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Certificates, Server, ZooKeeper};
use tokio::sync::OnceCell;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

/// What the sessions ask for: four ticks of testbed's server.
const SESSION: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(500);

/// Which server, and who one is to it.
pub(crate) trait Which: Debug + Send + Sync + 'static {
    fn server() -> ZooKeeper {
        ZooKeeper::new().tick(TICK)
    }

    /// The one that cases share.
    fn shared() -> &'static OnceCell<Server>;

    /// Its URL for clients.
    fn url(server: &Server) -> Result<String, NoServer> {
        Ok(server.url())
    }

    /// Whether somebody else makes the root paths.
    const HAS_ADMINISTRATOR: bool = false;
}

macro_rules! shared {
    () => {
        fn shared() -> &'static OnceCell<Server> {
            static SHARED: OnceCell<Server> = OnceCell::const_new();
            &SHARED
        }
    };
}

/// Open to everybody.
#[derive(Debug)]
pub(crate) struct OwnZooKeeper;

impl Which for OwnZooKeeper {
    shared!();
}

/// A user who may read the root path and create in it.
#[derive(Debug)]
pub(crate) struct LeastAcl;

impl Which for LeastAcl {
    shared!();

    fn url(server: &Server) -> Result<String, NoServer> {
        Ok(format!("zookeeper://{USER}@{}", server.address()))
    }

    const HAS_ADMINISTRATOR: bool = true;
}

/// A user with a certificate, both of which are identities.
#[derive(Debug)]
pub(crate) struct OverTls;

impl Which for OverTls {
    fn server() -> ZooKeeper {
        // Gone with the server.
        let certificates = Certificates::new().expect("certificates");
        let zookeeper = ZooKeeper::new().tick(TICK);
        zookeeper.tls(&certificates).expect("a free port")
    }

    shared!();

    fn url(server: &Server) -> Result<String, NoServer> {
        match server.is_external() {
            false => Ok(server.url().replacen("://", &format!("://{USER}@"), 1)),
            true => Err(NoServer::Offline(format!(
                "nobody knows whether the server at {} has TLS",
                server.address()
            ))),
        }
    }
}

/// A user and the password, and how the scheme `digest` writes them in an ACL.
const USER: &str = "app:sesame";
const USER_IN_ACL: &str = "app:+QUexaXHpYDk3DhLi0Ks1Ds9OMw=";

#[derive(Debug)]
pub(crate) struct ZooKeeperHarness<W> {
    url: String,
    /// `None` in a child process.
    server: Option<Server>,
    which: PhantomData<W>,
}

impl<W: Which> ZooKeeperHarness<W> {
    /// Another client, who may access the same nodes.
    async fn observer(&self) -> Client {
        let plain = self.server.as_ref().and_then(Server::plain_address);
        let address = plain.unwrap_or_else(|| super::servers::address_of(&self.url).to_string());
        let connector = Client::connector().with_auth("digest", USER.as_bytes());
        connector.connect(&address).await.expect("connect to ZooKeeper")
    }

    /// Makes the root path as an administrator.
    async fn make_root(&self, root: &str) {
        let address = super::servers::address_of(&self.url).to_string();
        let connector = Client::connector().with_auth("digest", b"administrator:x");
        let administrator = connector.connect(&address).await.expect("connect to ZooKeeper");
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
        Timing::default().with_ttl(SESSION).with_tick(TICK)
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(LockerSubject::new(self.backend(namespace, route).await))
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let client = self.observer().await;
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
impl<W: Which> BackendHarness for ZooKeeperHarness<W> {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        if W::HAS_ADMINISTRATOR {
            self.make_root(&format!("/{namespace}")).await;
        }
        let url = super::servers::url_by(route, &self.url).await;
        let config = ZooKeeperConfig::from_url(&url).expect("a valid URL");
        let config = config.with_root(format!("/{namespace}")).with_session_timeout(SESSION);
        Arc::new(ZooKeeperBackend::new(config).expect("a valid configuration"))
    }
}
