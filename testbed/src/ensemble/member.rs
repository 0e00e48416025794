//! One server of an ensemble.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::network::Network;
use crate::Error;
use crate::port::Port;
use crate::recipe::{Recipe, Run};
use crate::url::Url;
use crate::zookeeper::ZooKeeper;

/// The ports on which a server listens for the others.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) quorum: Port,
    pub(super) election: Port,
}

impl Peer {
    pub(super) fn numbers(&self) -> [u16; 2] {
        [self.quorum.number(), self.election.number()]
    }
}

/// How one server of an ensemble is run.
#[derive(Debug)]
pub(super) struct Member {
    zookeeper: ZooKeeper,
    index: usize,
    peers: Arc<Vec<Peer>>,
    network: Arc<Network>,
}

impl Member {
    pub(super) fn new(zookeeper: ZooKeeper, index: usize, peers: Arc<Vec<Peer>>, network: Arc<Network>) -> Self {
        Self {
            zookeeper,
            index,
            peers,
            network,
        }
    }

    /// What its configuration says about all servers: itself at its own ports, the others at the network's.
    fn servers(&self) -> String {
        let line = |(to, peer): (usize, &Peer)| {
            let [quorum, election] = match to == self.index {
                true => peer.numbers(),
                false => self.network.ports(self.index, to),
            };
            format!("server.{}=127.0.0.1:{quorum}:{election}\n", number(to))
        };
        self.peers.iter().enumerate().map(line).collect()
    }
}

/// ZooKeeper counts from 1.
fn number(index: usize) -> usize {
    index + 1
}

impl Recipe for Member {
    fn name(&self) -> &'static str {
        self.zookeeper.name()
    }

    fn url_variable(&self) -> &'static str {
        self.zookeeper.url_variable()
    }

    fn default_port(&self) -> u16 {
        self.zookeeper.default_port()
    }

    fn url(&self, port: u16) -> Url {
        self.zookeeper.url(port)
    }

    fn fill(&self, data: &Path, port: u16) -> Result<(), Error> {
        let config = self.zookeeper.config(data, port) + &self.zookeeper.quorum() + &self.servers();
        fs::write(data.join("zoo.cfg"), config).map_err(Error::io("writing zoo.cfg"))?;
        fs::write(data.join("myid"), number(self.index).to_string()).map_err(Error::io("writing myid"))
    }

    fn command(&self, data: &Path, _port: u16) -> Result<Command, Error> {
        // Three of them share the machine.
        self.zookeeper.java(data, &["-Xms16m", "-Xmx128m"])
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        self.zookeeper.is_ready(run)
    }
}
