//! The server, as it is seen beside a peer's client: whether a name is held, and how its hold is ended.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use lock_core::backend::{HolderStatus, LockStatus};
use lock_core::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use sha2::Sha256;
use sqlx::{Connection, MySqlConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::NoTls;
use zookeeper_client::Client;

/// How a library stores its locks at the server behind this URL.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) store: Store,
    pub(crate) url: String,
}

/// Where the lock of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// A key of Redis: this, and then the name.
    Redis(&'static str),
    /// The nodes in a directory of ZooKeeper, of which the first one holds.
    ZooKeeper,
    /// A named lock of MySQL.
    MySql,
    /// An advisory lock of PostgreSQL, whose key sqlx derives from the name.
    Postgres,
}

const PATIENCE: Duration = Duration::from_secs(10);

impl View {
    /// What the library is given as the name.
    pub(crate) fn full_name(&self, namespace: &str, name: &str) -> String {
        match self.store {
            Store::Redis(_) | Store::Postgres => format!("{namespace}:{name}"),
            // distributed-lock-mysql adds a hash to names of other characters, and lengths.
            Store::MySql => letters(&format!("{namespace}:{name}")),
            Store::ZooKeeper => format!("/{namespace}/{name}"),
        }
    }

    /// Who holds the name.
    pub(crate) async fn status(&self, namespace: &str, name: &str) -> Result<LockStatus> {
        let name = self.full_name(namespace, name);
        let looked = tokio::time::timeout(PATIENCE, async {
            match self.store {
                Store::Redis(prefix) => self.redis_status(&format!("{prefix}{name}")).await.map_err(unavailable),
                Store::ZooKeeper => self.zookeeper_status(&name).await.map_err(unavailable),
                Store::MySql => self.mysql_status(&name).await.map_err(unavailable),
                Store::Postgres => self.postgres_status(&name).await.map_err(unavailable),
            }
        });
        looked.await.map_err(unavailable)?
    }

    /// Ends the hold of the name without its holder.
    pub(crate) async fn take_away(&self, namespace: &str, name: &str) {
        let name = self.full_name(namespace, name);
        match self.store {
            Store::Redis(prefix) => {
                let mut redis = self.redis().await.expect("connect to Redis");
                let mut delete = redis::cmd("DEL");
                let deleted: redis::RedisResult<u32> =
                    delete.arg(format!("{prefix}{name}")).query_async(&mut redis).await;
                assert_eq!(deleted, Ok(1), "the lock's key is not where it should be");
            }
            Store::ZooKeeper => {
                let client = self.zookeeper().await.expect("connect to ZooKeeper");
                let nodes = client.list_children(&name).await.expect("list the lock's directory");
                let holder = nodes
                    .iter()
                    .min_by_key(|node| sequence(node))
                    .expect("somebody holds it");
                client
                    .delete(&format!("{name}/{holder}"), None)
                    .await
                    .expect("delete the holder's node");
            }
            Store::MySql => {
                let mut mysql = MySqlConnection::connect(&self.url).await.expect("connect to MySQL");
                let holder = holder(&mut mysql, &name).await.expect("ask who holds it");
                let holder = holder.expect("somebody holds it");
                let kill = sqlx::AssertSqlSafe(format!("KILL {holder}"));
                sqlx::raw_sql(kill).execute(&mut mysql).await.expect("kill the session");
            }
            Store::Postgres => {
                let postgres = self.postgres().await.expect("connect to PostgreSQL");
                let session = session(&postgres, &name).await.expect("ask who holds it");
                let session = session.expect("somebody holds it");
                // With a time limit, it returns whether the session has ended.
                let end = "SELECT pg_terminate_backend($1,10000)";
                let ended = postgres.query_one(end, &[&session]).await.expect("end the session");
                assert!(ended.get::<_, bool>(0), "the holder's session does not end");
            }
        }
    }

