//! From a URL to a locker.

use std::sync::Arc;

use lock_core::backend::DistributedLock;
use lock_core::{CredentialSource, Error, ErrorKind, Locker, MemoryBackend, Result};

use self::requirements::Requirements;
pub(crate) use self::requirements::required;
pub(crate) use self::scheme::Scheme;
use crate::config::QuorumOptions;
#[cfg(feature = "quorum")]
use crate::quorum::QuorumConfig;

/// Connects to the lock server that a URL names.
///
/// | URL | server | feature |
/// |---|---|---|
/// | `memory:` | this process's memory, private to the locker | |
/// | `memory:NAME` | the same, shared by all of this process that name it | |
/// | `redis://[user:password@]host[:port][/db]` | Redis, Valkey | `redis` |
/// | `redis+cluster://[user:password@]host:port[,host:port]...` | Redis Cluster, Valkey | `redis` |
/// | `redis+sentinel://[user:password@]host[:port][,host[:port]...]/master[/db]` | the Redis that Sentinels call `master` | `redis` |
/// | `mysql://user:password@host[:port]/database` | MySQL, MariaDB: row locks, or leases with `?strategy=lease` | `mysql` |
/// | `postgres://user:password@host[:port][,host[:port]...]/database` | PostgreSQL: leases, or advisory locks of a session with `?strategy=session`; also `postgresql://` | `postgres` |
/// | `zookeeper://user:password@host[:port][,host[:port]...][/path]` | ZooKeeper | `zookeeper` |
/// | `quorum:[?patience=300ms\|]URL\|URL\|URL` | several independent servers, of which a majority has to agree; a `\|` in a password is `%7C` | `quorum` |
///
/// TLS: `rediss://`, `rediss+sentinel://` or `rediss+cluster://` with the feature `tls`, `zookeeper+tls://` with the feature `zookeeper-tls`; or `tls=true` among the
/// parameters, for MySQL and PostgreSQL as well. `ca=FILE` names the authority of the server's certificate, which defaults to those of the
/// operating system; `cert=FILE` and `key=FILE` name a client certificate.
///
/// `password_file=FILE` or `password_env=VARIABLE` in place of a password: it is read before each connection, so that it can change
/// while the process runs. Or give a function to [`Config::with_credentials`](crate::Config::with_credentials).
///
/// `require=fifo,failover,ttl:1s` refuses a server that does not keep these [guarantees](crate::Guarantee), and
/// `trusting=failover` takes an operator's word where a server cannot be asked: see [`Locker::require`]. Those of a quorum stand before
/// its first server.
///
/// Other parameters: see `from_url` of [`RedisConfig`](redis/struct.RedisConfig.html#method.from_url),
/// [`MySqlConfig`](mysql/struct.MySqlConfig.html#method.from_url),
/// [`PostgresConfig`](postgres/struct.PostgresConfig.html#method.from_url),
/// [`ZooKeeperConfig`](zookeeper/struct.ZooKeeperConfig.html#method.from_url) and
/// [`QuorumConfig`](quorum/struct.QuorumConfig.html#method.from_url).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), polylock::Error> {
/// let locks = polylock::connect("memory:").await?;
/// let guard = locks.lock("orders/42").acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ErrorKind::Misconfigured`] for a URL that cannot work, or a feature that is not enabled;
/// [`ErrorKind::Unavailable`] when the server was not reached within the connect timeout (5 s by default);
/// [`ErrorKind::Denied`] for wrong credentials.
///
/// # Cancel safety
/// May be dropped at any point.
pub async fn connect(url: &str) -> Result<Locker> {
    let locker = connect_lazy(url)?;
    locker.connect().await?;
    Ok(locker)
}

/// As [`connect`], but does no I/O: the first acquire reaches the server, or fails.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] for a URL that cannot work, or a feature that is not enabled.
pub fn connect_lazy(url: &str) -> Result<Locker> {
    lazy(url, None)
}

/// The source of the password, if the URL has none.
type Source<'a> = Option<&'a CredentialSource>;

