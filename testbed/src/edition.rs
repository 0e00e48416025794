//! The server programs that tests run on.

use crate::{Error, MariaDb, Postgres, Redis, Server, ZooKeeper};

/// Which program, of which version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edition {
    /// The distribution's own Redis: 7.0 on Debian 12.
    Redis,
    /// Redis 8. Where `CI` is not set, it may be missing.
    Redis8,
    /// Valkey 9. Where `CI` is not set, it may be missing.
    Valkey9,
    /// The distribution's own MariaDB: 10.11 on Debian 12.
    MariaDb,
    /// MySQL 9. Where `CI` is not set, it may be missing.
    MySql9,
    /// The distribution's own ZooKeeper: 3.8 on Debian 12.
    ZooKeeper,
    /// ZooKeeper 3.9. Where `CI` is not set, it may be missing.
    ZooKeeper39,
    /// The distribution's own PostgreSQL: 15 on Debian 12.
    Postgres,
    /// PostgreSQL 18. Where `CI` is not set, it may be missing.
    Postgres18,
}

impl Edition {
    /// All there are.
    pub const ALL: [Self; 9] = [
        Self::Redis,
        Self::Redis8,
        Self::Valkey9,
        Self::MariaDb,
        Self::MySql9,
        Self::ZooKeeper,
        Self::ZooKeeper39,
        Self::Postgres,
        Self::Postgres18,
    ];

    /// Those that may be missing.
    pub const EXTRA: [Self; 5] = [
        Self::Redis8,
        Self::Valkey9,
        Self::MySql9,
        Self::ZooKeeper39,
        Self::Postgres18,
    ];

    /// As commands and directories call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Redis8 => "redis8",
            Self::Valkey9 => "valkey9",
            Self::MariaDb => "mariadb",
            Self::MySql9 => "mysql9",
            Self::ZooKeeper => "zookeeper",
            Self::ZooKeeper39 => "zookeeper39",
            Self::Postgres => "postgres",
            Self::Postgres18 => "postgres18",
        }
    }

    /// The distribution's own server, in whose place this one can be put.
    pub fn own(self) -> Self {
        match self {
            Self::Redis | Self::Redis8 | Self::Valkey9 => Self::Redis,
            Self::MariaDb | Self::MySql9 => Self::MariaDb,
            Self::ZooKeeper | Self::ZooKeeper39 => Self::ZooKeeper,
            Self::Postgres | Self::Postgres18 => Self::Postgres,
        }
    }

    /// Starts it with the defaults of [`Redis`], [`MariaDb`], [`ZooKeeper`] or [`Postgres`].
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::LeftOut`] where there is none, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the server is ended in the background.
    pub async fn start(self) -> Result<Server, Error> {
        match self.own() {
            Self::MariaDb => MariaDb::new().edition(self).start().await,
            Self::ZooKeeper => ZooKeeper::new().edition(self).start().await,
            Self::Postgres => Postgres::new().edition(self).start().await,
            _ => Redis::new().edition(self).start().await,
        }
    }

    /// Whether every run of the tests needs it.
    pub(crate) fn is_own(self) -> bool {
        self.own() == self
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Redis8 => "Redis 8",
            Self::Valkey9 => "Valkey 9",
            Self::MariaDb => "MariaDB",
            Self::MySql9 => "MySQL 9",
            Self::ZooKeeper => "ZooKeeper",
            Self::ZooKeeper39 => "ZooKeeper 3.9",
            Self::Postgres => "PostgreSQL",
            Self::Postgres18 => "PostgreSQL 18",
        }
    }

    /// Naming one that runs, and a program to start or its directory.
    pub(crate) fn variables(self) -> &'static [&'static str; 2] {
        match self {
            Self::Redis => &["POLYLOCK_REDIS_URL", "POLYLOCK_REDIS_SERVER"],
            Self::Redis8 => &["POLYLOCK_REDIS8_URL", "POLYLOCK_REDIS8_SERVER"],
            Self::Valkey9 => &["POLYLOCK_VALKEY9_URL", "POLYLOCK_VALKEY9_SERVER"],
            Self::MariaDb => &["POLYLOCK_MYSQL_URL", "POLYLOCK_MARIADB_DIR"],
            Self::MySql9 => &["POLYLOCK_MYSQL9_URL", "POLYLOCK_MYSQL9_DIR"],
            Self::ZooKeeper => &["POLYLOCK_ZOOKEEPER_URL", "POLYLOCK_ZOOKEEPER_DIR"],
            Self::ZooKeeper39 => &["POLYLOCK_ZOOKEEPER39_URL", "POLYLOCK_ZOOKEEPER39_DIR"],
            Self::Postgres => &["POLYLOCK_POSTGRES_URL", "POLYLOCK_POSTGRES_DIR"],
            Self::Postgres18 => &["POLYLOCK_POSTGRES18_URL", "POLYLOCK_POSTGRES18_DIR"],
        }
    }

    /// Where `cargo xtask servers --install` puts what the second variable names, in
    /// [`installed_dir`](crate::installed_dir).
    pub(crate) fn installed(self) -> &'static str {
        match self {
            Self::Redis => "unpacked/bin/redis-server",
            Self::Redis8 => "redis8/unpacked/bin/redis-server",
            Self::Valkey9 => "valkey9/unpacked/bin/valkey-server",
            Self::MariaDb => "unpacked",
            Self::MySql9 => "mysql9/unpacked",
            Self::ZooKeeper => "unpacked/zookeeper",
            Self::ZooKeeper39 => "zookeeper39/unpacked/zookeeper",
            Self::Postgres => "postgres/unpacked/postgres",
            Self::Postgres18 => "postgres18/unpacked/postgres",
        }
    }
}
