//! The servers that keep the locks, as everything above them sees them: which of them has a lock, and how a script runs there.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{Change, HolderId, Lease};
use lock_core::{Error, Guarantee, Result, Verdict};
use lock_kit::claims::InFlight;
use tokio::time::{Instant, sleep_until};

use crate::config::RedisConfig;
use crate::connection::inbox::{Inbox, Waiter};
use crate::connection::{Connection, LeaseRegistration, Reply, Room, Session};
use crate::error::Failure;
use crate::names::Keys;
use crate::probe::Finding;
use crate::protocol::arguments::{EndArguments, texts};
use crate::protocol::{Ask, END, Script};
use cluster::{Cluster, Node};

mod cluster;

/// The servers of one backend.
#[derive(Debug)]
pub(crate) struct Servers {
    topology: Topology,
    inbox: Arc<Inbox>,
}

#[derive(Debug)]
enum Topology {
    One(Arc<Connection>),
    Cluster(Cluster),
}

/// The server that has a lock, and the connection over which its requests go.
#[derive(Clone)]
pub(crate) struct Route {
    connection: Arc<Connection>,
    session: Session,
    /// The lock's hash slot, in a cluster.
    slot: u16,
    /// Of a cluster.
    node: Option<Arc<Node>>,
}

/// A server whose keys are scanned.
pub(crate) struct Scanned {
    /// Empty if there is one server.
    pub(crate) address: String,
    pub(crate) connection: Arc<Connection>,
}

impl Servers {
    /// Does no I/O.
    pub(crate) fn new(config: &RedisConfig) -> Result<Self> {
        let inbox = Arc::new(Inbox::new(config.prefix()));
        let topology = match config.nodes() {
            Some(nodes) => Topology::Cluster(Cluster::new(config, nodes, inbox.clone())),
            None => Topology::One(Arc::new(Connection::new(config, inbox.clone())?)),
        };
        Ok(Self { topology, inbox })
    }

    /// The server of a lock, as soon as it can be asked, but not later than the connect timeout or `given_up`.
    ///
    /// # Errors
    /// The reason why it cannot be asked, as not executed.
    pub(crate) async fn route(&self, keys: &Keys, given_up: impl Future<Output = ()>) -> Result<Route> {
        match &self.topology {
            Topology::One(connection) => Ok(Route {
                session: connection.session(given_up).await?,
                connection: connection.clone(),
                slot: 0,
                node: None,
            }),
            // Boxed, as below, so that the requests of a single server do not carry the room for it.
            Topology::Cluster(cluster) => Box::pin(cluster.route(keys.slot(), given_up)).await,
        }
    }

    /// Runs a script on some keys of the route's lock. Afterwards the route is the one that it took.
    ///
    /// # Cancel safety
    /// If dropped, the server may still execute the script.
    pub(crate) async fn run(
        &self,
        on: &mut Route,
        script: &'static Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Reply {
        match &self.topology {
            Topology::One(connection) => connection.run(&on.session, script, keys, arguments).await,
            Topology::Cluster(cluster) => Box::pin(cluster.run(on, script, keys, arguments)).await,
        }
    }

