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
    MysqlRow,
    MysqlLease,
    Zookeeper,
    /// Three servers.
    ZookeeperEnsemble,
}

impl Backend {
    pub(crate) const ALL: [Self; 5] = [
        Self::Redis,
        Self::MysqlRow,
        Self::MysqlLease,
        Self::Zookeeper,
        Self::ZookeeperEnsemble,
    ];

    /// The ttl of a run that names none. A row lock counts whole seconds, ZooKeeper's sessions several ticks.
    pub(crate) fn default_ttl(self) -> Duration {
        match self {
            Self::Redis => Duration::from_millis(500),
            // Each renewal is a write.
            Self::MysqlLease => Duration::from_secs(1),
            Self::MysqlRow | Self::Zookeeper | Self::ZookeeperEnsemble => Duration::from_secs(2),
        }
    }

    /// How coarsely the server counts.
    pub(crate) fn tick(self) -> Duration {
        match self {
            Self::Redis | Self::MysqlLease => Duration::from_millis(100),
            Self::MysqlRow => Duration::from_secs(1),
            Self::Zookeeper | Self::ZookeeperEnsemble => Duration::from_millis(500),
        }
    }

    /// Whether a hold can be extended by hand.
    pub(crate) fn extends(self) -> bool {
        !self.is_zookeeper()
    }

    pub(crate) fn is_zookeeper(self) -> bool {
        matches!(self, Self::Zookeeper | Self::ZookeeperEnsemble)
    }

    pub(crate) fn is_mysql(self) -> bool {
        matches!(self, Self::MysqlRow | Self::MysqlLease)
    }

    /// Whether a hold is a row with an expiry, which outlasts connections and depends on the server's clock.
    pub(crate) fn is_lease(self) -> bool {
        matches!(self, Self::Redis | Self::MysqlLease)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}
