//! Looks into the servers: versions, connections, and what a run has left.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lock_mysql::sqlx::{self, AssertSqlSafe, Connection, Row};
use lock_postgres::tokio_postgres;
use lock_redis::redis;

use super::redis_server::connect;
use super::{LockServer, TABLE, postgres};
use crate::backend::Backend;
use crate::error::{Error, Result};

impl LockServer {
    /// The entries on the server that nobody should have left, fence state aside.
    pub(crate) async fn leftovers(&self) -> Result<Vec<String>> {
        Ok(match self.backend {
            Backend::Redis | Backend::Quorum3 | Backend::Quorum5 => {
                let mut left = Vec::new();
                for index in 0..self.count() {
                    let keys: Vec<String> = redis::cmd("KEYS")
                        .arg("*")
                        .query_async(&mut connect(self.any(index)).await?)
                        .await?;
                    left.extend(keys.into_iter().filter(|key| !is_state(key)));
                }
                left
            }
            Backend::RedisSentinel => {
                let watched = self.watched()?;
                let keys = watched.redis().call(watched.settled().await?, &["KEYS", "*"]).await?;
                keys.lines().map(String::from).filter(|key| !is_state(key)).collect()
            }
            Backend::RedisCluster => {
                let mut keys = std::collections::BTreeSet::new();
                for index in 0..self.count() {
                    // A replica's expire when its master says so.
                    if self.cluster()?.call(index, &["ROLE"]).await?.starts_with("master") {
                        let here = self.cluster()?.call(index, &["KEYS", "*"]).await?;
                        keys.extend(here.lines().map(String::from));
                    }
                }
                keys.into_iter().filter(|key| !is_state(key)).collect()
            }
            Backend::MysqlRow => self.transactions().await?,
            Backend::MysqlLease => {
                let mut left = self.transactions().await?;
                left.extend(self.leases().await?);
                left
            }
            Backend::PostgresLease | Backend::PostgresStandby => {
                postgres::leftovers(&self.postgres().await?, !self.falls_behind).await?
            }
            Backend::PostgresSession => postgres::advisory_locks(&self.postgres().await?).await?,
            Backend::Zookeeper | Backend::ZookeeperEnsemble => match self.zookeeper(0, "zk_ephemerals_count")? {
                0 => Vec::new(),
                count => vec![format!("{count} ephemeral nodes")],
            },
        })
    }

    /// The number of the server's clients.
    pub(crate) async fn connections(&self) -> Result<usize> {
        Ok(match self.backend {
            Backend::Redis | Backend::Quorum3 | Backend::Quorum5 => {
                let mut count = 0;
                for index in 0..self.count() {
                    let list: String = redis::cmd("CLIENT")
                        .arg("LIST")
                        .query_async(&mut connect(self.any(index)).await?)
                        .await?;
                    count += list.lines().count();
                }
                count
            }
            Backend::RedisSentinel | Backend::RedisCluster => {
                let mut count = 0;
                for index in 0..self.count() {
                    let list = self.clients(index).await?;
                    // Not those between the servers, nor this one's own.
                    let between = [" flags=S", " flags=M", " name=sentinel-", " cmd=restore-asking "];
                    let is_client = |line: &&str| !between.iter().any(|sign| line.contains(sign));
                    count += list.lines().filter(is_client).count() - 1;
                }
                count
            }
            Backend::MysqlRow | Backend::MysqlLease => {
                let mut connection = self.mysql().await?;
                let ask = "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.processlist WHERE user = 'app'";
                let row = sqlx::query(ask).fetch_one(&mut connection).await?;
                usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0)
            }
            Backend::PostgresLease | Backend::PostgresSession => postgres::connections(&self.postgres().await?).await?,
            Backend::PostgresStandby => {
                let mut count = 0;
                for index in 0..self.count() {
                    count += postgres::connections(&postgres::connect(self.any(index)).await?).await?;
                }
                count
            }
            Backend::Zookeeper | Backend::ZookeeperEnsemble => {
                let each = (0..self.count()).map(|index| self.zookeeper(index, "zk_num_alive_connections"));
                each.sum::<Result<usize>>()?
            }
        })
    }

    /// The connections to one of several servers of which some are Sentinels.
    async fn clients(&self, index: usize) -> Result<String> {
        const LIST: &[&str] = &["CLIENT", "LIST"];
        let Some(watched) = &self.watched else {
            return Ok(self.cluster()?.call(index, LIST).await?);
        };
        let count = watched.redis().servers().len();
        Ok(match index.checked_sub(count) {
            None => watched.redis().call(index, LIST).await?,
            Some(sentinel) => watched.ask(sentinel, LIST).await?,
        })
    }

    /// The version that the server reports.
    pub(crate) async fn version(&self) -> Result<String> {
        Ok(match self.backend {
            Backend::Redis | Backend::RedisSentinel | Backend::RedisCluster | Backend::Quorum3 | Backend::Quorum5 => {
                let info: String = redis::cmd("INFO")
                    .arg("server")
                    .query_async(&mut connect(&self.server).await?)
                    .await?;
                let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
                format!("Redis {}", version.unwrap_or("of an unknown version"))
            }
            Backend::MysqlRow | Backend::MysqlLease => {
                let mut connection = self.mysql().await?;
                let row = sqlx::query("SELECT VERSION()").fetch_one(&mut connection).await?;
                row.try_get(0)?
            }
            Backend::PostgresLease | Backend::PostgresSession | Backend::PostgresStandby => {
                postgres::version(&self.postgres().await?).await?
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

    /// The same to a PostgreSQL that takes writes.
    pub(crate) async fn postgres(&self) -> Result<tokio_postgres::Client> {
        postgres::connect(self.any(self.primary())).await
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
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(b"mntr")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Whether a Redis keeps this key for later: fences, marks of the server, and those of the processes of a quorum that run.
fn is_state(key: &str) -> bool {
    key.ends_with(":fence") || key.contains("}member") || key.contains("polylock-quorum-member-")
}
