//! A master and its replicas.

use std::io;
use std::ops::Index;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::command::call;
use crate::server::{Server, blocking};
use crate::{Error, Redis};

/// Many times what anything takes on an overloaded machine.
const AT_MOST: Duration = Duration::from_secs(60);

/// A master and its replicas to test against. Clones share them; the last one to be dropped ends them.
///
/// The servers have indexes: 0 is the master of the beginning. Each is a [`Server`], so that it can be killed, paused and
/// restarted alone. After a restart it is a master, until [`follow`](Self::follow) or a Sentinel says otherwise.
#[derive(Debug, Clone)]
pub struct Replicated {
    servers: Vec<Server>,
}

impl Replicated {
    /// All servers, by their indexes.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Runs a command on a server, and returns the text of its reply, with a line for each part.
    ///
    /// # Errors
    /// [`Error::Io`], also with what the server says.
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn call(&self, server: usize, command: &[&str]) -> Result<String, Error> {
        let port = self.servers[server].control_port();
        let command: Vec<String> = command.iter().map(|part| (*part).to_owned()).collect();
        blocking(move || {
            let parts: Vec<&str> = command.iter().map(String::as_str).collect();
            let reply = call(port, &parts).map_err(Error::io("asking a Redis"))?;
            Ok(reply.text())
        })
        .await
    }

    /// Makes a server a replica of another one. Returns when it has that one's data, and that one knows it as a replica.
    ///
    /// # Errors
    /// [`Error::Io`] with what a server says, or if it takes longer than a minute.
    pub async fn follow(&self, replica: usize, master: usize) -> Result<(), Error> {
        let port = self.servers[master].port().to_string();
        self.call(replica, &["REPLICAOF", "127.0.0.1", &port]).await?;
        let own_port = format!("port={},state=online", self.servers[replica].port());
        let start = Instant::now();
        loop {
            let link = self.call(replica, &["INFO", "replication"]).await?;
            let known = self.call(master, &["INFO", "replication"]).await?;
            if link.contains("master_link_status:up") && known.contains(&own_port) {
                return Ok(());
            }
            if start.elapsed() > AT_MOST {
                let what = format!("{link}\n{known}");
                return Err(Error::io("waiting for a replica")(io::Error::other(what)));
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Makes a replica a master, with whatever it has at this moment. The other servers stay as they are.
    ///
    /// # Errors
    /// [`Error::Io`] with what the server says.
    pub async fn promote(&self, replica: usize) -> Result<(), Error> {
        self.call(replica, &["REPLICAOF", "NO", "ONE"]).await.map(drop)
    }

    pub(crate) async fn start(redis: Redis, replicas: usize) -> Result<Self, Error> {
        // With it, a master waits for other replicas that want the same data, and then for a new one's first sign of life, which
        // takes seconds.
        let redis = redis.setting("repl-diskless-sync", ["no"]);
        let mut starting = Vec::new();
        for _ in 0..=replicas {
            starting.push(tokio::spawn(Server::start_own(redis.another()?)));
        }
        let mut servers = Vec::new();
        for server in starting {
            let server = server.await.map_err(io::Error::other);
            servers.push(server.map_err(Error::io("starting a Redis"))??);
        }
        let replicated = Self { servers };
        for replica in 1..=replicas {
            replicated.follow(replica, 0).await?;
        }
        Ok(replicated)
    }
}

impl Index<usize> for Replicated {
    type Output = Server;

    fn index(&self, index: usize) -> &Server {
        &self.servers[index]
    }
}
