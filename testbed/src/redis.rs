//! Redis.

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
use crate::{Certificates, Clock, Cluster, Disk, Edition, Error, Replicated, Watched, locate, preload};

pub(crate) mod cluster;
mod command;
pub(crate) mod replica;
pub(crate) mod sentinel;
mod tls;

/// A Redis to start. Every write is on disk (`appendfsync always`) before it is acknowledged.
#[derive(Debug, Clone)]
pub struct Redis {
    edition: Edition,
    password: Option<String>,
    clock: Option<Clock>,
    disk: Option<Disk>,
    settings: Vec<(String, Vec<String>)>,
    /// The program that runs it, with its arguments, or nothing.
    under: Vec<String>,
    tls: Option<(Certificates, Arc<Port>)>,
}

impl Redis {
    /// The distribution's own, without a password.
    pub fn new() -> Self {
        Self {
            edition: Edition::Redis,
            password: None,
            clock: None,
            disk: None,
            settings: Vec::new(),
            under: Vec::new(),
            tls: None,
        }
    }

    /// Another one than the distribution's own.
    ///
    /// # Panics
    /// If this edition is no Redis.
    #[must_use]
    pub fn edition(mut self, edition: Edition) -> Self {
        assert_eq!(edition.own(), Edition::Redis, "{edition:?} is no Redis");
        self.edition = edition;
        self
    }

    /// A line of its configuration file, which wins over those that are there by default: a directive and its
    /// arguments, like `("user", ["ann", "on", ">secret"])`.
    #[must_use]
    pub fn setting(mut self, directive: &str, arguments: impl IntoIterator<Item: Into<String>>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        self.settings.push((directive.into(), arguments));
        self
    }

    /// Asks for this password (`requirepass`). Default: none.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Lets it run on this clock. Default: the real one.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Lets it write to this disk. Default: the real one.
    #[must_use]
    pub fn disk(mut self, disk: &Disk) -> Self {
        self.disk = Some(disk.clone());
        self
    }

    /// Starts it by this program, such as `valgrind`. The program is given these arguments and then the server's command, and must run the
    /// server in its own process. Default: none.
    #[must_use]
    pub fn under(mut self, program: &str, arguments: impl IntoIterator<Item: Into<String>>) -> Self {
        self.under = vec![program.into()];
        self.under.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Serves TLS on its port, and asks each client for a certificate of this authority. It also listens without TLS on its
    /// [plain port](Server::plain_address).
    ///
    /// # Errors
    /// [`Error::Io`] if no port is free.
    pub fn tls(mut self, certificates: &Certificates) -> Result<Self, Error> {
        let plain = Port::reserve().map_err(Error::io("choosing a port"))?;
        self.tls = Some((certificates.clone(), Arc::new(plain)));
        Ok(self)
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::LeftOut`] where there is none, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the server is ended in the background.
    pub async fn start(self) -> Result<Server, Error> {
        Server::start(self).await
    }

    /// Starts three of them as the masters of a cluster, and three as their replicas if `replicas` says so. A server that runs
    /// already is never a part of it, and a password is not possible.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::LeftOut`] where there is none to start, [`Error::Start`], [`Error::Io`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the servers are ended in the background.
    pub async fn start_cluster(self, replicas: bool) -> Result<Cluster, Error> {
        Cluster::start(self, replicas).await
    }

    /// Starts a master and so many replicas of it, which have its data when this returns. A server that runs already is never
    /// one of them, and a password is not possible.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::LeftOut`] where there is none to start, [`Error::Start`], [`Error::Io`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the servers are ended in the background.
    pub async fn start_replicated(self, replicas: usize) -> Result<Replicated, Error> {
        Replicated::start(self, replicas).await
    }

    /// Starts a master and so many replicas of it, and three Sentinels that watch them and know each other when this returns. They
    /// call the master `mymaster`. With TLS, the Sentinels serve it, too. A server that runs already is never taken.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::LeftOut`] where there is none, [`Error::Start`], [`Error::Io`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the servers are ended in the background.
    pub async fn start_watched(self, replicas: usize) -> Result<Watched, Error> {
        Watched::start(self, replicas, None).await
    }

    /// The same with Sentinels that ask for this password.
    ///
    /// # Errors
    /// Those of [`start_watched`](Self::start_watched).
    ///
    /// # Cancel safety
    /// If this future is dropped, the servers are ended in the background.
    pub async fn start_watched_with_password(self, replicas: usize, password: &str) -> Result<Watched, Error> {
        Watched::start(self, replicas, Some(password)).await
    }
}

impl Redis {
    /// The same for another server beside this one.
    fn another(&self) -> Result<Self, Error> {
        match &self.tls {
            // With a plain port of its own.
            Some((certificates, _)) => self.clone().tls(certificates),
            None => Ok(self.clone()),
        }
    }
}

impl Default for Redis {
    fn default() -> Self {
        Self::new()
    }
}

impl Recipe for Redis {
    fn name(&self) -> &'static str {
        self.edition.name()
    }

    fn url_variable(&self) -> &'static str {
        self.edition.variables()[0]
    }

    fn default_port(&self) -> u16 {
        6379
    }

    fn url(&self, port: u16) -> Url {
        let credentials = self.password.as_deref().map(|password| ("", password));
        match &self.tls {
            Some((certificates, _)) => {
                Url::new("rediss", credentials, port, &format!("/?{}", certificates.parameters()))
            }
            None => Url::new("redis", credentials, port, ""),
        }
    }

    fn plain_port(&self) -> Option<u16> {
        self.tls.as_ref().map(|(_, plain)| plain.number())
    }

    fn fill(&self, _data: &Path, _port: u16) -> Result<(), Error> {
        Ok(())
    }

    fn command(&self, data: &Path, port: u16) -> Result<Command, Error> {
        let server = locate::redis(self.edition)?;
        let mut command = match self.under.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(server);
                command
            }
            None => Command::new(server),
        };
        command
            .args(["--bind", "127.0.0.1", "--port"])
            .arg(self.plain_port().unwrap_or(port).to_string())
            .arg("--dir")
            .arg(data);
        if let Some((certificates, _)) = &self.tls {
            for (directive, argument) in tls::settings(certificates, port) {
                command.arg(format!("--{directive}")).arg(argument);
            }
        }
        command.args([
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--save",
            "",
            "--daemonize",
            "no",
        ]);
        if let Some(password) = &self.password {
            command.args(["--requirepass", password]);
        }
        for (directive, arguments) in &self.settings {
            command.arg(format!("--{directive}")).args(arguments);
        }
        preload::load(&mut command, self.clock.as_ref(), self.disk.as_ref());
        Ok(command)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        ask(self.plain_port().unwrap_or(run.port), self.password.as_deref()).is_ok_and(|answer| {
            answer.contains(&format!("process_id:{}\r", run.pid)) && answer.contains("\nloading:0\r")
        })
    }
}

/// What INFO says.
fn ask(port: u16, password: Option<&str>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut request = String::new();
    if let Some(password) = password {
        request += &format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len());
    }
    request += "*1\r\n$4\r\nINFO\r\n*1\r\n$4\r\nQUIT\r\n";
    stream.write_all(request.as_bytes())?;
    // QUIT makes the server close.
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
