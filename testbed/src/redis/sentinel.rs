//! A master and its replicas, watched by Sentinels.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::command::{call, call_on, connect};
use super::replica::Replicated;
use crate::port::Port;
use crate::server::{Server, blocking};
use crate::{Error, Redis};
use recipe::Sentinel;

mod recipe;

/// Many times what anything takes on an overloaded machine.
const AT_MOST: Duration = Duration::from_secs(60);

/// How many Sentinels there are.
const SENTINELS: usize = 3;

/// What the Sentinels call the master.
const MASTER: &str = "mymaster";

/// A master and its replicas, watched by three Sentinels, to test against. Clones share them; the last one to be dropped ends
/// them.
///
/// The Sentinels take a master for dead that has not answered for a second. A server that is restarted becomes a replica by
/// itself if it is not the master any more.
#[derive(Debug, Clone)]
pub struct Watched {
    redis: Replicated,
    sentinels: Vec<Server>,
}

/// A master that nobody can connect to, but that still serves those who were connected before, for as long as this lives.
#[derive(Debug)]
pub struct Isolated {
    stream: TcpStream,
}

impl Watched {
    /// The URL with the addresses of all Sentinels.
    pub fn url(&self) -> String {
        let addresses: Vec<&str> = self.sentinels.iter().map(Server::address).collect();
        self.sentinels[0].url_at(&addresses.join(","))
    }

    /// The master of the beginning, and its replicas.
    pub fn redis(&self) -> &Replicated {
        &self.redis
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The index of the server that all Sentinels that run call the master, as soon as it is one.
    ///
    /// # Errors
    /// [`Error::Io`] if there is none for a minute.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn master(&self) -> Result<usize, Error> {
        self.master_other_than(None).await
    }

