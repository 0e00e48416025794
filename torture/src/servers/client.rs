//! The backend under test.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use lock_core::backend::DistributedLock;
use lock_mysql::{MySqlConfig, Strategy};
use lock_postgres::PostgresConfig;
use lock_quorum::{QuorumBackend, QuorumConfig};
use lock_redis::{RedisBackend, RedisConfig};
use lock_zookeeper::{HeartbeatKind, ZooKeeperBackend, ZooKeeperConfig};

use super::{REDIS_PREFIX, TABLE};
use crate::backend::Backend;
use crate::config::RunConfig;
use crate::fault::Effect;

/// The backend under test, reaching its server by this URL, and the nodes of a cluster at other ports by these ways.
pub(crate) fn backend(
    config: &RunConfig,
    url: &str,
    ways: &[(u16, SocketAddr)],
) -> lock_core::Result<Arc<dyn DistributedLock>> {
    Ok(match config.backend {
        Backend::Redis => Arc::new(RedisBackend::new(redis_config(config, url)?)?),
        Backend::Quorum3 | Backend::Quorum5 => {
            let (quorum, urls) = QuorumConfig::from_url(url)?;
            let nodes = urls.into_iter().map(|url| {
                let node: Arc<dyn DistributedLock> = Arc::new(RedisBackend::new(redis_config(config, url)?)?);
                Ok(node)
            });
            let nodes = nodes.collect::<lock_core::Result<Vec<_>>>()?;
            Arc::new(QuorumBackend::with_config(nodes, &quorum)?)
        }
        Backend::RedisSentinel | Backend::RedisCluster => {
            let ways: HashMap<u16, SocketAddr> = ways.iter().copied().collect();
            let nodes = move |host: &str, port| match ways.get(&port) {
                Some(way) => (way.ip().to_string(), way.port()),
                None => (host.to_owned(), port),
            };
            Arc::new(RedisBackend::new(
                redis_config(config, url)?.with_node_addresses(nodes),
            )?)
        }
        Backend::MysqlRow => lock_mysql::backend(MySqlConfig::from_url(url)?.with_table(TABLE))?,
        Backend::MysqlLease => {
            let leases = MySqlConfig::from_url(url)?.with_strategy(Strategy::Lease);
            lock_mysql::backend(leases.with_table(TABLE))?
        }
        Backend::PostgresLease | Backend::PostgresStandby => {
            lock_postgres::backend(PostgresConfig::from_url(url)?.with_table(TABLE))?
        }
        Backend::PostgresSession => {
            let sessions = PostgresConfig::from_url(url)?
                .with_strategy(lock_postgres::Strategy::Session)
                .with_session_timeout(config.ttl);
            lock_postgres::backend(sessions.with_table(TABLE))?
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

fn redis_config(config: &RunConfig, url: &str) -> lock_core::Result<RedisConfig> {
    let redis = RedisConfig::from_url(url)?.with_prefix(REDIS_PREFIX);
    Ok(redis
        .with_replicas(config.replicas)
        .with_restart_delay(config.restart_delay.unwrap_or_default()))
}
