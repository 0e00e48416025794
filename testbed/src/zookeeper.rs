//! ZooKeeper.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::port::Port;
use crate::recipe::{Recipe, Run};
use crate::server::Server;
use crate::url::Url;
use crate::{Certificates, Edition, Ensemble, Error, locate};

mod archive;

/// The file of who may log in.
const LOGINS: &str = "jaas.conf";

/// A ZooKeeper to start: one server, or an ensemble of three.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    edition: Edition,
    tick: Duration,
    sessions: (Duration, Duration),
    sync_limit: u32,
    tls: Option<(Certificates, Arc<Port>)>,
    sasl: Option<(String, String)>,
    snapshot_every: Option<u32>,
}

impl ZooKeeper {
    /// The distribution's own, with ticks of 500 ms and session timeouts of 500 ms to 60 s.
    pub fn new() -> Self {
        Self {
            edition: Edition::ZooKeeper,
            tick: Duration::from_millis(500),
            sessions: (Duration::from_millis(500), Duration::from_secs(60)),
            sync_limit: 10,
            tls: None,
            sasl: None,
            snapshot_every: None,
        }
    }

    /// Another one than the distribution's own.
    ///
    /// # Panics
    /// If this edition is no ZooKeeper.
    #[must_use]
    pub fn edition(mut self, edition: Edition) -> Self {
        assert_eq!(edition.own(), Edition::ZooKeeper, "{edition:?} is no ZooKeeper");
        self.edition = edition;
        self
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

    /// `syncLimit` of an ensemble: after this many ticks without a word from each other, a follower leaves its leader,
    /// and a leader its followers. Default: 10.
    #[must_use]
    pub fn sync_limit(mut self, ticks: u32) -> Self {
        self.sync_limit = ticks;
        self
    }

    /// Serves TLS on its port, and asks each client for a certificate of this authority, which is then its identity. It also
    /// listens without TLS on its [plain port](Server::plain_address). For a single server.
    ///
    /// # Errors
    /// [`Error::Io`] if no port is free.
    pub fn tls(mut self, certificates: &Certificates) -> Result<Self, Error> {
        let plain = Port::reserve().map_err(Error::io("choosing a port"))?;
        self.tls = Some((certificates.clone(), Arc::new(plain)));
        Ok(self)
    }

    /// Authenticates this user by SASL with `DIGEST-MD5`; both are of letters and digits. For a single server.
    #[must_use]
    pub fn sasl(mut self, user: &str, password: &str) -> Self {
        self.sasl = Some((user.into(), password.into()));
        self
    }

    /// `snapCount`: takes a snapshot after at most this many transactions, while it serves on. Default: the server's own.
    #[must_use]
    pub fn snapshot_every(mut self, transactions: u32) -> Self {
        self.snapshot_every = Some(transactions);
        self
    }

    /// Starts one server, which is its own leader.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::LeftOut`] where there is none, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the server is ended in the background.
    pub async fn start(self) -> Result<Server, Error> {
        Server::start(self).await
    }

    /// Kills a server that was started as one, and starts it on the same port with the same data and this configuration, which it
    /// keeps at a [restart](Server::restart). Returns when it answers.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::Start`].
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn restart(self, server: &Server) -> Result<(), Error> {
        server.restart_as(self).await
    }

    /// Starts an ensemble of three servers. A server that runs already is never a part of it.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::LeftOut`] where there is none to start, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the servers are ended in the background.
    pub async fn start_ensemble(self) -> Result<Ensemble, Error> {
        Ensemble::start(self).await
    }

    /// What the configuration of each server says.
    pub(crate) fn config(&self, data: &Path, port: u16) -> String {
        // forceSync: what a killed process wrote is safe without; only a crash of the machine would lose it.
        // preAllocSize, in kB: 64 MB by default, which would fill a small tmpfs.
        let mut config = format!(
            "dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\ntickTime={}\nminSessionTimeout={}\n\
             maxSessionTimeout={}\nmaxClientCnxns=0\nforceSync=no\npreAllocSize=1024\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\n",
            data.display(),
            self.plain_port().unwrap_or(port),
            self.tick.as_millis(),
            self.sessions.0.as_millis(),
            self.sessions.1.as_millis(),
        );
        if let Some(transactions) = self.snapshot_every {
            config += &format!("snapCount={transactions}\n");
        }
        if self.sasl.is_some() {
            config += "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n";
        }
        if let Some((certificates, _)) = &self.tls {
            config += &format!(
                "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.type=PEM\nssl.keyStore.location={}\n\
                 ssl.trustStore.type=PEM\nssl.trustStore.location={}\nssl.clientAuth=need\n",
                certificates.key_store().display(),
                certificates.ca().display(),
            );
        }
        config
    }

    /// What the configuration of an ensemble's servers says about their quorum.
    pub(crate) fn quorum(&self) -> String {
        // initLimit: for this long, too, a leader waits for followers that a busy machine starts late.
        format!("initLimit=20\nsyncLimit={}\n", self.sync_limit)
    }

    /// The program for the configuration in `data`.
    pub(crate) fn java(&self, data: &Path, memory: &[&str]) -> Result<Command, Error> {
        let program = locate::zookeeper(self.edition)?;
        let mut command = Command::new(&program.java);
        command.args(memory);
        if let Some(archive) = archive::of(&program) {
            command.arg(format!("-XX:SharedArchiveFile={}", archive.display()));
        }
        if self.sasl.is_some() {
            let logins = data.join(LOGINS);
            command.arg(format!("-Djava.security.auth.login.config={}", logins.display()));
        }
        base(&mut command, &program).arg(data.join("zoo.cfg"));
        Ok(command)
    }
}

/// What follows the options that differ. Only the configuration comes after it.
fn base<'a>(command: &'a mut Command, program: &locate::ZooKeeper) -> &'a mut Command {
    command
        .args([
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-XX:-UsePerfData",
            "-Dzookeeper.admin.enableServer=false",
            "-cp",
        ])
        .arg(program.jars.join("*"))
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
}

