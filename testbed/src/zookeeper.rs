//! ZooKeeper.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::recipe::{Recipe, Run};
use crate::server::Server;
use crate::url::Url;
use crate::{Error, locate};

/// A standalone ZooKeeper to start.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    tick: Duration,
    sessions: (Duration, Duration),
}

impl ZooKeeper {
    /// One with ticks of 500 ms that grants session timeouts of 500 ms to 60 s.
    pub fn new() -> Self {
        Self {
            tick: Duration::from_millis(500),
            sessions: (Duration::from_millis(500), Duration::from_secs(60)),
        }
    }

    /// `tickTime`, whole milliseconds. Sessions expire with up to one tick of delay. Default: 500 ms.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The shortest and the longest session timeout that it grants, whole milliseconds. Default: 500 ms to 60 s.
    #[must_use]
    pub fn session_timeouts(mut self, shortest: Duration, longest: Duration) -> Self {
        self.sessions = (shortest, longest);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is none, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the server is ended in the background.
    pub async fn start(self) -> Result<Server, Error> {
        Server::start(self).await
    }
}

impl Default for ZooKeeper {
    fn default() -> Self {
        Self::new()
    }
}

impl Recipe for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn url_variable(&self) -> &'static str {
        "POLYLOCK_ZOOKEEPER_URL"
    }

    fn default_port(&self) -> u16 {
        2181
    }

    fn url(&self, port: u16) -> Url {
        Url::new("zookeeper", None, port, "")
    }

    fn fill(&self, data: &Path, port: u16) -> Result<(), Error> {
        // forceSync: what a killed process wrote is safe without; only a crash of the machine would lose it.
        // preAllocSize, in kB: 64 MB by default, which would fill a small tmpfs.
        let config = format!(
            "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime={}\nminSessionTimeout={}\n\
             maxSessionTimeout={}\nmaxClientCnxns=0\nforceSync=no\npreAllocSize=1024\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\n",
            data.display(),
            self.tick.as_millis(),
            self.sessions.0.as_millis(),
            self.sessions.1.as_millis(),
        );
        fs::write(data.join("zoo.cfg"), config).map_err(Error::io("writing zoo.cfg"))
    }

    fn command(&self, data: &Path, _port: u16) -> Result<Command, Error> {
        let locate::ZooKeeper { java, jars } = locate::zookeeper()?;
        let mut command = Command::new(java);
        command.args([
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-XX:-UsePerfData",
        ]);
        command
            .arg("-Dzookeeper.admin.enableServer=false")
            .arg("-cp")
            .arg(jars.join("*"));
        command
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(data.join("zoo.cfg"));
        Ok(command)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        // Answers "not currently serving" until it is.
        ask(run.port, "conf").is_ok_and(|answer| answer.contains(&format!("dataDir={}/", run.data.display())))
    }
}

/// What a four-letter word answers.
fn ask(port: u16, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
