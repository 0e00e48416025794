//! A Redis Cluster: three masters, each with a replica if a test wants some.

use std::io;
use std::ops::Index;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::command::{Reply, call};
use crate::port::Port;
use crate::server::{Server, blocking};
use crate::{Error, Redis};
use map::{master_of, role, serves};
use node::Node;

mod map;
mod node;

/// How many masters a cluster has at first.
const MASTERS: usize = 3;

/// How many hash slots there are.
const SLOTS: u16 = 16384;

/// Many times what anything takes on an overloaded machine.
const AT_MOST: Duration = Duration::from_secs(60);

/// One move at a time: two nodes that send keys to each other would wait for each other, and two that take slots at the same time
/// may do so in the same epoch, so that others never believe one of them.
static MOVING: Mutex<()> = Mutex::const_new(());

/// A Redis Cluster to test against. Clones share it; the last one to be dropped ends it.
///
/// Its nodes have indexes: 0 to 2 are the masters of the beginning, 3 to 5 their replicas, if there are any. Each is a
/// [`Server`], so that it can be killed, paused and restarted alone; it keeps its place in the cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// The URL with the addresses of all its nodes.
    pub fn url(&self) -> String {
        self.nodes[0].url_at(&self.addresses().join(","))
    }

    /// `HOST:PORT` of each node.
    pub fn addresses(&self) -> Vec<&str> {
        self.nodes.iter().map(Server::address).collect()
    }

    /// Its nodes, by their indexes.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Kills all its nodes, and starts them with the same data. Returns when it serves.
    ///
    /// # Errors
    /// [`Error::Start`], [`Error::Io`].
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn restart(&self) -> Result<(), Error> {
        self.restart_nodes(true).await?;
        self.until_it_serves().await
    }

    /// Like [`restart`](Self::restart), but it has forgotten everything: its masters and replicas are those of the beginning.
    ///
    /// # Errors
    /// [`Error::Start`], [`Error::Io`].
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn restart_without_data(&self) -> Result<(), Error> {
        self.restart_nodes(false).await?;
        let ports = self.ports();
        blocking(move || join(&ports)).await
    }

    async fn restart_nodes(&self, keep: bool) -> Result<(), Error> {
        // All first: one that is left would tell the others about the cluster.
        self.nodes.iter().try_for_each(Server::kill)?;
        let restarting = self.nodes.iter().cloned().map(|node| {
            tokio::spawn(async move {
                match keep {
                    true => node.restart().await,
                    false => node.restart_without_data().await,
                }
            })
        });
        for restarting in restarting.collect::<Vec<_>>() {
            let restarted = restarting.await;
            restarted.map_err(|error| Error::io("restarting a node")(io::Error::other(error)))??;
        }
        Ok(())
    }

    /// Runs a command on a node, and returns the text of its reply, with a line for each part.
    ///
    /// # Errors
    /// [`Error::Io`], also with what the server says.
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn call(&self, node: usize, command: &[&str]) -> Result<String, Error> {
        let port = self.nodes[node].control_port();
        let command: Vec<String> = command.iter().map(|part| (*part).to_owned()).collect();
        blocking(move || {
            let parts: Vec<&str> = command.iter().map(String::as_str).collect();
            ask(port, &parts).map(|reply| reply.text())
        })
        .await
    }

    /// The master of a slot, as soon as there is one that serves: of several nodes that claim it, the one with the highest
    /// configuration epoch.
    ///
    /// # Errors
    /// [`Error::Io`] if there is none for a minute.
    pub async fn master_of(&self, slot: u16) -> Result<usize, Error> {
        let ports = self.ports();
        blocking(move || until("a slot has a master", || Ok(master_of(&ports, slot)))).await
    }

    /// The hash slot of a key.
    ///
    /// # Errors
    /// [`Error::Io`] if no node answers.
    pub async fn slot_of(&self, key: &str) -> Result<u16, Error> {
        let ports = self.ports();
        let key = key.to_owned();
        let slot = blocking(move || {
            let mut replies = ports.iter().map(|port| ask(*port, &["CLUSTER", "KEYSLOT", &key]));
            // Those that are down do not answer.
            replies.find(Result::is_ok).unwrap_or(Ok(Reply::Nothing))
        })
        .await?;
        match slot {
            Reply::Number(slot) => Ok(u16::try_from(slot).unwrap_or(0)),
            other => Err(Error::io("asking for a slot")(io::Error::other(other.text()))),
        }
    }

    /// A replica that follows this master.
    ///
    /// # Errors
    /// [`Error::Io`] if there is none.
    pub async fn replica_of(&self, master: usize) -> Result<usize, Error> {
        let (ports, port) = (self.ports(), self.nodes[master].port().to_string());
        blocking(move || {
            // "slave", the host, the port, and more.
            let follows =
                |node: &u16| call(*node, &["ROLE"]).is_ok_and(|role| role.text().lines().nth(2) == Some(&port));
            let none = || Error::io("looking for a replica")(io::ErrorKind::NotFound.into());
            ports.iter().position(follows).ok_or_else(none)
        })
        .await
    }

    /// Waits until all nodes that run see a cluster whose slots are all served.
    ///
    /// # Errors
    /// [`Error::Io`] if that takes longer than a minute.
    pub async fn until_it_serves(&self) -> Result<(), Error> {
        let ports = self.ports();
        blocking(move || until("the cluster serves", || Ok(serves(&ports).then_some(())))).await
    }

    /// Begins to move a slot, and moves no key yet: until [`finish_move`](Self::finish_move), a request with several keys
    /// is told to try again.
    ///
    /// # Errors
    /// [`Error::Io`] with what a server says.
    pub async fn begin_move(&self, slot: u16, from: usize, to: usize) -> Result<(), Error> {
        let (slot, from_id, to_id) = (slot.to_string(), self.id(from).await?, self.id(to).await?);
        self.call(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])
            .await?;
        self.call(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])
            .await?;
        Ok(())
    }

    /// Moves the keys of a slot whose move has begun, and then the slot. Returns when all nodes that run have heard of it: a
    /// replica that has not would leave the slot behind when it takes its master's place.
    ///
    /// # Errors
    /// [`Error::Io`] with what a server says.
    pub async fn finish_move(&self, slot: u16, from: usize, to: usize) -> Result<(), Error> {
        let (slot, to_id) = (slot.to_string(), self.id(to).await?);
        let _alone = MOVING.lock().await;
        loop {
            let keys = self.call(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await?;
            if keys.is_empty() {
                break;
            }
            self.send_keys(&keys.lines().collect::<Vec<_>>(), from, to).await?;
        }
        // First the one that has it from now on.
        for node in [to, from] {
            self.call(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await?;
        }
        self.until_it_serves().await
    }

    /// Moves these keys of a slot whose move has begun.
    ///
    /// # Errors
    /// [`Error::Io`] with what a server says.
    pub async fn migrate(&self, keys: &[&str], from: usize, to: usize) -> Result<(), Error> {
        let _alone = MOVING.lock().await;
        self.send_keys(keys, from, to).await
    }

    async fn send_keys(&self, keys: &[&str], from: usize, to: usize) -> Result<(), Error> {
        let port = self.nodes[to].port().to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"];
        migrate.extend(keys);
        self.call(from, &migrate).await.map(drop)
    }

    /// Moves a slot with its keys, as an operator does who spreads the load anew.
    ///
    /// # Errors
    /// [`Error::Io`] with what a server says.
    pub async fn move_slot(&self, slot: u16, from: usize, to: usize) -> Result<(), Error> {
        self.begin_move(slot, from, to).await?;
        self.finish_move(slot, from, to).await
    }

    /// Has a replica take its master's place, without losing anything, as an operator does before an upgrade. Returns when
    /// it has, and its former master follows it.
    ///
    /// # Errors
    /// [`Error::Io`] with what the server says.
    pub async fn fail_over_to(&self, replica: usize) -> Result<(), Error> {
        self.call(replica, &["CLUSTER", "FAILOVER"]).await?;
        let (port, ports) = (self.nodes[replica].control_port(), self.ports());
        blocking(move || {
            until("the replica is a master", || {
                Ok((role(port).as_deref() == Some("master") && serves(&ports)).then_some(()))
            })
        })
        .await
    }

    pub(crate) async fn start(redis: Redis, replicas: bool) -> Result<Self, Error> {
        let count = if replicas { 2 * MASTERS } else { MASTERS };
        let starting = (0..count).map(|_| {
            let redis = redis.clone();
            async move {
                let node = blocking(move || {
                    let bus = Port::reserve().map_err(Error::io("choosing a port"))?;
                    Ok(Node::new(redis.another()?, bus))
                });
                Server::start_own(node.await?).await
            }
        });
        let mut nodes = Vec::new();
        let starting: Vec<_> = starting.map(tokio::spawn).collect();
        for node in starting {
            let node = node
                .await
                .map_err(|error| Error::io("starting a node")(io::Error::other(error)))?;
            nodes.push(node?);
        }
        let cluster = Self { nodes };
        let ports = cluster.ports();
        blocking(move || join(&ports)).await?;
        Ok(cluster)
    }

    async fn id(&self, node: usize) -> Result<String, Error> {
        self.call(node, &["CLUSTER", "MYID"]).await
    }

    fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(Server::control_port).collect()
    }
}

