//! The servers that are asked, each with its set-up and what shows its promises.

use std::pin::Pin;
use std::sync::Arc;

use conformance_tests::{BackendHarness, Harness, NoServer, Route, ServerUse};
use lock_core::backend::{Capabilities, DistributedLock};
use lock_core::{Guarantee, Locker, Verdict};
use lock_mysql::{LeaseTableBackend, MySqlConfig, Strategy};
use lock_postgres::{PostgresConfig, SessionBackend};
use lock_redis::{RedisBackend, RedisConfig};
use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Edition, Error, MariaDb, Redis, eventually};

use crate::harness::mysql_row::{MySql9, OwnMariaDb, RowLockHarness};
use crate::harness::postgres::{OwnPostgres, Postgres18, PostgresHarness};
use crate::harness::quorum::QuorumHarness;
use crate::harness::redis::{Own, Redis8, RedisHarness, Second, Third, Valkey9};
use crate::harness::redis_cluster::ClusterHarness;
use crate::harness::zookeeper::{Standalone, Standalone39, Three, ZooKeeperHarness};

type Asking = Pin<Box<dyn Future<Output = Result<Asked, NoServer>>>>;

/// A server of the test bed.
pub(super) struct Server {
    pub(super) title: &'static str,
    /// The module in `main.rs` with all cases of the suite, on this server or on one that differs in no promise that they show.
    pub(super) suite: &'static str,
    /// The cells of torture that show what no case does, by the id of the guarantee.
    pub(super) cells: &'static [(&'static str, &'static str)],
    ask: fn() -> Asking,
    /// Other versions, which must say the same. They may be missing.
    versions: &'static [fn() -> Asking],
}

/// The answer of a server.
pub(super) struct Answer {
    pub(super) server: &'static Server,
    pub(super) verdicts: Vec<(Guarantee, Verdict)>,
    pub(super) capabilities: Capabilities,
}

struct Asked {
    verdicts: Vec<(Guarantee, Verdict)>,
    capabilities: Capabilities,
}

pub(super) static SERVERS: &[Server] = &[
    Server {
        title: "Redis, Valkey",
        suite: "redis",
        cells: &[],
        ask: || Box::pin(by_harness::<RedisHarness<Own>>()),
        versions: &[
            || Box::pin(by_harness::<RedisHarness<Redis8>>()),
            || Box::pin(by_harness::<RedisHarness<Valkey9>>()),
        ],
    },
    Server {
        title: "Redis (`restart_delay=60s`)",
        suite: "redis",
        cells: &[("failover", "redis/failover-delayed")],
        ask: || Box::pin(delayed_redis()),
        versions: &[],
    },
    Server {
        title: "Redis with one replica (`replicas=1`)",
        suite: "redis",
        cells: &[
            ("failover", "redis-sentinel/master-kill-acknowledged"),
            ("partition", "redis-sentinel/split-brain-acknowledged"),
        ],
        ask: || Box::pin(acknowledged_redis()),
        versions: &[],
    },
    Server {
        title: "Redis Cluster, three masters",
        suite: "redis_cluster",
        cells: &[],
        ask: || Box::pin(by_harness::<ClusterHarness>()),
        versions: &[],
    },
    Server {
        title: "MySQL, MariaDB: row locks",
        suite: "mysql_row",
        cells: &[("clock-step", "mysql-row/clock")],
        ask: || Box::pin(by_harness::<RowLockHarness<OwnMariaDb>>()),
        versions: &[|| Box::pin(by_harness::<RowLockHarness<MySql9>>())],
    },
    Server {
        title: "MySQL, MariaDB (`strategy=lease`)",
        suite: "mysql_lease",
        cells: &[("server-crash", "mysql-lease/server-kill")],
        ask: || Box::pin(leases(MariaDb::new())),
        versions: &[|| Box::pin(leases(MariaDb::new().edition(Edition::MySql9)))],
    },
    Server {
        title: "PostgreSQL",
        suite: "postgres",
        cells: &[("server-crash", "postgres-lease/server-kill")],
        ask: || Box::pin(by_harness::<PostgresHarness<OwnPostgres>>()),
        versions: &[|| Box::pin(by_harness::<PostgresHarness<Postgres18>>())],
    },
    Server {
        title: "PostgreSQL (`strategy=session`)",
        suite: "postgres_session",
        cells: &[],
        ask: || Box::pin(sessions::<PostgresHarness<OwnPostgres>>()),
        versions: &[|| Box::pin(sessions::<PostgresHarness<Postgres18>>())],
    },
    Server {
        title: "ZooKeeper, one server",
        suite: "zookeeper",
        cells: &[],
        ask: || Box::pin(zookeeper::<ZooKeeperHarness<Standalone>>("sync")),
        versions: &[|| Box::pin(zookeeper::<ZooKeeperHarness<Standalone39>>("sync"))],
    },
    Server {
        title: "ZooKeeper, ensemble of three",
        suite: "zookeeper_ensemble",
        cells: &[("failover", "zookeeper-ensemble/leader-kill")],
        ask: || Box::pin(zookeeper::<ZooKeeperHarness<Three>>("sync")),
        versions: &[],
    },
    Server {
        title: "ZooKeeper, ensemble of three (`heartbeat=write`)",
        suite: "zookeeper_ensemble",
        cells: &[
            ("failover", "zookeeper-ensemble/leader-kill"),
            ("partition", "zookeeper-ensemble/leader-cut"),
        ],
        ask: || Box::pin(zookeeper::<ZooKeeperHarness<Three>>("write")),
        versions: &[],
    },
    Server {
        title: "Quorum of three Redis",
        suite: "quorum_redis",
        cells: &[("failover", "quorum3/minority-kill"), ("partition", "quorum3/node-cut")],
        ask: || {
            Box::pin(by_harness::<
                QuorumHarness<RedisHarness<Own>, RedisHarness<Second>, RedisHarness<Third>>,
            >())
        },
        versions: &[],
    },
];