    /// What the server calls itself.
    pub(crate) async fn version(&self) -> std::result::Result<String, String> {
        match self.store {
            Store::Redis(_) => {
                let mut redis = self.redis().await.map_err(|error| error.to_string())?;
                let info: redis::RedisResult<String> = redis::cmd("INFO").arg("server").query_async(&mut redis).await;
                let info = info.map_err(|error| error.to_string())?;
                let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
                Ok(format!("Redis {}", version.unwrap_or("?").trim()))
            }
            Store::ZooKeeper => {
                let mut stream = TcpStream::connect(self.hosts())
                    .await
                    .map_err(|error| error.to_string())?;
                stream.write_all(b"srvr").await.map_err(|error| error.to_string())?;
                let mut answer = String::new();
                stream
                    .read_to_string(&mut answer)
                    .await
                    .map_err(|error| error.to_string())?;
                let version = answer
                    .trim_start_matches("Zookeeper version: ")
                    .split(['-', ','])
                    .next();
                Ok(format!("ZooKeeper {}", version.unwrap_or("?")))
            }
            Store::MySql => {
                let mut mysql = MySqlConnection::connect(&self.url)
                    .await
                    .map_err(|error| error.to_string())?;
                let version = sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut mysql).await;
                version
                    .map(|version: String| format!("MySQL {}", version.split('-').next().unwrap_or_default()))
                    .map_err(|error| error.to_string())
            }
            Store::Postgres => {
                let postgres = self.postgres().await.map_err(|error| error.to_string())?;
                let version = postgres.query_one("SHOW server_version", &[]).await;
                let version: String = version.map_err(|error| error.to_string())?.get(0);
                Ok(format!("PostgreSQL {}", version.split(' ').next().unwrap_or_default()))
            }
        }
    }

    /// The hosts of ZooKeeper's URL.
    fn hosts(&self) -> &str {
        let rest = self.url.trim_start_matches("zookeeper://");
        rest.split(['/', '?']).next().unwrap_or(rest)
    }

    async fn redis(&self) -> redis::RedisResult<MultiplexedConnection> {
        let patient = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let client = redis::Client::open(self.url.as_str())?;
        client.get_multiplexed_async_connection_with_config(&patient).await
    }

    async fn redis_status(&self, key: &str) -> redis::RedisResult<LockStatus> {
        let mut redis = self.redis().await?;
        let exists: bool = redis::cmd("EXISTS").arg(key).query_async(&mut redis).await?;
        Ok(match exists {
            true => LockStatus::held(HolderStatus::new()),
            false => LockStatus::free(),
        })
    }

    async fn zookeeper(&self) -> std::result::Result<Client, zookeeper_client::Error> {
        Client::connect(self.hosts()).await
    }

    async fn zookeeper_status(&self, directory: &str) -> std::result::Result<LockStatus, zookeeper_client::Error> {
        let client = self.zookeeper().await?;
        let nodes = match client.list_children(directory).await {
            Ok(nodes) => nodes.len(),
            Err(zookeeper_client::Error::NoNode) => 0,
            Err(error) => return Err(error),
        };
        Ok(match nodes {
            0 => LockStatus::free().with_waiting(0),
            nodes => LockStatus::held(HolderStatus::new()).with_waiting(nodes - 1),
        })
    }

    async fn mysql_status(&self, name: &str) -> sqlx::Result<LockStatus> {
        let mut mysql = MySqlConnection::connect(&self.url).await?;
        let holder = holder(&mut mysql, name).await?;
        Ok(match holder {
            Some(_) => LockStatus::held(HolderStatus::new()),
            None => LockStatus::free(),
        })
    }

    async fn postgres(&self) -> std::result::Result<tokio_postgres::Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        // It ends with the client.
        tokio::spawn(connection);
        Ok(client)
    }

    async fn postgres_status(&self, name: &str) -> std::result::Result<LockStatus, tokio_postgres::Error> {
        let postgres = self.postgres().await?;
        let session = session(&postgres, name).await?;
        Ok(match session {
            Some(_) => LockStatus::held(HolderStatus::new()),
            None => LockStatus::free(),
        })
    }
}

async fn holder(mysql: &mut MySqlConnection, name: &str) -> sqlx::Result<Option<u64>> {
    let ask = sqlx::query_scalar("SELECT CAST(IS_USED_LOCK(?) AS UNSIGNED)");
    ask.bind(name).fetch_one(mysql).await
}

/// The server's process whose session holds the name.
async fn session(
    postgres: &tokio_postgres::Client,
    name: &str,
) -> std::result::Result<Option<i32>, tokio_postgres::Error> {
    // `objsubid` is 1 for a key of 64 bits.
    let ask = "SELECT pid FROM pg_locks WHERE locktype='advisory' AND objsubid=1 AND granted \
               AND (classid::bigint<<32)|objid::bigint=$1";
    let row = postgres.query_opt(ask, &[&advisory_key(name)]).await?;
    Ok(row.map(|row| row.get(0)))
}

/// The key that `PgAdvisoryLock::new` of sqlx derives from the name: 64 bits of HKDF, RFC 5869, without a salt.
fn advisory_key(name: &str) -> i64 {
    let extracted = hmac(&[], &[name.as_bytes()]);
    let expanded = hmac(&extracted, &[b"SQLx (Rust) Postgres advisory lock", &[1]]);
    let (key, _) = expanded.split_first_chunk().expect("32 bytes");
    i64::from_le_bytes(*key)
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    for part in parts {
        hmac.update(part);
    }
    hmac.finalize().into_bytes().into()
}

/// Two letters for each byte.
fn letters(text: &str) -> String {
    let halves = text.bytes().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(b'a' + half)).collect()
}

/// The number that the server gave to a node.
fn sequence(node: &str) -> u64 {
    let digits = node.get(node.len().saturating_sub(10)..).unwrap_or_default();
    digits.parse().unwrap_or(u64::MAX)
}

fn unavailable(error: impl std::error::Error) -> Error {
    let error = error.to_string();
    Error::new(ErrorKind::Unavailable, error.clone()).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_an_advisory_lock_is_that_of_the_documentation_of_sqlx() {
        assert_eq!(
            advisory_key("my first Postgres advisory lock!"),
            -5_560_419_505_042_474_287
        );
    }
}