    /// The same, as soon as it is another one than `last`.
    ///
    /// # Errors
    /// [`Error::Io`] if there is none for a minute.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn master_after(&self, last: usize) -> Result<usize, Error> {
        self.master_other_than(Some(last)).await
    }

    /// Has a Sentinel make a replica the master (`SENTINEL FAILOVER`). Returns the index of the new one when all Sentinels call
    /// it so.
    ///
    /// # Errors
    /// [`Error::Io`] with what the Sentinel says.
    ///
    /// # Cancel safety
    /// If dropped, the failover may go on.
    pub async fn fail_over(&self) -> Result<usize, Error> {
        /// Twice the `failover-timeout`: by then a Sentinel has given up a failover that does not come to its end.
        const GIVEN_UP: Duration = Duration::from_secs(4);
        let last = self.master().await?;
        let start = Instant::now();
        loop {
            match self.ask(0, &["SENTINEL", "FAILOVER", MASTER]).await {
                Ok(_) => {
                    if let Ok(next) = timeout(GIVEN_UP, self.master_after(last)).await {
                        return next;
                    }
                }
                // One is under way, or the Sentinel has no connection yet to a replica that has just been started.
                Err(error)
                    if ["INPROG", "NOGOODSLAVE"]
                        .iter()
                        .any(|code| error.to_string().contains(code)) =>
                {
                    sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(error),
            }
            if self.agreed().await.is_some_and(|agreed| agreed != last) || start.elapsed() > AT_MOST {
                return self.master_after(last).await;
            }
        }
    }

    /// Runs a command on a Sentinel, and returns the text of its reply, with a line for each part.
    ///
    /// # Errors
    /// [`Error::Io`], also with what the Sentinel says.
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn ask(&self, sentinel: usize, command: &[&str]) -> Result<String, Error> {
        let port = self.sentinels[sentinel].control_port();
        let command: Vec<String> = command.iter().map(|part| (*part).to_owned()).collect();
        blocking(move || {
            let parts: Vec<&str> = command.iter().map(String::as_str).collect();
            let reply = call(port, &parts).map_err(Error::io("asking a Sentinel"))?;
            Ok(reply.text())
        })
        .await
    }

    /// Cuts a server off from the Sentinels and the other servers: they cannot connect to it any more. Whoever else is connected
    /// to it stays so.
    ///
    /// # Errors
    /// [`Error::Io`] with what the server says.
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn isolate(&self, server: usize) -> Result<Isolated, Error> {
        let port = self.redis[server].control_port();
        blocking(move || isolate(port).map_err(Error::io("isolating a Redis"))).await
    }

    /// Waits until all servers and all Sentinels that run know each other, and the replicas have the master's data. Returns
    /// the index of the master.
    ///
    /// # Errors
    /// [`Error::Io`] if that takes longer than a minute.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn settled(&self) -> Result<usize, Error> {
        let start = Instant::now();
        let mut written = None;
        loop {
            let master = self.master().await?;
            let mut problem = self.unsettled(master, &mut written).await;
            if problem.is_none() {
                return Ok(master);
            }
            if start.elapsed() > AT_MOST {
                let problem = problem.take().unwrap_or_default();
                return Err(Error::io("waiting for Sentinels")(io::Error::other(problem)));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// What is amiss. `written` is what a master had written when it was first asked.
    async fn unsettled(&self, master: usize, written: &mut Option<(usize, u64)>) -> Option<String> {
        let replicas = self.redis.servers().len() - 1;
        for sentinel in 0..self.sentinels.len() {
            let Ok(known) = self.ask(sentinel, &["INFO", "sentinel"]).await else {
                continue;
            };
            let wanted = format!("slaves={replicas},sentinels={SENTINELS}");
            if !known.contains(&wanted) || !known.contains("status=ok") {
                return Some(known);
            }
        }
        let info = match self.redis.call(master, &["INFO", "replication"]).await {
            Ok(info) => info,
            Err(error) => return Some(error.to_string()),
        };
        let (of, least) =
            *written.get_or_insert_with(|| (master, number_in(&info, "master_repl_offset:").unwrap_or(0)));
        if of != master {
            *written = None;
            return Some("another master".into());
        }
        // One that is online may get nothing before it has acknowledged something.
        let lines = info.lines().filter(|line| line.contains("state=online"));
        let follow =
            lines.filter(|line| number_in(line, "offset=").is_some_and(|offset| offset > 0 && offset >= least));
        (follow.count() < replicas).then_some(info)
    }

    pub(crate) async fn start(redis: Redis, replicas: usize, password: Option<&str>) -> Result<Self, Error> {
        let (edition, tls) = (redis.edition, redis.tls.clone());
        let redis = Replicated::start(redis, replicas).await?;
        let master = redis[0].port();
        let mut starting = Vec::new();
        for _ in 0..SENTINELS {
            let plain = || Port::reserve().map_err(Error::io("choosing a port"));
            let tls = match &tls {
                Some((certificates, _)) => Some((certificates.clone(), plain()?)),
                None => None,
            };
            starting.push(tokio::spawn(Server::start_own(Sentinel {
                edition,
                master,
                password: password.map(str::to_owned),
                tls,
            })));
        }
        let mut sentinels = Vec::new();
        for sentinel in starting {
            let sentinel = sentinel.await.map_err(io::Error::other);
            sentinels.push(sentinel.map_err(Error::io("starting a Sentinel"))??);
        }
        for sentinel in &sentinels {
            let port = sentinel.control_port();
            let password = password.map(str::to_owned);
            blocking(move || hurry(port, password.as_deref()).map_err(Error::io("asking a Sentinel"))).await?;
        }
        let watched = Self { redis, sentinels };
        // One with a password answers nobody here.
        if password.is_none() {
            watched.settled().await?;
        }
        Ok(watched)
    }

    async fn master_other_than(&self, last: Option<usize>) -> Result<usize, Error> {
        let start = Instant::now();
        loop {
            if let Some(master) = self.agreed().await
                && Some(master) != last
                && self
                    .redis
                    .call(master, &["ROLE"])
                    .await
                    .is_ok_and(|role| role.starts_with("master"))
            {
                return Ok(master);
            }
            if start.elapsed() > AT_MOST {
                return Err(Error::io("waiting for a master")(io::ErrorKind::TimedOut.into()));
            }
            // A Sentinel could announce it, but there are three.
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The index of the server that all Sentinels that run call the master.
    async fn agreed(&self) -> Option<usize> {
        let mut agreed = None;
        for sentinel in 0..self.sentinels.len() {
            let Ok(address) = self
                .ask(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])
                .await
            else {
                continue;
            };
            let port = address.lines().nth(1)?.parse().ok()?;
            if agreed.is_some_and(|agreed| agreed != port) {
                return None;
            }
            agreed = Some(port);
        }
        let servers = self.redis.servers();
        servers.iter().position(|server| Some(server.port()) == agreed)
    }
}

impl Isolated {
    /// Runs a command on the server, over the connection that it still has.
    ///
    /// # Errors
    /// [`Error::Io`], also with what the server says.
    pub fn call(&self, command: &[&str]) -> Result<(), Error> {
        let reply = call_on(&self.stream, command);
        reply.map(drop).map_err(Error::io("asking an isolated Redis"))
    }

    /// Lets everybody connect again, as dropping it does.
    ///
    /// # Errors
    /// [`Error::Io`] with what the server says.
    pub fn heal(self) -> Result<(), Error> {
        self.open().map_err(Error::io("healing a Redis"))
    }

    fn open(&self) -> io::Result<()> {
        call_on(&self.stream, &["CONFIG", "SET", "maxclients", "10000"]).map(drop)
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        // It may have been killed, or opened already.
        let _ = self.open();
    }
}

fn isolate(port: u16) -> io::Result<Isolated> {
    let stream = connect(port)?;
    // All who are connected stay so.
    call_on(&stream, &["CONFIG", "SET", "maxclients", "1"])?;
    let isolated = Isolated { stream };
    call_on(&isolated.stream, &["CLIENT", "KILL", "TYPE", "replica"])?;
    let clients = call_on(&isolated.stream, &["CLIENT", "LIST"])?.text();
    for client in clients.lines().filter(|client| client.contains(" name=sentinel-")) {
        let id = client.split([' ', '=']).nth(1).unwrap_or_default();
        // It may have gone.
        let _ = call_on(&isolated.stream, &["CLIENT", "KILL", "ID", id]);
    }
    Ok(isolated)
}

/// The number behind a word.
fn number_in(text: &str, word: &str) -> Option<u64> {
    let (_, behind) = text.split_once(word)?;
    behind.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Has a Sentinel look more often than every few seconds, until its restart.
fn hurry(port: u16, password: Option<&str>) -> io::Result<()> {
    let stream = connect(port)?;
    if let Some(password) = password {
        call_on(&stream, &["AUTH", password])?;
    }
    for period in ["info-period", "publish-period", "ask-period", "ping-period"] {
        call_on(&stream, &["SENTINEL", "DEBUG", period, "200"])?;
    }
    // A Sentinel that stood still for two seconds, as on a busy machine, does nothing for a while: half a minute by default.
    call_on(&stream, &["SENTINEL", "DEBUG", "tilt-period", "2000"])?;
    call_on(&stream, &["SENTINEL", "DEBUG", "min-link-reconnect-period", "500"]).map(drop)
}