    /// Asks for a grant. A request that `waits` is in the queue after that, and this process hears when it is woken.
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run). `in_flight` records the connection.
    pub(crate) async fn ask(
        &self,
        on: &mut Route,
        keys: &Keys,
        asking: &Ask<'_>,
        in_flight: &mut InFlight<'_, u64>,
        room: &mut Room,
    ) -> Reply {
        match &self.topology {
            Topology::One(connection) => {
                let (script, arguments) = (asking.script(), asking.arguments.all());
                connection
                    .ask(&on.session, script, &keys.of_grant(), &texts(&arguments), room)
                    .await
            }
            Topology::Cluster(cluster) => Box::pin(cluster.ask(on, keys, asking, in_flight, room)).await,
        }
    }

    /// Ends what a holder id has.
    ///
    /// # Cancel safety
    /// That of [`run`](Self::run).
    pub(crate) async fn end(&self, on: &mut Route, keys: &Keys, arguments: &EndArguments<'_>) -> Reply {
        let arguments = arguments.all();
        let arguments = texts(&arguments);
        match &self.topology {
            Topology::One(_) => self.run(on, &END, &keys.of_end(), &arguments).await,
            Topology::Cluster(_) => self.run(on, &END, &keys.all(), &arguments).await,
        }
    }

    /// Returns a future that completes at the next change of a lock's key on the route's server.
    ///
    /// # Errors
    /// If the connection ended.
    pub(crate) async fn follow(&self, on: &Route, keys: &Keys) -> Result<Change> {
        let [lock, ..] = keys.all();
        let following = on.connection.follow(&on.session, lock).await;
        following.map_err(|failure| on.lock_error(failure))
    }

    /// Waits until enough replicas have all that the route's server answered before, for a hold of this TTL that it has. Returns
    /// at once if none is needed.
    ///
    /// # Errors
    /// Unavailable, if too few have it in time, or the connection ended; or the server's error.
    pub(crate) async fn acknowledge(&self, on: &Route, keys: &Keys, ttl: Duration) -> Result<()> {
        on.connection.acknowledge(&on.session, keys, ttl).await
    }

    /// Makes sure that the route's server has not been promoted since the connection was made, where a grant depends on that.
    ///
    /// # Errors
    /// Unavailable, if it has: the next route knows since when.
    pub(crate) async fn check_data(&self, on: &Route) -> Result<()> {
        on.connection.check_data(&on.session).await
    }

    /// Never returns. A task that waits for the route's server to wake it must poll this.
    pub(crate) async fn watch(&self, on: &Route) -> Infallible {
        match &self.topology {
            Topology::One(connection) => connection.watch_supervisor().await,
            Topology::Cluster(cluster) => Box::pin(cluster.watch(on)).await,
        }
    }

    /// The channel on which the server wakes this backend's waiters for a lock.
    pub(crate) fn inbox(&self, keys: &Keys) -> Cow<'_, str> {
        match &self.topology {
            Topology::One(_) => self.inbox.channel().into(),
            Topology::Cluster(_) => keys.channel(self.inbox.channel()).into(),
        }
    }

    /// Registers a waiter for a lock. A wake-up that came just before counts, too.
    pub(crate) fn register(&self, keys: &Keys, holder: HolderId) -> Waiter<'_> {
        self.inbox.register(self.slot(keys), holder)
    }

    /// True if this process hears when the route's server wakes a waiter for the lock.
    pub(crate) fn hears(&self, on: &Route, keys: &Keys) -> bool {
        match &self.topology {
            // The session ends with the subscription.
            Topology::One(_) => true,
            Topology::Cluster(_) => on.is_listening(&self.inbox(keys)),
        }
    }

    /// Makes a lease suspect whenever the connection to the lock's server ends, for as long as the registration lives; and
    /// now, if the connection of its grant has ended already.
    pub(crate) fn register_lease(
        &self,
        keys: &Keys,
        holder: HolderId,
        lease: &Lease,
        granted_on: &Route,
    ) -> LeaseRegistration {
        let slot = self.slot(keys);
        (granted_on.connection).register_lease(slot, holder, lease, &granted_on.session)
    }

    /// The same for the lease of the hold's next holder in this process. From here on it hears of losses in place of the
    /// earlier one.
    pub(crate) fn pass_lease(&self, keys: &Keys, holder: HolderId, next: &Lease) -> LeaseRegistration {
        match &self.topology {
            Topology::One(connection) => connection.pass_lease(0, holder, next),
            Topology::Cluster(cluster) => cluster.leases().pass(keys.slot(), holder, next),
        }
    }

    /// True if there never was a connection, so that nothing was ever sent.
    pub(crate) fn is_unused(&self) -> bool {
        match &self.topology {
            Topology::One(connection) => connection.is_unused(),
            Topology::Cluster(cluster) => cluster.is_unused(),
        }
    }

    /// The findings about the settings of the servers that were last connected to.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        match &self.topology {
            Topology::One(connection) => connection.findings(),
            Topology::Cluster(cluster) => cluster.findings(),
        }
    }

    /// The verdict of the servers that were last connected to on a guarantee.
    pub(crate) fn keeps(&self, guarantee: Guarantee) -> Verdict {
        match &self.topology {
            Topology::One(connection) => connection.keeps(guarantee),
            Topology::Cluster(cluster) => cluster.keeps(guarantee),
        }
    }

    /// The servers whose keys are scanned, by their addresses: of a cluster its masters, as a node reports them now.
    ///
    /// # Errors
    /// Why the masters are not known.
    pub(crate) async fn scanned(&self) -> Result<Vec<Scanned>> {
        match &self.topology {
            Topology::One(connection) => Ok(vec![Scanned {
                address: String::new(),
                connection: connection.clone(),
            }]),
            Topology::Cluster(cluster) => Box::pin(cluster.masters()).await,
        }
    }

    /// The channel of this backend's waiters, another one for each backend.
    pub(crate) fn channel(&self) -> &str {
        self.inbox.channel()
    }

    /// Checks that the servers serve.
    ///
    /// # Errors
    /// If a server cannot be asked, or does not serve.
    pub(crate) async fn check(&self) -> Result<()> {
        match &self.topology {
            Topology::One(connection) => connection.check().await,
            Topology::Cluster(cluster) => Box::pin(cluster.check()).await,
        }
    }

    /// The run id of the server that answers. `None` for a cluster, which has several.
    pub(crate) async fn run_id(&self) -> Result<Option<String>> {
        match &self.topology {
            Topology::One(connection) => connection.run_id().await,
            Topology::Cluster(_) => Ok(None),
        }
    }

    /// The hash slot of a lock, where there are several.
    fn slot(&self, keys: &Keys) -> u16 {
        match &self.topology {
            Topology::One(_) => 0,
            Topology::Cluster(_) => keys.slot(),
        }
    }
}

