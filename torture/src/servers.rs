//! The lock servers: started, reached, broken and looked into.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_mysql::sqlx::{self, AssertSqlSafe, Connection, Row};
use lock_mysql::{MySqlConfig, Strategy};
use lock_redis::{RedisBackend, RedisConfig, redis};
use lock_zookeeper::{HeartbeatKind, ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Clock, Disk, Ensemble, MariaDb, Redis, Server, ZooKeeper};

use tokio::time::{Instant, sleep};

use crate::backend::Backend;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::fault::{Effect, Needs};

/// Before all names of a run.
pub(crate) const REDIS_PREFIX: &str = "torture:";
/// The table of a run on a MySQL.
const TABLE: &str = "torture";

/// After so many ticks, more than a session has, the servers of an ensemble notice that one of them is silent.
const SYNC_LIMIT: u32 = 6;

/// The server of a run.
#[derive(Debug)]
pub(crate) struct LockServer {
    /// Of an ensemble, the first one.
    pub(crate) server: Server,
    ensemble: Option<Ensemble>,
    backend: Backend,
    clock: Option<Clock>,
    disk: Option<Disk>,
    replica: Option<Server>,
}

impl LockServer {
    pub(crate) async fn start(config: &RunConfig) -> Result<Self> {
        let needs = |needs| config.nemesis.iter().any(|fault| fault.needs() == Some(needs));
        let clock = needs(Needs::Clock).then(Clock::new).transpose()?;
        let disk = needs(Needs::Disk).then(Disk::new).transpose()?;
        let mut ensemble = None;
        let server = match config.backend {
            Backend::Redis => {
                let mut redis = replicating();
                if let Some(clock) = &clock {
                    redis = redis.clock(clock);
                }
                if let Some(disk) = &disk {
                    redis = redis.disk(disk);
                }
                redis.start().await?
            }
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
            backend: config.backend,
            clock,
            disk,
            replica,
        })
    }

    /// Of all its servers.
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
        self.server.url_at(&addresses.join(","))
    }

    /// How many servers there are.
    pub(crate) fn count(&self) -> usize {
        self.ensemble.as_ref().map_or(1, |ensemble| ensemble.servers().len())
    }

    /// One of the servers, by its index.
    pub(crate) fn any(&self, index: usize) -> &Server {
        self.ensemble.as_ref().map_or(&self.server, |ensemble| &ensemble[index])
    }

    pub(crate) fn ensemble(&self) -> Result<&Ensemble> {
        let ensemble = self.ensemble.as_ref();
        ensemble.ok_or_else(|| Error::new("this server is no ensemble"))
    }

    /// Waits until all its servers serve, if it is an ensemble.
    pub(crate) async fn ready(&self) -> Result<()> {
        if let Some(ensemble) = &self.ensemble {
            ensemble.ready().await?;
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

    /// What the replica has is what this server has, as if clients were led to it. Until then it is read-only.
    pub(crate) async fn fail_over(&self) -> Result<()> {
        follow(&self.server, self.replica()?).await?;
        self.tell("REPLICAOF NO ONE").await
    }

    fn replica(&self) -> Result<&Server> {
        let replica = self.replica.as_ref();
        replica.ok_or_else(|| Error::new("this server has no replica"))
    }

    /// What is there that nobody should have left, fence state aside.
    pub(crate) async fn leftovers(&self) -> Result<Vec<String>> {
        Ok(match self.backend {
            Backend::Redis => {
                let keys: Vec<String> = redis::cmd("KEYS")
                    .arg("*")
                    .query_async(&mut self.redis().await?)
                    .await?;
                keys.into_iter().filter(|key| !key.ends_with(":fence")).collect()
            }
            Backend::MysqlRow => self.transactions().await?,
            Backend::MysqlLease => {
                let mut left = self.transactions().await?;
                left.extend(self.leases().await?);
                left
            }
            Backend::Zookeeper | Backend::ZookeeperEnsemble => match self.zookeeper(0, "zk_ephemerals_count")? {
                0 => Vec::new(),
                count => vec![format!("{count} ephemeral nodes")],
            },
        })
    }

    /// How many clients the server has.
    pub(crate) async fn connections(&self) -> Result<usize> {
        Ok(match self.backend {
            Backend::Redis => {
                let list: String = redis::cmd("CLIENT")
                    .arg("LIST")
                    .query_async(&mut self.redis().await?)
                    .await?;
                list.lines().count()
            }
            Backend::MysqlRow | Backend::MysqlLease => {
                let mut connection = self.mysql().await?;
                let ask = "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.processlist WHERE user = 'app'";
                let row = sqlx::query(ask).fetch_one(&mut connection).await?;
                usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0)
            }
            Backend::Zookeeper | Backend::ZookeeperEnsemble => {
                let each = (0..self.count()).map(|index| self.zookeeper(index, "zk_num_alive_connections"));
                each.sum::<Result<usize>>()?
            }
        })
    }

    /// What the server says it is.
    pub(crate) async fn version(&self) -> Result<String> {
        Ok(match self.backend {
            Backend::Redis => {
                let info: String = redis::cmd("INFO")
                    .arg("server")
                    .query_async(&mut self.redis().await?)
                    .await?;
                let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
                format!("Redis {}", version.unwrap_or("of an unknown version"))
            }
            Backend::MysqlRow | Backend::MysqlLease => {
                let mut connection = self.mysql().await?;
                let row = sqlx::query("SELECT VERSION()").fetch_one(&mut connection).await?;
                row.try_get(0)?
            }
            Backend::Zookeeper | Backend::ZookeeperEnsemble => {
                let answer = self.zookeeper_says(0)?;
                let version = answer.lines().find_map(|line| line.strip_prefix("zk_version"));
                let version = version.and_then(|version| version.split('-').next()).unwrap_or("");
                format!("ZooKeeper {}", version.trim())
            }
        })
    }

    /// A connection of its own, past all proxies.
    pub(crate) async fn mysql(&self) -> Result<sqlx::mysql::MySqlConnection> {
        Ok(sqlx::mysql::MySqlConnection::connect(&self.server.url()).await?)
    }

    /// Transactions that are open on a MySQL.
    async fn transactions(&self) -> Result<Vec<String>> {
        let ask = "SELECT CONCAT('transaction of connection ',trx_mysql_thread_id) FROM information_schema.innodb_trx \
                   WHERE trx_mysql_thread_id <> CONNECTION_ID()";
        self.texts(ask).await
    }

    /// Rows that say that somebody has a name, or that a waiter is to have it.
    async fn leases(&self) -> Result<Vec<String>> {
        let now = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";
        let ask = format!(
            "SELECT CONCAT('lease of ',name,' for ',holder,', ',expires-{now},' us') FROM {TABLE}_leases \
             WHERE holder IS NOT NULL AND expires>{now} \
             UNION ALL SELECT CONCAT('share of ',name,' for ',holder,', ',expires-{now},' us') \
             FROM {TABLE}_lease_holders WHERE expires>{now} \
             UNION ALL SELECT CONCAT('mark of a waiter for ',name,', ',wanted-{now},' us') FROM {TABLE}_leases \
             WHERE wanted>{now}"
        );
        self.texts(&ask).await
    }

    /// One column of a MySQL's answer.
    async fn texts(&self, ask: &str) -> Result<Vec<String>> {
        let mut connection = self.mysql().await?;
        let rows = sqlx::raw_sql(AssertSqlSafe(ask.to_owned()));
        let rows = rows.fetch_all(&mut connection).await?;
        let text = |row: &sqlx::mysql::MySqlRow| {
            let text: Vec<u8> = row.try_get_unchecked(0)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        rows.iter().map(text).collect()
    }

    async fn redis(&self) -> Result<redis::aio::MultiplexedConnection> {
        connect(&self.server).await
    }

    /// One number of a server's `mntr`.
    fn zookeeper(&self, index: usize, what: &str) -> Result<usize> {
        let answer = self.zookeeper_says(index)?;
        let value = answer
            .lines()
            .find_map(|line| line.strip_prefix(what)?.trim().parse().ok());
        value.ok_or_else(|| Error::new(format!("ZooKeeper's mntr says nothing of {what}")))
    }

    fn zookeeper_says(&self, index: usize) -> Result<String> {
        let mut stream = TcpStream::connect(self.any(index).address())?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"mntr")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// A Redis that synchronizes a replica at once.
fn replicating() -> Redis {
    Redis::new().setting("repl-diskless-sync-delay", ["0"])
}

async fn connect(server: &Server) -> Result<redis::aio::MultiplexedConnection> {
    // The driver's defaults, a second to connect and half a second for an answer, are what a busy machine may take.
    let patience = Some(Duration::from_secs(60));
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(patience)
        .set_response_timeout(patience);
    let client = redis::Client::open(server.url())?;
    Ok(client.get_multiplexed_async_connection_with_config(&patient).await?)
}

async fn tell(server: &Server, command: &str) -> Result<()> {
    let mut words = command.split(' ');
    let mut parts = redis::cmd(words.next().unwrap_or_default());
    words.for_each(|word| _ = parts.arg(word));
    parts.query_async::<redis::Value>(&mut connect(server).await?).await?;
    Ok(())
}

async fn follow(server: &Server, other: &Server) -> Result<()> {
    tell(server, &format!("REPLICAOF 127.0.0.1 {}", other.port())).await?;
    until_info(server, "replication", "master_link_status:up").await
}

async fn until_info(server: &Server, section: &str, line: &str) -> Result<()> {
    const LONG: Duration = Duration::from_secs(20);
    let start = Instant::now();
    let mut connection = connect(server).await?;
    loop {
        let info: String = redis::cmd("INFO").arg(section).query_async(&mut connection).await?;
        if info.lines().any(|said| said == line) {
            return Ok(());
        }
        if start.elapsed() > LONG {
            return Err(Error::new(format!("the server does not say {line} within {LONG:?}")));
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// The backend under test, reaching its server by this URL.
pub(crate) fn backend(config: &RunConfig, url: &str) -> lock_core::Result<Arc<dyn DistributedLock>> {
    Ok(match config.backend {
        Backend::Redis => Arc::new(RedisBackend::new(
            RedisConfig::from_url(url)?.with_prefix(REDIS_PREFIX),
        )?),
        Backend::MysqlRow => lock_mysql::backend(MySqlConfig::from_url(url)?.with_table(TABLE))?,
        Backend::MysqlLease => {
            let leases = MySqlConfig::from_url(url)?.with_strategy(Strategy::Lease);
            lock_mysql::backend(leases.with_table(TABLE))?
        }
        Backend::Zookeeper | Backend::ZookeeperEnsemble => {
            let mut zookeeper = ZooKeeperConfig::from_url(url)?.with_root("/torture");
            if config.has(Effect::PartsLeader) {
                zookeeper = zookeeper.with_heartbeat(HeartbeatKind::Write);
            }
            Arc::new(ZooKeeperBackend::new(zookeeper.with_session_timeout(config.ttl))?)
        }
    })
}