/// As [`connect_lazy`], with the password from elsewhere.
pub(crate) fn lazy(url: &str, source: Source<'_>) -> Result<Locker> {
    let (url, requirements) = Requirements::split(url)?;
    Ok(requirements.of(Locker::from_backend(backend(&url, source)?)))
}

/// As [`connect_lazy`], for a quorum of the servers with these URLs.
pub(crate) fn quorum_lazy(urls: &[String], options: Option<&QuorumOptions>, source: Source<'_>) -> Result<Locker> {
    Ok(Locker::from_backend(quorum_of(urls, options, source)?))
}

/// The backend of a URL.
fn backend(url: &str, source: Source<'_>) -> Result<Arc<dyn DistributedLock>> {
    match Scheme::split(url) {
        // It has no password.
        Some((Scheme::Memory, name)) => memory(name),
        Some((Scheme::Redis, _)) => redis(url, source),
        Some((Scheme::MySql, _)) => mysql(url, source),
        Some((Scheme::Postgres, _)) => postgres(url, source),
        Some((Scheme::ZooKeeper, _)) => zookeeper(url, source),
        Some((Scheme::Quorum, _)) => quorum(url, source),
        None => Err(Error::new(ErrorKind::Misconfigured, scheme::unknown(url))),
    }
}

fn memory(name: &str) -> Result<Arc<dyn DistributedLock>> {
    if name.contains(['/', '?', '#', '@']) {
        let message = "`memory:` takes nothing but a name: write memory: or memory:NAME";
        return Err(Error::new(ErrorKind::Misconfigured, message));
    }
    Ok(match name {
        "" => Arc::new(MemoryBackend::new()),
        name => Arc::new(MemoryBackend::shared(name)),
    })
}

#[cfg(feature = "redis")]
fn redis(url: &str, source: Source<'_>) -> Result<Arc<dyn DistributedLock>> {
    let config = crate::redis::RedisConfig::from_url(url)?;
    let config = match source {
        Some(source) => config.with_credentials(source.clone()),
        None => config,
    };
    Ok(Arc::new(crate::redis::RedisBackend::new(config)?))
}

#[cfg(feature = "mysql")]
fn mysql(url: &str, source: Source<'_>) -> Result<Arc<dyn DistributedLock>> {
    crate::mysql::backend(mysql_config(url, source)?)
}

#[cfg(feature = "mysql")]
fn mysql_config(url: &str, source: Source<'_>) -> Result<crate::mysql::MySqlConfig> {
    let config = crate::mysql::MySqlConfig::from_url(url)?;
    Ok(match source {
        Some(source) => config.with_credentials(source.clone()),
        None => config,
    })
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, source: Source<'_>) -> Result<Arc<dyn DistributedLock>> {
    crate::postgres::backend(postgres_config(url, source)?)
}

#[cfg(feature = "postgres")]
fn postgres_config(url: &str, source: Source<'_>) -> Result<crate::postgres::PostgresConfig> {
    let config = crate::postgres::PostgresConfig::from_url(url)?;
    Ok(match source {
        Some(source) => config.with_credentials(source.clone()),
        None => config,
    })
}

#[cfg(feature = "zookeeper")]
fn zookeeper(url: &str, source: Source<'_>) -> Result<Arc<dyn DistributedLock>> {
    let config = crate::zookeeper::ZooKeeperConfig::from_url(url)?;
    let config = match source {
        Some(source) => config.with_credentials(source.clone()),
        None => config,
    };
    Ok(Arc::new(crate::zookeeper::ZooKeeperBackend::new(config)?))
}

#[cfg(feature = "quorum")]
fn quorum(url: &str, source: Source<'_>) -> Result<Arc<dyn DistributedLock>> {
    let (config, urls) = QuorumConfig::from_url(url)?;
    quorum_of_nodes(urls, &config, source)
}

