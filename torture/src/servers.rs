//! The lock servers: started, reached, broken and looked into.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_mysql::sqlx::{self, Connection, Row};
use lock_mysql::{MySqlConfig, RowLockBackend};
use lock_redis::{RedisBackend, RedisConfig, redis};
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Clock, MariaDb, Redis, Server, ZooKeeper};

use crate::error::{Error, Result};
use crate::setting::{Backend, Fault, Setting};

/// Before all names of a run.
pub(crate) const REDIS_PREFIX: &str = "torture:";

/// The server of a run.
#[derive(Debug)]
pub(crate) struct LockServer {
    pub(crate) server: Server,
    backend: Backend,
    clock: Option<Clock>,
}

impl LockServer {
    pub(crate) async fn start(setting: &Setting) -> Result<Self> {
        let needs_clock = setting
            .nemesis
            .iter()
            .any(|fault| matches!(fault, Fault::Clock | Fault::ClockBack));
        let clock = if needs_clock { Some(Clock::new()?) } else { None };
        let server = match setting.backend {
            Backend::Redis => {
                let mut redis = Redis::new();
                if let Some(clock) = &clock {
                    redis = redis.clock(clock);
                }
                redis.start().await?
            }
            Backend::MysqlRow => MariaDb::new().start().await?,
            Backend::Zookeeper => ZooKeeper::new().tick(setting.backend.tick()).start().await?,
        };
        if server.is_external() {
            return Err(Error::new(format!(
                "the server at {} ran already and is not ours to break: unset the variable that names it",
                server.address()
            )));
        }
        Ok(Self {
            server,
            backend: setting.backend,
            clock,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let address = self.server.address();
        address.parse().expect("the testbed's servers have numeric addresses")
    }

    /// Moves the server's wall clock this far from the real one.
    pub(crate) fn set_clock(&self, nanos: i64) -> Result<()> {
        let clock = self
            .clock
            .as_ref()
            .ok_or_else(|| Error::new("this server's clock cannot be set"))?;
        Ok(clock.set(nanos)?)
    }

    /// Makes a Redis forget its scripts.
    pub(crate) async fn flush_scripts(&self) -> Result<()> {
        let mut connection = self.redis().await?;
        Ok(redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await?)
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
            Backend::MysqlRow => {
                let mut connection = sqlx::mysql::MySqlConnection::connect(&self.server.url()).await?;
                let ask = "SELECT CAST(trx_mysql_thread_id AS CHAR) FROM information_schema.innodb_trx \
                           WHERE trx_mysql_thread_id <> CONNECTION_ID()";
                let rows = sqlx::query(ask).fetch_all(&mut connection).await?;
                let transaction = |row: &sqlx::mysql::MySqlRow| {
                    Ok(format!("transaction of connection {}", row.try_get::<String, _>(0)?))
                };
                rows.iter().map(transaction).collect::<Result<_>>()?
            }
            Backend::Zookeeper => match self.zookeeper("zk_ephemerals_count")? {
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
            Backend::MysqlRow => {
                let mut connection = sqlx::mysql::MySqlConnection::connect(&self.server.url()).await?;
                let ask = "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.processlist WHERE user = 'app'";
                let row = sqlx::query(ask).fetch_one(&mut connection).await?;
                usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0)
            }
            Backend::Zookeeper => self.zookeeper("zk_num_alive_connections")?,
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
            Backend::MysqlRow => {
                let mut connection = sqlx::mysql::MySqlConnection::connect(&self.server.url()).await?;
                let row = sqlx::query("SELECT VERSION()").fetch_one(&mut connection).await?;
                row.try_get(0)?
            }
            Backend::Zookeeper => {
                let answer = self.zookeeper_says()?;
                let version = answer.lines().find_map(|line| line.strip_prefix("zk_version"));
                let version = version.and_then(|version| version.split('-').next()).unwrap_or("");
                format!("ZooKeeper {}", version.trim())
            }
        })
    }

    async fn redis(&self) -> Result<redis::aio::MultiplexedConnection> {
        let client = redis::Client::open(self.server.url())?;
        Ok(client.get_multiplexed_async_connection().await?)
    }

    /// One number of `mntr`.
    fn zookeeper(&self, what: &str) -> Result<usize> {
        let answer = self.zookeeper_says()?;
        let value = answer
            .lines()
            .find_map(|line| line.strip_prefix(what)?.trim().parse().ok());
        value.ok_or_else(|| Error::new(format!("ZooKeeper's mntr says nothing of {what}")))
    }

    fn zookeeper_says(&self) -> Result<String> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"mntr")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// The backend under test, reaching its server by this URL.
pub(crate) fn backend(setting: &Setting, url: &str) -> lock_core::Result<Arc<dyn DistributedLock>> {
    Ok(match setting.backend {
        Backend::Redis => Arc::new(RedisBackend::new(
            RedisConfig::from_url(url)?.with_prefix(REDIS_PREFIX),
        )?),
        Backend::MysqlRow => Arc::new(RowLockBackend::new(MySqlConfig::from_url(url)?.with_table("torture"))?),
        Backend::Zookeeper => {
            let config = ZooKeeperConfig::from_url(url)?.with_root("/torture")?;
            Arc::new(ZooKeeperBackend::new(config.with_session_timeout(setting.ttl)?))
        }
    })
}
