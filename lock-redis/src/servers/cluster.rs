//! A Redis Cluster: each master has the locks of its hash slots. A node that does not have a slot says who does.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{FusedFuture, try_join_all};
use lock_core::{Error, ErrorKind, Guarantee, Result, Verdict};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{Route, Scanned};
use crate::config::RedisConfig;
use crate::config::hosts::Address;
use crate::connection::inbox::Inbox;
use crate::connection::{Health, Leases, Session};
use crate::error::is_permanent;
use crate::probe::Finding;
use map::Map;
pub(crate) use map::Node;
use turn::Turn;

mod call;
mod map;
mod patience;
mod refresh;
mod slots;
mod turn;

/// The masters of a cluster.
pub(crate) struct Cluster(Arc<Inner>);

struct Inner {
    config: RedisConfig,
    /// The nodes that the configuration names.
    seeds: Vec<Address>,
    inbox: Arc<Inbox>,
    generations: Arc<AtomicU64>,
    leases: Leases,
    map: Mutex<Map>,
    /// Whose turn it is to ask the nodes.
    turn: Turn,
    /// True if there ever was a connection for requests.
    is_used: AtomicBool,
}

/// The pause before looking elsewhere for a node that is away, and before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How long a connection to a master without slots outlives its last use, once its delay is over.
const KEPT_FOR: Duration = Duration::from_secs(60);

impl Cluster {
    /// Does no I/O.
    pub(super) fn new(config: &RedisConfig, seeds: &[Address], inbox: Arc<Inbox>) -> Self {
        Self(Arc::new(Inner {
            config: config.clone(),
            seeds: seeds.iter().map(|seed| config.mapped(seed)).collect(),
            inbox,
            generations: Arc::default(),
            leases: Leases::default(),
            map: Mutex::new(Map::new(config.restart_delay().unwrap_or_default() + KEPT_FOR)),
            turn: Turn::default(),
            is_used: AtomicBool::new(false),
        }))
    }

    pub(super) fn leases(&self) -> &Leases {
        &self.0.leases
    }

