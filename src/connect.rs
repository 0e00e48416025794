//! From a URL to a locker.

use std::sync::Arc;

use lock_core::backend::DistributedLock;
use lock_core::{Error, ErrorKind, Locker, MemoryBackend, Result};

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
/// | `zookeeper://user:password@host[:port][,host[:port]...][/path]` | ZooKeeper | `zookeeper` |
/// | `quorum:[?patience=300ms\|]URL\|URL\|URL` | several independent servers, of which a majority has to agree; a `\|` in a password is `%7C` | `quorum` |
///
/// TLS: `rediss://`, `rediss+sentinel://` or `rediss+cluster://` with the feature `tls`, `zookeeper+tls://` with the feature `zookeeper-tls`; or `tls=true` among the
/// parameters, for MySQL as well. `ca=FILE` names the authority of the server's certificate, which defaults to those of the
/// operating system; `cert=FILE` and `key=FILE` name a client certificate.
///
/// Parameters: see `from_url` of [`RedisConfig`](redis/struct.RedisConfig.html#method.from_url),
/// [`MySqlConfig`](mysql/struct.MySqlConfig.html#method.from_url),
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
    Ok(Locker::from_backend(backend(url)?))
}

/// As [`connect_lazy`], for a quorum of the servers with these URLs.
pub(crate) fn quorum_lazy(urls: &[String], options: Option<&QuorumOptions>) -> Result<Locker> {
    Ok(Locker::from_backend(quorum_of(urls, options)?))
}

/// The backend of a URL.
fn backend(url: &str) -> Result<Arc<dyn DistributedLock>> {
    match Scheme::split(url) {
        Some((Scheme::Memory, name)) => memory(name),
        Some((Scheme::Redis, _)) => redis(url),
        Some((Scheme::MySql, _)) => mysql(url),
        Some((Scheme::ZooKeeper, _)) => zookeeper(url),
        Some((Scheme::Quorum, _)) => quorum(url),
        // What stands there may be a password: it is not repeated.
        None => {
            let message = "unknown URL scheme: use memory:, redis://, mysql://, zookeeper:// or quorum:";
            Err(Error::new(ErrorKind::Misconfigured, message))
        }
    }
}

/// The backend that a URL's scheme selects.
#[derive(Clone, Copy)]
pub(crate) enum Scheme {
    Memory,
    Redis,
    MySql,
    ZooKeeper,
    Quorum,
}