/// The server that is scanned next: that at this address, or else the first that is not `done`. Others may have taken the place of those that
/// were known when the list began, also of the one in whose keys it stands. `None`: all are done.
pub(crate) fn next_scanned<'a>(servers: &'a [Scanned], address: &str, done: &[String]) -> Option<&'a Scanned> {
    let next = next_address(servers.iter().map(|server| &*server.address), address, done);
    next.map(|index| &servers[index])
}

fn next_address<'a>(servers: impl Iterator<Item = &'a str>, address: &str, done: &[String]) -> Option<usize> {
    let open = servers
        .enumerate()
        .filter(|(_, server)| !done.iter().any(|done| done == server));
    // `false` is the least.
    open.min_by_key(|(_, server)| *server != address)
        .map(|(index, _)| index)
}

impl Route {
    /// Waits until the server gives fresh grants, or the connection has ended.
    pub(crate) async fn fresh(&self) {
        let Some(until) = self.delayed_until() else {
            return;
        };
        tokio::select! {
            () = sleep_until(until) => {}
            _ = self.ended() => {}
            never = self.connection.watch_supervisor() => match never {},
        }
    }

    /// Why it gives no fresh grant at the moment, if it gives none.
    pub(crate) fn delay_error(&self) -> Option<Error> {
        let until = self.delayed_until()?;
        Some(self.connection.delay_error(&self.session, until - Instant::now()))
    }

    /// The lock's error for a failed request.
    pub(crate) fn lock_error(&self, failure: Failure) -> Error {
        self.connection.lock_error(failure)
    }

    /// The host of its server, in a cluster.
    fn host(&self) -> String {
        self.node
            .as_ref()
            .map(|node| node.host().to_owned())
            .unwrap_or_default()
    }

    /// True if this process hears the messages that its server publishes on this channel.
    fn is_listening(&self, channel: &str) -> bool {
        self.node.as_ref().is_none_or(|node| node.is_listening(channel))
    }
}

impl Deref for Route {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of_val;

    use lock_core::LockName;

    use super::*;

    /// One that has taken another's place comes at last, wherever its address stands.
    #[test]
    fn each_master_is_scanned() {
        let done = |done: &[&str]| -> Vec<String> { done.iter().map(|done| (*done).to_owned()).collect() };
        let next = |servers: &[&str], address, of: &[&str]| next_address(servers.iter().copied(), address, &done(of));
        assert_eq!(next(&["a", "b", "c"], "", &[]), Some(0));
        assert_eq!(next(&["a", "b", "c"], "b", &["a"]), Some(1), "it stands there");
        assert_eq!(next(&["a", "b", "c"], "", &["a", "b"]), Some(2));
        assert_eq!(next(&["0", "a", "c"], "b", &["a"]), Some(0), "in the place of b");
        assert_eq!(next(&["0", "a", "b"], "", &["a", "b"]), Some(0), "in the place of c");
        assert_eq!(next(&["a", "b"], "", &["a", "b", "c"]), None);
        assert_eq!((next(&[""], "", &[]), next(&[""], "", &[""])), (Some(0), None));
    }

    #[tokio::test]
    async fn a_request_of_a_single_server_has_no_room_for_a_cluster_s() {
        let servers = Servers::new(&RedisConfig::new("cache", 6379)).expect("a good configuration");
        let keys = Keys::new("a:", &LockName::new("a").expect("a valid name"));
        let Topology::One(connection) = &servers.topology else {
            panic!("it is one server");
        };
        let alone = size_of_val(&connection.session(std::future::pending()));
        let routed = size_of_val(&servers.route(&keys, std::future::pending()));
        assert!(routed <= alone + 64, "{routed} bytes, {alone} without the seam");
    }
}