    pub(super) fn is_unused(&self) -> bool {
        !self.0.is_used.load(Ordering::SeqCst)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for node in self.0.map.lock().nodes() {
            for finding in node.requests.findings() {
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        findings
    }

    /// The verdict of all masters on a guarantee.
    pub(super) fn keeps(&self, guarantee: Guarantee) -> Verdict {
        let map = self.0.map.lock();
        let verdicts = map.nodes().iter().map(|node| node.requests.keeps(guarantee));
        let worst = verdicts.reduce(Verdict::and);
        worst.unwrap_or_else(|| Verdict::unknown("no master was reached yet", "connect"))
    }

    /// The masters, in the order of their addresses, as a node reports them now: requests without a key are sent on by no node.
    pub(super) async fn masters(&self) -> Result<Vec<Scanned>> {
        self.refreshed_from_now().await?;
        let mut masters: Vec<Scanned> = (self.0.map.lock().nodes().iter())
            .map(|node| Scanned {
                address: format!("{}:{}", node.address.0, node.address.1),
                connection: node.requests.clone(),
            })
            .collect();
        masters.sort_unstable_by(|one, other| one.address.cmp(&other.address));
        Ok(masters)
    }

    /// Waits until the answer to a question who has all slots is known that was asked after this call. What a node says of one slot meanwhile
    /// does not count.
    async fn refreshed_from_now(&self) -> Result<()> {
        let (inner, deadline) = (&self.0, Instant::now() + self.0.config.connect_timeout());
        let question = inner.map.lock().next_question();
        loop {
            let (version, is_answered) = {
                let map = inner.map.lock();
                (map.version(), map.is_answered(question))
            };
            match version {
                _ if is_answered => return Ok(()),
                // Any slot. A cluster that may be just starting is waited for.
                0 => drop(self.route(0, std::future::pending()).await?),
                version => {
                    let refreshed = timeout_at(deadline, inner.refresh(version)).await;
                    refreshed.unwrap_or_else(|_| Err(inner.unreached(None)))?;
                }
            }
        }
    }

    /// Checks that all masters serve.
    pub(super) async fn check(&self) -> Result<()> {
        let deadline = Instant::now() + self.0.config.connect_timeout();
        loop {
            // Any slot: it makes sure that the masters are known.
            self.route(0, pin!(sleep_until(deadline))).await?;
            let nodes = self.0.map.lock().nodes().to_vec();
            let checking = nodes.iter().map(async |node| {
                let checked = node.requests.check().await;
                checked.map_err(|error| (node, error))
            });
            let Err((failed, error)) = try_join_all(checking).await else {
                return Ok(());
            };
            // It may be no master any more.
            let refreshed = self.refreshed_from_now().await;
            let is_master = self.0.map.lock().nodes().iter().any(|node| Arc::ptr_eq(node, failed));
            if refreshed.is_err() || is_master || Instant::now() >= deadline {
                return Err(error);
            }
        }
    }

    /// The master of a slot, as soon as it can be asked.
    pub(super) async fn route(&self, slot: u16, given_up: impl Future<Output = ()>) -> Result<Route> {
        let inner = &self.0;
        let deadline = Instant::now() + inner.config.connect_timeout();
        let mut given_up = pin!(given_up.fuse());
        let mut is_answered = false;
        loop {
            let (version, node) = {
                let map = inner.map.lock();
                (map.version(), map.master(slot).cloned())
            };
            let Some(node) = node else {
                let looking = async {
                    match inner.refresh(version).await {
                        Ok(()) => is_answered = true,
                        Err(error)
                            if inner.map.lock().version() > 0 || is_permanent(&error) || Instant::now() >= deadline =>
                        {
                            return Err(error.not_executed());
                        }
                        Err(_) => {}
                    }
                    if inner.map.lock().master(slot).is_none() {
                        sleep(LOOK_AGAIN).await;
                    }
                    Ok(())
                };
                tokio::select! {
                    biased;
                    looked = looking => looked?,
                    () = &mut given_up => return Err(inner.no_master(is_answered)),
                    () = sleep_until(deadline) => return Err(inner.no_master(is_answered)),
                }
                continue;
            };
            let session = tokio::select! {
                biased;
                session = node.requests.session(&mut given_up) => session,
                () = inner.until_moved(slot, &node) => continue,
            };
            match session {
                Ok(session) => {
                    inner.is_used.store(true, Ordering::SeqCst);
                    return Ok(Route::to(node, session, slot));
                }
                Err(error) if given_up.is_terminated() || Instant::now() >= deadline => return Err(error),
                Err(error) => {
                    // Another one may have taken its place.
                    let refreshed = tokio::select! {
                        refreshed = inner.refresh(version) => refreshed,
                        () = &mut given_up => return Err(error),
                        () = sleep_until(deadline) => return Err(error),
                    };
                    if refreshed.is_err() || inner.is_master(slot, &node) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Takes over the connections to a route's server if nobody drives their runtimes, and ends that of the route if its server is
    /// silent and has been replaced by another one.
    pub(super) async fn watch(&self, on: &Route) -> Infallible {
        let Some(node) = &on.node else {
            return std::future::pending().await;
        };
        tokio::select! {
            never = node.requests.watch_supervisor() => never,
            never = node.wake_ups.watch_supervisor() => never,
            never = self.watch_health(on, node) => never,
        }
    }

    async fn watch_health(&self, on: &Route, node: &Arc<Node>) -> Infallible {
        let mut health = on.session.health();
        loop {
            let now = health.borrow_and_update().clone();
            match now {
                // Cannot fail: the session has the sender.
                Health::Healthy => drop(health.changed().await),
                Health::Ended(_) => return std::future::pending().await,
                Health::Silent(why) => {
                    self.0.until_moved(on.slot, node).await;
                    let what = format!("{}:{} has been replaced as a master", node.address.0, node.address.1);
                    let why = Error::new(ErrorKind::Unavailable, what).with_source(why);
                    on.connection.end(&on.session, &why);
                }
            }
        }
    }
}

impl Route {
    fn to(node: Arc<Node>, session: Session, slot: u16) -> Self {
        Self {
            connection: node.requests.clone(),
            session,
            slot,
            node: Some(node),
        }
    }
}

impl Inner {
    fn is_master(&self, slot: u16, node: &Arc<Node>) -> bool {
        self.map
            .lock()
            .master(slot)
            .is_some_and(|master| Arc::ptr_eq(master, node))
    }

    /// Returns when another node has the slot.
    async fn until_moved(self: &Arc<Self>, slot: u16, from: &Arc<Node>) {
        loop {
            sleep(LOOK_AGAIN).await;
            let version = self.map.lock().version();
            // If nobody can say it, it has not moved as far as we know.
            let _ = self.refresh(version).await;
            if !self.is_master(slot, from) {
                return;
            }
        }
    }

    /// Learns who has one slot.
    fn learn(self: &Arc<Self>, slot: u16, address: &Address) -> Result<()> {
        let address = &self.config.mapped(address);
        self.map
            .lock()
            .learn_one(slot, address, |address| self.connect(address))
    }

    /// The node at this address, also one that has no slot yet.
    fn node(self: &Arc<Self>, address: &Address) -> Result<Arc<Node>> {
        let address = &self.config.mapped(address);
        self.map.lock().node(address, |address| self.connect(address))
    }

    /// Does no I/O.
    fn connect(self: &Arc<Self>, address: &Address) -> Result<Node> {
        let (cluster, of) = (Arc::downgrade(self), address.clone());
        let serves = move |slot| {
            let cluster = cluster.upgrade();
            cluster.is_some_and(|cluster| cluster.map.lock().master(slot).is_some_and(|node| node.address == of))
        };
        let leases = self.leases.of_slots(serves);
        Node::new(address, &self.config, &self.inbox, &self.generations, leases)
    }

    /// The error of a request for whose slot no master was found.
    fn no_master(&self, is_answered: bool) -> Error {
        match is_answered {
            true => unserved(),
            false => self.unreached(None),
        }
    }

    fn unreached(&self, why: Option<&str>) -> Error {
        let what = format!("the Redis Cluster at {} was not reached in time", self.names());
        let what = match why {
            Some(why) => format!("{what}: {why}"),
            None => format!("{what}: check that it runs and that its addresses are right"),
        };
        Error::new(ErrorKind::Unavailable, what).not_executed()
    }

    fn names(&self) -> String {
        let name = |(host, port): &Address| format!("{host}:{port}");
        self.seeds.iter().map(name).collect::<Vec<_>>().join(",")
    }
}

/// The error of a request for a slot that no node serves, as far as the nodes that answered know.
fn unserved() -> Error {
    let what = "the Redis Cluster did not serve a hash slot in time: the slot is being moved, or has no master";
    Error::new(ErrorKind::Unavailable, what).not_executed()
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("seeds", &self.0.names())
            .field("masters", &self.0.map.lock().nodes())
            .finish_non_exhaustive()
    }
}