impl Scheme {
    /// The scheme, in any case, and the rest of the URL. `None` for an unknown scheme.
    pub(crate) fn split(url: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = url.split_once(':')?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "memory" => Self::Memory,
            "redis" | "rediss" | "redis+unix" | "unix" | "valkey" | "valkeys" | "valkey+unix" => Self::Redis,
            "redis+cluster" | "rediss+cluster" | "valkey+cluster" | "valkeys+cluster" => Self::Redis,
            "redis+sentinel" | "rediss+sentinel" | "valkey+sentinel" | "valkeys+sentinel" => Self::Redis,
            "mysql" | "mariadb" => Self::MySql,
            "zookeeper" | "zookeeper+tls" => Self::ZooKeeper,
            "quorum" => Self::Quorum,
            _ => return None,
        };
        Some((scheme, rest))
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
fn redis(url: &str) -> Result<Arc<dyn DistributedLock>> {
    Ok(Arc::new(crate::redis::RedisBackend::from_url(url)?))
}

#[cfg(feature = "mysql")]
fn mysql(url: &str) -> Result<Arc<dyn DistributedLock>> {
    crate::mysql::backend(crate::mysql::MySqlConfig::from_url(url)?)
}

#[cfg(feature = "zookeeper")]
fn zookeeper(url: &str) -> Result<Arc<dyn DistributedLock>> {
    Ok(Arc::new(crate::zookeeper::ZooKeeperBackend::from_url(url)?))
}

#[cfg(feature = "quorum")]
fn quorum(url: &str) -> Result<Arc<dyn DistributedLock>> {
    let (config, urls) = QuorumConfig::from_url(url)?;
    quorum_of_nodes(urls, &config)
}

#[cfg(feature = "quorum")]
fn quorum_of(urls: &[String], options: Option<&QuorumOptions>) -> Result<Arc<dyn DistributedLock>> {
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
    quorum_of_nodes(urls.iter().map(String::as_str), &config)
}

#[cfg(feature = "quorum")]
fn quorum_of_nodes<'a>(
    urls: impl IntoIterator<Item = &'a str>,
    config: &QuorumConfig,
) -> Result<Arc<dyn DistributedLock>> {
    let mut nodes = Vec::new();
    for (index, url) in urls.into_iter().enumerate() {
        let node = match Scheme::split(url) {
            Some((Scheme::Quorum, _)) => {
                let message = "a quorum cannot be a node of another one: list all servers in one quorum";
                Err(Error::new(ErrorKind::Misconfigured, message))
            }
            _ => backend(&node_url(url, config.restart_delay())),
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
        (Some((Scheme::Redis, _)), Some(delay)) if !url.contains("restart_delay=") => {
            let separator = if url.contains('?') { '&' } else { '?' };
            format!("{url}{separator}restart_delay={}ms", delay.as_millis()).into()
        }
        _ => url.into(),
    }
}

macro_rules! without_feature {
    ($feature:literal, $backend:ident($($server:ty),+)) => {
        #[cfg(not(feature = $feature))]
        fn $backend($(_: $server),+) -> Result<Arc<dyn DistributedLock>> {
            let message = concat!(
                "polylock was built without its feature `",
                $feature,
                "`: enable it, as in ",
                "`polylock = { version = \"",
                env!("CARGO_PKG_VERSION"),
                "\", features = [\"",
                $feature,
                "\"] }` ",
                "or `--features ",
                $feature,
                "`"
            );
            Err(Error::new(ErrorKind::Misconfigured, message))
        }
    };
}

without_feature!("redis", redis(&str));
without_feature!("mysql", mysql(&str));
without_feature!("zookeeper", zookeeper(&str));
without_feature!("quorum", quorum(&str));
without_feature!("quorum", quorum_of(&[String], Option<&QuorumOptions>));

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> Error {
        let error = connect_lazy(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
        error
    }

    #[test]
    fn an_unknown_scheme_names_those_there_are_and_no_secret() {
        for url in ["", "localhost", "etcd://user:secret@host", "secret"] {
            let error = refusal(url).to_string();
            assert!(error.contains("zookeeper://") && !error.contains("secret"), "{error}");
        }
        refusal("memory://name");
        refusal("memory:name?ttl=1");
    }

    #[test]
    #[cfg(not(feature = "redis"))]
    fn a_missing_feature_says_how_to_enable_it() {
        assert!(refusal("redis://host").to_string().contains("--features redis"));
    }

    #[test]
    #[cfg(not(feature = "mysql"))]
    fn so_does_that_of_mysql() {
        assert!(refusal("mysql://host").to_string().contains("--features mysql"));
    }

    #[test]
    #[cfg(not(feature = "zookeeper"))]
    fn and_that_of_zookeeper() {
        assert!(refusal("zookeeper://host").to_string().contains("--features zookeeper"));
    }

    #[test]
    #[cfg(all(feature = "redis", not(feature = "tls")))]
    fn tls_to_redis_needs_a_feature() {
        for url in ["rediss://host", "redis://host?tls=true"] {
            assert!(refusal(url).to_string().contains("--features tls"));
        }
    }

    #[test]
    #[cfg(all(feature = "redis", feature = "tls"))]
    fn tls_to_redis_is_taken_with_its_feature() {
        for url in ["rediss://host", "Valkeys://host", "redis://host?tls=true&ca=ca.pem"] {
            connect_lazy(url).unwrap();
        }
    }

    #[test]
    #[cfg(all(feature = "zookeeper", not(feature = "zookeeper-tls")))]
    fn tls_to_zookeeper_needs_a_feature_of_its_own() {
        for url in ["zookeeper+tls://me:pw@host", "zookeeper://me:pw@host?tls=true"] {
            assert!(refusal(url).to_string().contains("--features zookeeper-tls"));
        }
    }

    #[test]
    #[cfg(feature = "zookeeper-tls")]
    fn tls_to_zookeeper_is_taken_with_its_feature() {
        for url in [
            "ZooKeeper+TLS://me:pw@host",
            "zookeeper://me:pw@host?tls=true&ca=ca.pem",
        ] {
            connect_lazy(url).unwrap();
        }
    }

    #[test]
    #[cfg(all(feature = "redis", feature = "mysql", feature = "zookeeper"))]
    fn with_a_feature_its_urls_are_taken_and_unknown_parameters_are_not() {
        for url in [
            "redis://localhost",
            "Redis://localhost",
            "REDIS+UNIX:///run/redis.sock",
            "Redis+Sentinel://localhost,localhost:26380/mymaster",
            "mysql://user:pw@localhost/db",
            "MySQL://user:pw@localhost/db",
            "MARIADB://localhost/db",
            "zookeeper://user:pw@localhost/path",
            "ZooKeeper://user:pw@localhost/path",
        ] {
            connect_lazy(url).unwrap();
            // What is unknown may be a part of a password: it is not shown, and a hint says how to write one.
            let refused = refusal(&format!("{url}?colour=red")).to_string();
            assert!(!refused.contains("colour") && refused.contains('%'), "{refused}");
        }
    }

    #[test]
    #[cfg(all(feature = "redis", feature = "mysql", feature = "zookeeper"))]
    fn a_password_that_is_not_encoded_is_not_repeated_and_says_how_to_encode_it() {
        for scheme in ["redis", "MYSQL", "zookeeper"] {
            for password in [
                "zq/cret", "zq#cret", "zq?cret", "12/cret", "12#cret", "12?cret", "/cret", "zq//cret",
            ] {
                let error = refusal(&format!("{scheme}://app:{password}@host/db"));
                let shown = format!("{error} {error:?}");
                assert!(
                    !shown.contains("cret") && !shown.contains("zq"),
                    "{scheme} {password}: {shown}"
                );
                for code in ["%2F", "%3F", "%23"] {
                    assert!(shown.contains(code), "{scheme} {password}: {shown}");
                }
            }
        }
    }

    #[test]
    #[cfg(all(feature = "redis", feature = "mysql", feature = "zookeeper"))]
    fn a_duration_without_a_unit_says_how_to_write_one() {
        for url in ["redis://host/", "mysql://host/db", "zookeeper://user:pw@host/"] {
            for value in ["3", "3%20sekunden"] {
                let error = refusal(&format!("{url}?connect_timeout={value}")).to_string();
                assert!(
                    error.contains("write 3s or 500ms") && !error.contains("sekunden"),
                    "{error}"
                );
            }
        }
    }

    #[tokio::test]
    #[cfg(feature = "quorum")]
    async fn a_quorum_is_of_the_servers_that_its_url_lists() {
        let [one, other] = [
            "quorum:memory:q1|memory:q2|memory:q3",
            "Quorum:?patience=1s|memory:q3|memory:q1|memory:q2",
        ];
        let (one, other) = (connect(one).await.unwrap(), connect(other).await.unwrap());
        let _guard = one.lock("a").acquire().await.unwrap();
        assert!(other.lock("a").try_acquire().await.unwrap().is_none());
        let twice = connect("quorum:memory:q4|memory:q4|memory:q5").await.unwrap_err();
        assert!(
            twice.to_string().contains("nodes 1 and 2 are the same server"),
            "{twice}"
        );
    }

    #[test]
    #[cfg(feature = "quorum")]
    fn a_node_that_may_forget_has_the_delay_of_its_quorum() {
        let delay = Some(std::time::Duration::from_secs(30));
        assert_eq!(node_url("redis://a", delay), "redis://a?restart_delay=30000ms");
        assert_eq!(
            node_url("rediss+sentinel://a,b/m?replicas=1", delay),
            "rediss+sentinel://a,b/m?replicas=1&restart_delay=30000ms"
        );
        assert_eq!(node_url("redis://a", None), "redis://a");
        for own in [
            "redis://a?restart_delay=0s",
            "mysql://a/b?strategy=lease",
            "zookeeper://a",
            "memory:a",
        ] {
            assert_eq!(node_url(own, delay), own);
        }
    }

    #[test]
    #[cfg(feature = "quorum")]
    fn a_quorum_names_the_node_whose_url_cannot_be_used() {
        for url in ["quorum:memory:|secret://a", "quorum:memory:|quorum:memory:|memory:"] {
            let refused = refusal(url).to_string();
            assert!(refused.contains("node 2") && !refused.contains("secret"), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_named_memory_is_shared_and_an_unnamed_one_is_not() {
        let first = connect("memory:shared").await.unwrap();
        let second = connect("Memory:shared").await.unwrap();
        let private = connect("memory:").await.unwrap();
        let _guard = first.lock("a").acquire().await.unwrap();
        assert!(second.lock("a").try_acquire().await.unwrap().is_none());
        assert!(private.lock("a").try_acquire().await.unwrap().is_some());
    }
}
