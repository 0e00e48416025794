//! The lock servers: started, reached and broken.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use testbed::{Clock, Cluster, Disk, Ensemble, MariaDb, Postgres, Server, Standbys, Watched, ZooKeeper};

use crate::backend::Backend;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::fault::{Effect, Needs};

use self::redis_server::{follow, replicating, tell, until_info};

pub(crate) use self::client::backend;

mod client;
mod inspection;
mod postgres;
mod redis_server;

/// Before all names of a run.
pub(crate) const REDIS_PREFIX: &str = "torture:";
/// The table of a run on a MySQL or PostgreSQL.
pub(crate) const TABLE: &str = "torture";

/// After so many ticks, more than a session has, the servers of an ensemble notice that one of them is silent.
const SYNC_LIMIT: u32 = 6;

/// The server of a run.
#[derive(Debug)]
pub(crate) struct LockServer {
    /// Of several, the first one.
    pub(crate) server: Server,
    ensemble: Option<Ensemble>,
    /// Of a quorum, all but the first.
    others: Vec<Server>,
    cluster: Option<Cluster>,
    watched: Option<Watched>,
    standbys: Option<Standbys>,
    /// Of a PostgreSQL and its standby, the index of that which takes writes.
    primary: AtomicUsize,
    backend: Backend,
    clock: Option<Clock>,
    /// The clock is set back for good.
    falls_behind: bool,
    disk: Option<Disk>,
    replica: Option<Server>,
}

impl LockServer {
    pub(crate) async fn start(config: &RunConfig) -> Result<Self> {
        let needs = |needs| config.nemesis.iter().any(|fault| fault.needs() == Some(needs));
        let clock = needs(Needs::Clock).then(Clock::new).transpose()?;
        let disk = needs(Needs::Disk).then(Disk::new).transpose()?;
        let (mut ensemble, mut cluster, mut watched, mut standbys) = (None, None, None, None);
        let mut others = Vec::new();
        for _ in 1..config.backend.nodes().unwrap_or(1) {
            others.push(replicating().start().await?);
        }
        let server = match config.backend {
            // The clock that is set is that of one node.
            Backend::Redis | Backend::Quorum3 | Backend::Quorum5 => {
                let mut redis = replicating();
                if let Some(clock) = &clock {
                    redis = redis.clock(clock);
                }
                if let Some(disk) = &disk {
                    redis = redis.disk(disk);
                }
                redis.start().await?
            }
            Backend::RedisSentinel => {
                let mut redis = replicating();
                if config.min_replicas {
                    redis = redis.setting("min-replicas-to-write", ["1"]);
                    redis = redis.setting("min-replicas-max-lag", ["1"]);
                }
                let replicas = config.replicas_each() as usize;
                let watched = watched.insert(redis.start_watched(replicas).await?);
                watched.redis()[0].clone()
            }
            Backend::RedisCluster => cluster.insert(replicating().start_cluster(true).await?)[0].clone(),
            Backend::MysqlRow | Backend::MysqlLease => {
                let mut mysql = MariaDb::new();
                if let Some(clock) = &clock {
                    mysql = mysql.clock(clock);
                }
                if let Some(disk) = &disk {
                    mysql = mysql.disk(disk);
                }
                mysql.start().await?
            }
            Backend::PostgresLease | Backend::PostgresSession => {
                // Enough, and few enough that a fault can take all that are left.
                let mut postgres = Postgres::new().setting("max_connections", "120");
                if let Some(clock) = &clock {
                    postgres = postgres.clock(clock);
                }
                postgres.start().await?
            }
            Backend::PostgresStandby => {
                let started = standbys.insert(Postgres::new().start_replicated(1).await?);
                if config.replicas > 0 {
                    started.set_synchronous(0, true).await?;
                }
                started[0].clone()
            }
            Backend::Zookeeper => ZooKeeper::new().tick(config.backend.tick()).start().await?,
            Backend::ZookeeperEnsemble => {
                let zookeeper = ZooKeeper::new().tick(config.backend.tick()).sync_limit(SYNC_LIMIT);
                let started = ensemble.insert(zookeeper.start_ensemble().await?);
                started.ready().await?;
                started[0].clone()
            }
        };
        if server.is_external() {
            return Err(Error::new(format!(
                "the server at {} ran already and is not ours to break: unset the variable that names it",
                server.address()
            )));
        }
        let replica = match needs(Needs::Replica) {
            true => Some(replicating().start().await?),
            false => None,
        };
        Ok(Self {
            server,
            ensemble,
            others,
            cluster,
            watched,
            standbys,
            primary: AtomicUsize::new(0),
            backend: config.backend,
            clock,
            falls_behind: config.has(Effect::ClockBehindForGood),
            disk,
            replica,
        })
    }

