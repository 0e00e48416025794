//! How polylock's backends are made.

use std::sync::Arc;

use lock_core::MemoryBackend;
use lock_mysql::{MySqlConfig, Strategy};
use lock_postgres::PostgresConfig;
use lock_redis::RedisBackend;
use lock_zookeeper::ZooKeeperBackend;

use crate::entry::{Backend, MakeBackend};

/// Makes polylock's backend for this server: on MySQL, row locks.
pub(crate) fn maker(backend: Backend, url: &str) -> MakeBackend {
    let url = url.to_owned();
    match backend {
        // A quorum's servers make its own.
        Backend::Memory | Backend::Quorum => {
            let server = MemoryBackend::new();
            Arc::new(move || Ok(Arc::new(server.clone())))
        }
        Backend::Redis => Arc::new(move || Ok(Arc::new(RedisBackend::from_url(&url)?))),
        Backend::Mysql => mysql_maker(&url, Strategy::Row),
        Backend::Postgres => Arc::new(move || lock_postgres::backend(PostgresConfig::from_url(&url)?)),
        Backend::Zookeeper => Arc::new(move || Ok(Arc::new(ZooKeeperBackend::from_url(&url)?))),
    }
}

/// The same for a strategy of MySQL.
pub(crate) fn mysql_maker(url: &str, strategy: Strategy) -> MakeBackend {
    let url = url.to_owned();
    Arc::new(move || {
        // A release in the background keeps its connection for a moment.
        let config = MySqlConfig::from_url(&url)?.with_max_connections(200);
        lock_mysql::backend(config.with_strategy(strategy))
    })
}