impl Server {
    /// # Errors
    /// If the server cannot be asked, or if another version says something else.
    pub(super) async fn ask(&'static self) -> Result<Answer, String> {
        let shown = |error: NoServer| format!("{error:?}");
        let Asked { verdicts, capabilities } = (self.ask)().await.map_err(shown)?;
        for version in self.versions {
            match version().await {
                // An extra version that was not fetched.
                Err(NoServer::Offline(_)) => {}
                Err(error) => return Err(shown(error)),
                Ok(other) if other.verdicts == verdicts => {}
                Ok(other) => return Err(format!("another version says {:?}, not {verdicts:?}", other.verdicts)),
            }
        }
        Ok(Answer {
            server: self,
            verdicts,
            capabilities,
        })
    }
}

async fn by_harness<H: Harness + BackendHarness>() -> Result<Asked, NoServer> {
    let harness = H::start(ServerUse::Shared).await?;
    ask(harness.backend("guarantees", &Route::Direct).await).await
}

async fn ask(backend: Arc<dyn DistributedLock>) -> Result<Asked, NoServer> {
    let locks = Locker::from_backend(backend);
    // A server that stands still for longer than a client waits has not answered.
    let verdicts = eventually("an answer", async || match locks.guarantees().await {
        Err(error) if error.is_retryable() => None,
        answered => Some(answered),
    });
    let verdicts = verdicts.await.map_err(missing)?;
    let capabilities = locks.capabilities();
    locks.shutdown().await.map_err(missing)?;
    Ok(Asked { verdicts, capabilities })
}

async fn delayed_redis() -> Result<Asked, NoServer> {
    let url = url_of::<RedisHarness<Own>>("restart_delay=60s").await?;
    ask(redis(RedisConfig::from_url(&url).map_err(missing)?)?).await
}

async fn acknowledged_redis() -> Result<Asked, NoServer> {
    let servers = Redis::new().start_replicated(1).await.map_err(missing)?;
    let config = RedisConfig::from_url(&servers[0].url()).map_err(missing)?;
    ask(redis(config.with_replicas(1))?).await
}

fn redis(config: RedisConfig) -> Result<Arc<dyn DistributedLock>, NoServer> {
    Ok(Arc::new(RedisBackend::new(config).map_err(missing)?))
}

/// With a server that writes each grant to disk before it answers. The suite's is faster.
async fn leases(server: MariaDb) -> Result<Asked, NoServer> {
    let flushing = server
        .option("--innodb-flush-log-at-trx-commit=1")
        .option("--sync-binlog=1");
    let server = flushing.start().await.map_err(|error| match error {
        Error::LeftOut { .. } => NoServer::Offline(error.to_string()),
        _ => missing(error),
    })?;
    let config = MySqlConfig::from_url(&server.url()).map_err(missing)?;
    let backend = LeaseTableBackend::new(config.with_strategy(Strategy::Lease)).map_err(missing)?;
    ask(Arc::new(backend)).await
}

/// With the session timeout that is the default, unlike the suite's.
async fn sessions<H: Harness>() -> Result<Asked, NoServer> {
    let url = url_of::<H>("strategy=session").await?;
    let config = PostgresConfig::from_url(&url).map_err(missing)?;
    ask(Arc::new(SessionBackend::new(config).map_err(missing)?)).await
}

/// The same.
async fn zookeeper<H: Harness>(heartbeat: &str) -> Result<Asked, NoServer> {
    let url = url_of::<H>(&format!("heartbeat={heartbeat}")).await?;
    let config = ZooKeeperConfig::from_url(&url).map_err(missing)?;
    ask(Arc::new(ZooKeeperBackend::new(config).map_err(missing)?)).await
}

/// The URL of the server that the cases share, with a parameter more.
async fn url_of<H: Harness>(parameter: &str) -> Result<String, NoServer> {
    let harness = H::start(ServerUse::Shared).await?;
    let url = harness.address().expect("it has an address");
    let separator = if url.contains('?') { '&' } else { '?' };
    Ok(format!("{url}{separator}{parameter}"))
}

fn missing(error: impl std::fmt::Display) -> NoServer {
    NoServer::Missing(error.to_string())
}