    /// Of all its servers, and then of its Sentinels.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let numeric = |server: &Server| {
            let address = server.address().parse();
            address.expect("the testbed's servers have numeric addresses")
        };
        (0..self.count()).map(|index| numeric(self.any(index))).collect()
    }

    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        self.url_at(&self.addresses())
    }

    /// The same by way of proxies.
    pub(crate) fn url_at(&self, addresses: &[SocketAddr]) -> String {
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        if self.backend.is_quorum() {
            let urls: Vec<String> = addresses.iter().map(|address| self.server.url_at(address)).collect();
            return format!("quorum:{}", urls.join("|"));
        }
        match &self.watched {
            Some(watched) => watched.sentinels()[0].url_at(&addresses[watched.redis().servers().len()..].join(",")),
            None => self.server.url_at(&addresses.join(",")),
        }
    }

    /// The number of servers, Sentinels among them.
    pub(crate) fn count(&self) -> usize {
        if self.standbys.is_some() {
            return 2;
        }
        match (&self.ensemble, &self.cluster, &self.watched) {
            (Some(ensemble), ..) => ensemble.servers().len(),
            (None, Some(cluster), _) => cluster.nodes().len(),
            (None, None, Some(watched)) => watched.redis().servers().len() + watched.sentinels().len(),
            (None, None, None) => 1 + self.others.len(),
        }
    }

    /// One of the servers, by its index.
    pub(crate) fn any(&self, index: usize) -> &Server {
        if let Some(standbys) = &self.standbys {
            return &standbys[index];
        }
        match (&self.ensemble, &self.cluster, &self.watched) {
            (Some(ensemble), ..) => &ensemble[index],
            (None, Some(cluster), _) => &cluster[index],
            (None, None, Some(watched)) => {
                let redis = watched.redis().servers();
                redis
                    .get(index)
                    .unwrap_or_else(|| &watched.sentinels()[index - redis.len()])
            }
            (None, None, None) if index == 0 => &self.server,
            (None, None, None) => &self.others[index - 1],
        }
    }

    pub(crate) fn ensemble(&self) -> Result<&Ensemble> {
        let ensemble = self.ensemble.as_ref();
        ensemble.ok_or_else(|| Error::new("this server is no ensemble"))
    }

    pub(crate) fn cluster(&self) -> Result<&Cluster> {
        let cluster = self.cluster.as_ref();
        cluster.ok_or_else(|| Error::new("this server is no cluster"))
    }

    pub(crate) fn watched(&self) -> Result<&Watched> {
        let watched = self.watched.as_ref();
        watched.ok_or_else(|| Error::new("no Sentinel watches this server"))
    }

    pub(crate) fn standbys(&self) -> Result<&Standbys> {
        let standbys = self.standbys.as_ref();
        standbys.ok_or_else(|| Error::new("no standby follows this server"))
    }

    /// The index of the server that takes writes, of a PostgreSQL and its standby.
    pub(crate) fn primary(&self) -> usize {
        self.primary.load(Ordering::Relaxed)
    }

    /// Makes the standby the primary, after the end of that.
    pub(crate) async fn promote(&self) -> Result<()> {
        let next = 1 - self.primary();
        self.standbys()?.promote(next).await?;
        self.primary.store(next, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until all its servers serve, if there are several.
    pub(crate) async fn ready(&self) -> Result<()> {
        if let Some(ensemble) = &self.ensemble {
            ensemble.ready().await?;
        }
        if let Some(cluster) = &self.cluster {
            cluster.until_it_serves().await?;
        }
        if let Some(watched) = &self.watched {
            watched.settled().await?;
        }
        Ok(())
    }

    /// The wall clock that the server runs on.
    pub(crate) fn clock(&self) -> Result<&Clock> {
        let clock = self.clock.as_ref();
        clock.ok_or_else(|| Error::new("this server's clock cannot be set"))
    }

    /// The disk that the server writes to.
    pub(crate) fn disk(&self) -> Result<&Disk> {
        let disk = self.disk.as_ref();
        disk.ok_or_else(|| Error::new("this server's disk cannot be filled"))
    }

    /// Sends a Redis a command, the parts of which are separated by spaces.
    pub(crate) async fn tell(&self, command: &str) -> Result<()> {
        tell(&self.server, command).await
    }

    /// Sets how many bytes a Redis may use, 0 for any number. Of several, any may be the master.
    pub(crate) async fn limit_memory(&self, bytes: &str) -> Result<()> {
        let Some(watched) = &self.watched else {
            return self.tell(&format!("CONFIG SET maxmemory {bytes}")).await;
        };
        for index in 0..watched.redis().servers().len() {
            let set = ["CONFIG", "SET", "maxmemory", bytes];
            watched.redis().call(index, &set).await?;
        }
        Ok(())
    }

    /// Waits until a Redis can write to its disk again.
    pub(crate) async fn has_room(&self) -> Result<()> {
        until_info(&self.server, "persistence", "aof_last_write_status:ok").await
    }

    /// Has a replica follow from now on, which is as far as this server when it returns.
    pub(crate) async fn replicate(&self) -> Result<()> {
        follow(self.replica()?, &self.server).await
    }

    /// The replica falls behind from now on.
    pub(crate) async fn fall_behind(&self) -> Result<()> {
        tell(self.replica()?, "REPLICAOF NO ONE").await
    }

    /// Replaces this server's data by the replica's. From now on it is read-only.
    pub(crate) async fn demote(&self) -> Result<()> {
        follow(&self.server, self.replica()?).await
    }

    /// This server takes writes again.
    pub(crate) async fn take_writes(&self) -> Result<()> {
        self.tell("REPLICAOF NO ONE").await
    }

    /// Has clients connect again, as if they were led to another server.
    pub(crate) async fn end_connections(&self) -> Result<()> {
        self.tell("CLIENT KILL TYPE normal").await?;
        self.tell("CLIENT KILL TYPE pubsub").await
    }

    fn replica(&self) -> Result<&Server> {
        let replica = self.replica.as_ref();
        replica.ok_or_else(|| Error::new("this server has no replica"))
    }
}
