#![doc = include_str!("../README.md")]
#![doc = include_str!("../docs/reference.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use config::{Config, QuorumOptions};
pub use connect::{connect, connect_lazy};
pub use lock_core::backend::{Mode, Permits};
pub use lock_core::{
    CredentialSource, Credentials, Election, ElectionState, Ended, Error, ErrorKind, FencingToken, Guarantee, Guard,
    HoldState, Leader, Lock, LockName, LockOptions, Locker, Lost, LostCause, MemoryBackend, MultiGuard, Observer,
    OwnHold, ReentryKey, Release, Result, RwLock, Semaphore, Stale, Term, UpgradableGuard, UpgradableLock, Verdict,
    Watch, acquire_all, acquire_all_within, backend, try_acquire_all,
};

#[cfg(any(feature = "tls", feature = "zookeeper-tls"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "zookeeper-tls"))))]
pub use lock_tls::Tls;

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
pub mod blocking;
mod config;
mod connect;

/// The code on these pages is tested.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/coming-from.md")]
    struct ComingFrom;
    #[doc = include_str!("../docs/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../docs/leader.md")]
    struct Leader;
    #[doc = include_str!("../docs/modes.md")]
    struct Modes;
    #[doc = include_str!("../docs/operators.md")]
    struct Operators;
    #[doc = include_str!("../docs/production.md")]
    struct Production;
    #[doc = include_str!("../docs/testing.md")]
    struct Testing;
}

/// Locks in Redis or Valkey, and fenced data there. Needs the feature `redis`.
///
/// Its guarantees, limits, server settings and permissions: [`lock_redis`]. That crate also re-exports the driver,
/// whose connections a [`Fence`](redis::Fence) uses.
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod redis {
    pub use lock_redis::{Checks, Fence, Fenced, Finding, RedisBackend, RedisConfig};
}

/// One lock over several independent servers, of which a majority has to agree. Needs the feature `quorum`.
///
/// Its guarantees, its limits, and advice when to use it: [`lock_quorum`].
#[cfg(feature = "quorum")]
#[cfg_attr(docsrs, doc(cfg(feature = "quorum")))]
pub mod quorum {
    pub use lock_quorum::{NodeErrors, QuorumBackend, QuorumConfig};
}

/// Row locks or leases in MySQL or MariaDB, and fenced data there. Needs the feature `mysql`.
///
/// Its guarantees, limits, server settings and permissions: [`lock_mysql`]. That crate also re-exports the driver, in
/// whose transactions a [`Fence`](mysql::Fence) is entered.
#[cfg(feature = "mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
pub mod mysql {
    pub use lock_mysql::{
        Checks, Fence, LeaseTableBackend, MySqlConfig, NewValues, OptimisticLock, ReadBeforeEnter, RowLockBackend,
        Strategy, Tls, UpdateError, backend, schema,
    };
}

/// Leases and advisory locks of sessions in PostgreSQL, fenced data there, and advisory locks of a transaction. Needs the feature
/// `postgres`.
///
/// Its guarantees, limits, server settings and permissions: [`lock_postgres`]. That crate
/// also re-exports the driver, in whose transactions a [`Fence`](postgres::Fence) is entered.
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub mod postgres {
    pub use lock_postgres::{
        Checks, Fence, KEY_OF, LeaseTableBackend, Pooler, PostgresConfig, SessionBackend, Strategy, Tls, backend,
        lock_in, schema, try_lock_in,
    };
}

/// Locks in ZooKeeper, and fenced data there. Needs the feature `zookeeper`.
///
/// Its guarantees, limits, server settings and permissions: [`lock_zookeeper`]. That crate also re-exports the driver,
/// whose clients a [`Fence`](zookeeper::Fence) uses.
#[cfg(feature = "zookeeper")]
#[cfg_attr(docsrs, doc(cfg(feature = "zookeeper")))]
pub mod zookeeper {
    pub use lock_zookeeper::{
        ConnectionState, Fence, Fenced, HeartbeatKind, StateWatch, ZooKeeperBackend, ZooKeeperConfig,
    };
}
