//! The lock servers.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::names::name_of;

/// Which lock server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Backend {
    Redis,
    /// A master and its replica, and three Sentinels that replace it.
    RedisSentinel,
    /// A cluster of three masters, each with a replica.
    RedisCluster,
    MysqlRow,
    MysqlLease,
    PostgresLease,
    PostgresSession,
    /// A primary and its standby, under the lease strategy.
    PostgresStandby,
    Zookeeper,
    /// Three servers.
    ZookeeperEnsemble,
    /// Three Redis that know nothing of each other, of which two have to agree.
    Quorum3,
    /// Five, of which three have to agree.
    Quorum5,
}

impl Backend {
    pub(crate) const ALL: [Self; 12] = [
        Self::Redis,
        Self::RedisSentinel,
        Self::RedisCluster,
        Self::MysqlRow,
        Self::MysqlLease,
        Self::PostgresLease,
        Self::PostgresSession,
        Self::PostgresStandby,
        Self::Zookeeper,
        Self::ZookeeperEnsemble,
        Self::Quorum3,
        Self::Quorum5,
    ];

    /// The ttl of a run that names none. A row lock counts whole seconds, ZooKeeper's sessions several ticks.
    pub(crate) fn default_ttl(self) -> Duration {
        match self {
            Self::Redis => Duration::from_millis(500),
            // Each renewal is a write; a quorum waits a sixth of it for a silent node, and a master a twelfth for its replicas; and a
            // slot's keys take their time to move.
            Self::MysqlLease
            | Self::PostgresLease
            | Self::PostgresStandby
            | Self::RedisSentinel
            | Self::RedisCluster
            | Self::Quorum3
            | Self::Quorum5 => Duration::from_secs(1),
            Self::MysqlRow | Self::PostgresSession | Self::Zookeeper | Self::ZookeeperEnsemble => {
                Duration::from_secs(2)
            }
        }
    }

    /// The resolution of the server's clock.
    pub(crate) fn tick(self) -> Duration {
        match self {
            Self::Redis
            | Self::RedisSentinel
            | Self::RedisCluster
            | Self::MysqlLease
            | Self::PostgresLease
            | Self::PostgresSession
            | Self::PostgresStandby
            | Self::Quorum3
            | Self::Quorum5 => Duration::from_millis(100),
            Self::MysqlRow => Duration::from_secs(1),
            Self::Zookeeper | Self::ZookeeperEnsemble => Duration::from_millis(500),
        }
    }

    /// Whether a hold can be extended by hand.
    pub(crate) fn extends(self) -> bool {
        !self.is_zookeeper() && self != Self::PostgresSession
    }

    pub(crate) fn is_zookeeper(self) -> bool {
        matches!(self, Self::Zookeeper | Self::ZookeeperEnsemble)
    }

    /// The number of independent servers, if it is a quorum of them.
    pub(crate) fn nodes(self) -> Option<usize> {
        match self {
            Self::Quorum3 => Some(3),
            Self::Quorum5 => Some(5),
            _ => None,
        }
    }

    pub(crate) fn is_quorum(self) -> bool {
        self.nodes().is_some()
    }

    /// Whether replicas follow each master, and one of them takes its place when it fails.
    pub(crate) fn is_replicated(self) -> bool {
        matches!(self, Self::RedisSentinel | Self::RedisCluster | Self::PostgresStandby)
    }

    /// Whether the link from a process to each of the servers can be cut by itself.
    pub(crate) fn has_node_links(self) -> bool {
        self.is_quorum() || self == Self::RedisSentinel
    }

    pub(crate) fn is_sql(self) -> bool {
        matches!(
            self,
            Self::MysqlRow | Self::MysqlLease | Self::PostgresLease | Self::PostgresSession | Self::PostgresStandby
        )
    }

    /// Whether a hold is a row with an expiry, which outlasts connections and depends on the server's clock.
    pub(crate) fn is_lease(self) -> bool {
        matches!(
            self,
            Self::Redis
                | Self::RedisSentinel
                | Self::RedisCluster
                | Self::MysqlLease
                | Self::PostgresLease
                | Self::PostgresStandby
        )
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}