#[cfg(feature = "quorum")]
fn quorum_of(urls: &[String], options: Option<&QuorumOptions>, source: Source<'_>) -> Result<Arc<dyn DistributedLock>> {
    let mut config = QuorumConfig::new();
    if let Some(QuorumOptions {
        patience,
        restart_delay,
    }) = options
    {
        if let Some(patience) = *patience {
            config = config.with_patience(patience);
        }
        if let Some(delay) = *restart_delay {
            config = config.with_restart_delay(delay);
        }
    }
    quorum_of_nodes(urls.iter().map(String::as_str), &config, source)
}

#[cfg(feature = "quorum")]
fn quorum_of_nodes<'a>(
    urls: impl IntoIterator<Item = &'a str>,
    config: &QuorumConfig,
    source: Source<'_>,
) -> Result<Arc<dyn DistributedLock>> {
    let mut nodes = Vec::new();
    for (index, url) in urls.into_iter().enumerate() {
        let node = match Scheme::split(url) {
            Some((Scheme::Quorum, _)) => {
                let message = "a quorum cannot be a node of another one: list all servers in one quorum";
                Err(Error::new(ErrorKind::Misconfigured, message))
            }
            _ => backend(&node_url(url, config.restart_delay()), source),
        };
        nodes.push(node.map_err(|error| {
            let message = format!("the URL of node {} of the quorum cannot be used", index + 1);
            Error::new(error.kind(), message).with_source(error)
        })?);
    }
    Ok(Arc::new(crate::quorum::QuorumBackend::with_config(nodes, config)?))
}

/// The URL of a quorum's node, with the quorum's restart delay where the node can forget locks and its URL says nothing of it.
#[cfg(feature = "quorum")]
fn node_url(url: &str, restart_delay: Option<std::time::Duration>) -> std::borrow::Cow<'_, str> {
    match (Scheme::split(url), restart_delay) {
        (Some((Scheme::Redis, _)), Some(delay)) if !has_parameter(url, "restart_delay") => {
            let (before, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
            let separator = if before.contains('?') { '&' } else { '?' };
            format!("{before}{separator}restart_delay={}ms{fragment}", delay.as_millis()).into()
        }
        _ => url.into(),
    }
}

/// True if the URL's query has a parameter of this name. The same text in a password or in another value does not
/// count.
#[cfg(feature = "quorum")]
fn has_parameter(url: &str, name: &str) -> bool {
    let before_fragment = url.split('#').next().unwrap_or(url);
    let query = before_fragment.split_once('?').map(|(_, query)| query);
    let mut parameters = query.into_iter().flat_map(|query| query.split('&'));
    parameters.any(|parameter| parameter.split('=').next() == Some(name))
}

macro_rules! without_feature {
    ($feature:literal, $backend:ident($($server:ty),+)) => {
        #[cfg(not(feature = $feature))]
        fn $backend($(_: $server),+) -> Result<Arc<dyn DistributedLock>> {
            Err(missing_feature($feature))
        }
    };
}

/// The error for a server whose feature is not enabled.
#[cfg(not(all(
    feature = "redis",
    feature = "mysql",
    feature = "postgres",
    feature = "zookeeper",
    feature = "quorum"
)))]
fn missing_feature(feature: &str) -> Error {
    let version = env!("CARGO_PKG_VERSION");
    let message = format!(
        "polylock was built without its feature `{feature}`: enable it, as in \
         `polylock = {{ version = \"{version}\", features = [\"{feature}\"] }}` or `--features {feature}`"
    );
    Error::new(ErrorKind::Misconfigured, message)
}

without_feature!("redis", redis(&str, Source<'_>));
without_feature!("mysql", mysql(&str, Source<'_>));
without_feature!("postgres", postgres(&str, Source<'_>));
without_feature!("zookeeper", zookeeper(&str, Source<'_>));
without_feature!("quorum", quorum(&str, Source<'_>));
without_feature!("quorum", quorum_of(&[String], Option<&QuorumOptions>, Source<'_>));

#[cfg(test)]
mod fuzz;
mod requirements;
mod scheme;
pub(crate) mod tables;
#[cfg(test)]
mod tests;