impl Default for ZooKeeper {
    fn default() -> Self {
        Self::new()
    }
}

impl Recipe for ZooKeeper {
    fn name(&self) -> &'static str {
        self.edition.name()
    }

    fn url_variable(&self) -> &'static str {
        self.edition.variables()[0]
    }

    fn default_port(&self) -> u16 {
        2181
    }

    fn url(&self, port: u16) -> Url {
        match &self.tls {
            Some((certificates, _)) => {
                Url::new("zookeeper+tls", None, port, &format!("/?{}", certificates.parameters()))
            }
            // It has no users: whoever reaches it may do everything.
            None => Url::new("zookeeper", None, port, "/?acl=open"),
        }
    }

    fn plain_port(&self) -> Option<u16> {
        self.tls.as_ref().map(|(_, plain)| plain.number())
    }

    fn is_slow_to_start(&self) -> bool {
        true
    }

    fn fill(&self, data: &Path, port: u16) -> Result<(), Error> {
        if let Some((user, password)) = &self.sasl {
            let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
            let logins = format!("Server {{\n{module} required\nuser_{user}=\"{password}\";\n}};\n");
            fs::write(data.join(LOGINS), logins).map_err(Error::io("writing the JAAS configuration"))?;
        }
        fs::write(data.join("zoo.cfg"), self.config(data, port)).map_err(Error::io("writing zoo.cfg"))
    }

    fn command(&self, data: &Path, _port: u16) -> Result<Command, Error> {
        self.java(data, &["-Xmx256m"])
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        // Answers "not currently serving" until it is.
        ask(self.plain_port().unwrap_or(run.port), "conf")
            .is_ok_and(|answer| answer.contains(&format!("dataDir={}/", run.data.display())))
    }
}

/// What a server says that it is, if it serves: "standalone", "leader" or "follower".
pub(crate) fn mode(port: u16) -> Option<String> {
    let answer = ask(port, "srvr").ok()?;
    let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "))?;
    Some(mode.into())
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
