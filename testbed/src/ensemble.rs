//! A ZooKeeper ensemble of three servers.

use std::ops::Index;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::server::{Server, blocking};
use crate::zookeeper::{self, ZooKeeper};
use crate::{Error, port::Port};

mod member;
mod network;

use member::{Member, Peer};
use network::Network;

/// How many servers an ensemble has.
const SERVERS: usize = 3;
const MAJORITY: usize = SERVERS / 2 + 1;

/// How many ensembles start at a time. Of twelve that started at once on a busy machine, none served within a minute.
static STARTING: Semaphore = Semaphore::const_new(2);

/// A ZooKeeper ensemble of three servers to test against. Clones share it; the last one to be dropped ends it.
///
/// The servers have the indexes 0 to 2. Each is a [`Server`], so that it can be killed, paused and restarted alone.
/// Its restart returns when it serves, which takes a quorum.
#[derive(Debug, Clone)]
pub struct Ensemble {
    servers: [Server; SERVERS],
    network: Arc<Network>,
}

impl Ensemble {
    /// The URL with the addresses of all its servers.
    pub fn url(&self) -> String {
        self.servers[0].url_at(&self.addresses().join(","))
    }

    /// `HOST:PORT` of each server, for clients.
    pub fn addresses(&self) -> [&str; SERVERS] {
        self.servers.each_ref().map(Server::address)
    }

    /// Its servers, by their indexes.
    pub fn servers(&self) -> &[Server; SERVERS] {
        &self.servers
    }

    /// Kills all its servers, and starts them with the same data. Returns when all serve.
    ///
    /// # Errors
    /// [`Error::Start`].
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn restart(&self) -> Result<(), Error> {
        self.kill()?;
        let [one, two, three] = &self.servers;
        tokio::try_join!(one.restart(), two.restart(), three.restart()).map(drop)
    }

    /// Like [`restart`](Self::restart), but it has forgotten everything.
    ///
    /// # Errors
    /// [`Error::Start`].
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn restart_without_data(&self) -> Result<(), Error> {
        // All first: one that is left would hand its data to the others.
        self.kill()?;
        let [one, two, three] = &self.servers;
        tokio::try_join!(
            one.restart_without_data(),
            two.restart_without_data(),
            three.restart_without_data()
        )
        .map(drop)
    }

    fn kill(&self) -> Result<(), Error> {
        self.servers.iter().try_for_each(Server::kill)
    }

    /// Waits until a majority serves with one leader, and returns the leader's index.
    ///
    /// # Errors
    /// [`Error::NoLeader`] after a minute.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn leader(&self) -> Result<usize, Error> {
        self.leader_of(None, MAJORITY).await
    }

    /// Waits until a majority serves with another leader than this server, and returns that leader's index. A leader
    /// that is cut off from its quorum is one to its clients until it steps down.
    ///
    /// # Errors
    /// [`Error::NoLeader`] after a minute.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn leader_after(&self, last: usize) -> Result<usize, Error> {
        self.leader_of(Some(last), MAJORITY).await
    }

    /// Waits until all its servers serve, and returns the leader's index.
    ///
    /// # Errors
    /// [`Error::NoLeader`] after a minute.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn ready(&self) -> Result<usize, Error> {
        self.leader_of(None, SERVERS).await
    }

    /// Cuts two servers off from each other: nothing passes between them, while their connections stay open. Clients
    /// reach both.
    pub fn cut(&self, one: usize, other: usize) {
        self.network.cut(one, other);
    }

    /// Cuts a server off from both others, as [`cut`](Self::cut) does. Clients reach all three.
    pub fn isolate(&self, server: usize) {
        for other in (0..SERVERS).filter(|other| *other != server) {
            self.network.cut(server, other);
        }
    }

    /// Lets everything pass again, what was held back first.
    pub fn heal(&self) {
        self.network.heal();
    }

    pub(crate) async fn start(zookeeper: ZooKeeper) -> Result<Self, Error> {
        let (network, peers) = blocking(|| {
            let reserve = || Port::reserve().map_err(Error::io("choosing a port"));
            let mut peers = Vec::new();
            for _ in 0..SERVERS {
                let (quorum, election) = (reserve()?, reserve()?);
                peers.push(Peer { quorum, election });
            }
            let addresses: Vec<_> = peers.iter().map(Peer::numbers).collect();
            let network = Network::start(&addresses).map_err(Error::io("starting the ensemble's network"))?;
            Ok((Arc::new(network), Arc::new(peers)))
        })
        .await?;
        let member = |index| Server::start_own(Member::new(zookeeper.clone(), index, peers.clone(), network.clone()));
        let _starting = STARTING.acquire().await.expect("nobody closes it");
        let (first, second, third) = tokio::try_join!(member(0), member(1), member(2))?;
        Ok(Self {
            servers: [first, second, third],
            network,
        })
    }

    /// The leader of as many, without asking `last`.
    async fn leader_of(&self, last: Option<usize>, serving: usize) -> Result<usize, Error> {
        /// Many times what an election needs on an overloaded machine.
        const AT_MOST: Duration = Duration::from_secs(60);
        let ports = self.servers.each_ref().map(Server::port);
        blocking(move || {
            let start = Instant::now();
            loop {
                // The servers tell nobody: asking is all there is.
                let mut modes = ports.map(zookeeper::mode);
                last.into_iter().for_each(|last| modes[last] = None);
                if let Some(leader) = leader(&modes, serving) {
                    return Ok(leader);
                }
                if start.elapsed() > AT_MOST {
                    let modes = modes.map(|mode| mode.unwrap_or_else(|| "none".into())).join(", ");
                    return Err(Error::NoLeader { modes });
                }
                sleep(Duration::from_millis(20));
            }
        })
        .await
    }
}

impl Index<usize> for Ensemble {
    type Output = Server;

    fn index(&self, index: usize) -> &Server {
        &self.servers[index]
    }
}

/// The only server that leads, if at least `serving` of them serve.
fn leader(modes: &[Option<String>], serving: usize) -> Option<usize> {
    let is_leader = |mode: &Option<String>| mode.as_deref() == Some("leader");
    let leader = modes.iter().position(is_leader)?;
    let is_only = modes.iter().filter(|mode| is_leader(mode)).count() == 1;
    (is_only && modes.iter().flatten().count() >= serving).then_some(leader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_leads_and_enough_serve() {
        let modes = |modes: [&str; SERVERS]| modes.map(|mode| (!mode.is_empty()).then(|| mode.to_owned()));
        let all = modes(["follower", "leader", "follower"]);
        assert_eq!((leader(&all, 2), leader(&all, 3)), (Some(1), Some(1)));
        let two = modes(["", "follower", "leader"]);
        assert_eq!((leader(&two, 2), leader(&two, 3)), (Some(2), None));
        // One that is cut off goes on calling itself so for a while.
        assert_eq!(leader(&modes(["leader", "leader", "follower"]), 2), None);
        assert_eq!(leader(&modes(["leader", "", ""]), 2), None);
        assert_eq!(leader(&modes(["follower", "follower", ""]), 2), None);
    }
}
