//! The same server with TLS and without.

use std::sync::Arc;

use benchmarks_load::{self as load, Result};
use lock_mysql::{MySqlConfig, RowLockBackend};
use lock_postgres::PostgresConfig;
use lock_redis::RedisBackend;
use lock_zookeeper::ZooKeeperBackend;
use testbed::{Certificates, Redis, Server, ZooKeeper};

use crate::entry::{Backend, MakeBackend};
use crate::participant::{Participant, local};
use crate::subjects::polylock::Polylock;
use crate::subjects::{mysql, postgres, redis};

/// polylock over TLS, and `polylock` without, on a server of their own.
pub(crate) async fn participants(backend: Backend, tasks: usize) -> Result<Vec<(&'static str, Box<dyn Participant>)>> {
    let certificates = Certificates::new()?;
    let server = match backend {
        Backend::Memory | Backend::Quorum => return Ok(Vec::new()),
        Backend::Redis => Redis::new().tls(&certificates)?.start().await?,
        Backend::Mysql => mysql::server().tls(&certificates).start().await?,
        Backend::Postgres => postgres::server().tls(&certificates).start().await?,
        Backend::Zookeeper => ZooKeeper::new().tls(&certificates)?.start().await?,
    };
    let plain = match (backend, server.plain_address()) {
        (Backend::Redis, Some(address)) => {
            let url = format!("redis://{address}");
            redis::without_persistence(&url).await?;
            url
        }
        (Backend::Zookeeper, Some(address)) => format!("zookeeper://{address}/plain?acl=open"),
        // Nobody else may do without.
        (Backend::Postgres, _) => format!("postgres://postgres@{}/app", server.address()),
        // Its user needs a certificate, and so TLS: root does not.
        _ => mysql::without_tls(&server).await?,
    };
    let own = load::Workload::Own {
        tasks,
        background: false,
    };
    let player = |url: String| local(Polylock(maker(backend, url, &server)), own);
    Ok(vec![("polylock", player(plain)), ("tls", player(server.url()))])
}

/// Keeps the server.
fn maker(backend: Backend, url: String, server: &Server) -> MakeBackend {
    let server = server.clone();
    Arc::new(move || {
        let _kept = &server;
        Ok(match backend {
            Backend::Zookeeper => Arc::new(ZooKeeperBackend::from_url(&url)?),
            Backend::Mysql => {
                let config = MySqlConfig::from_url(&url)?.with_max_connections(200);
                Arc::new(RowLockBackend::new(config)?)
            }
            Backend::Postgres => lock_postgres::backend(PostgresConfig::from_url(&url)?)?,
            _ => Arc::new(RedisBackend::from_url(&url)?),
        })
    })
}