impl Index<usize> for Cluster {
    type Output = Server;

    fn index(&self, index: usize) -> &Server {
        &self.nodes[index]
    }
}

/// Makes a cluster of these nodes: the first masters, then their replicas.
fn join(ports: &[u16]) -> Result<(), Error> {
    let share = SLOTS.div_ceil(MASTERS as u16);
    for (index, port) in (0_u16..).zip(ports) {
        let epoch = (index + 1).to_string();
        ask(*port, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
        if usize::from(index) < MASTERS {
            let (first, last) = (index * share, (index * share + share).min(SLOTS) - 1);
            let range = [first, last].map(|slot| slot.to_string());
            ask(*port, &["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]])?;
        }
    }
    let mut bus_ports = Vec::new();
    for port in &ports[1..] {
        bus_ports.push((port.to_string(), bus_port(*port)?.to_string()));
    }
    let all_known = format!("cluster_known_nodes:{}\r", ports.len());
    let mut last_met: Option<Instant> = None;
    until("the nodes know each other", || {
        // A busy machine may miss the second that a node has to answer in: then it has to be met again.
        if last_met.is_none_or(|met| met.elapsed() > Duration::from_secs(2)) {
            for (port, bus) in &bus_ports {
                ask(ports[0], &["CLUSTER", "MEET", "127.0.0.1", port, bus])?;
            }
            last_met = Some(Instant::now());
        }
        let knows_all =
            |port: &u16| call(*port, &["CLUSTER", "INFO"]).is_ok_and(|info| info.text().contains(&all_known));
        Ok(ports.iter().all(knows_all).then_some(()))
    })?;
    for (index, port) in ports.iter().enumerate().skip(MASTERS) {
        let master = ask(ports[index - MASTERS], &["CLUSTER", "MYID"])?.text();
        // It refuses until it knows the master.
        until("a replica knows its master", || {
            Ok(ask(*port, &["CLUSTER", "REPLICATE", &master]).ok())
        })?;
    }
    until("the cluster serves", || Ok(serves(ports).then_some(())))
}

fn bus_port(port: u16) -> Result<u16, Error> {
    let setting = ask(port, &["CONFIG", "GET", "cluster-port"])?.text();
    let number = setting.lines().nth(1).and_then(|number| number.parse().ok());
    number.ok_or_else(|| Error::io("reading cluster-port")(io::Error::other(setting)))
}

fn ask(port: u16, command: &[&str]) -> Result<Reply, Error> {
    call(port, command).map_err(Error::io(format!("{} to the Redis on port {port}", command.join(" "))))
}

/// Looks until there is something. Nobody tells: asking is all there is.
fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>, Error>) -> Result<T, Error> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() > AT_MOST {
            return Err(Error::io(format!("waiting until {what}"))(
                io::ErrorKind::TimedOut.into(),
            ));
        }
        sleep(Duration::from_millis(20));
    }
}
