//! From a URL to a locker.

use std::sync::Arc;

use lock_core::backend::DistributedLock;
use lock_core::{Error, ErrorKind, Locker, MemoryBackend, Result};

/// Connects to the lock server that a URL names.
///
/// | URL | server | feature |
/// |---|---|---|
/// | `memory:` | this process's memory, private to the locker | |
/// | `memory:NAME` | the same, shared by all of this process that name it | |
/// | `redis://[user:password@]host[:port][/db]` | Redis, Valkey | `redis` |
/// | `mysql://user:password@host[:port]/database` | MySQL, MariaDB: row locks, or leases with `?strategy=lease` | `mysql` |
/// | `zookeeper://user:password@host[:port][,host[:port]...][/path]` | ZooKeeper | `zookeeper` |
///
/// TLS: `rediss://` with the feature `tls`, `zookeeper+tls://` with the feature `zookeeper-tls`; or `tls=true` among the
/// parameters, for MySQL as well. `ca=FILE` names the authority of the server's certificate, which defaults to those of the
/// operating system; `cert=FILE` and `key=FILE` name a client certificate.
///
/// Parameters: see `from_url` of [`RedisConfig`](redis/struct.RedisConfig.html#method.from_url),
/// [`MySqlConfig`](mysql/struct.MySqlConfig.html#method.from_url) and
/// [`ZooKeeperConfig`](zookeeper/struct.ZooKeeperConfig.html#method.from_url).
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
    let backend = match Scheme::split(url) {
        Some((Scheme::Memory, name)) => memory(name)?,
        Some((Scheme::Redis, _)) => redis(url)?,
        Some((Scheme::MySql, _)) => mysql(url)?,
        Some((Scheme::ZooKeeper, _)) => zookeeper(url)?,
        // What stands there may be a password: it is not repeated.
        None => {
            let message = "unknown URL scheme: use memory:, redis://, mysql:// or zookeeper://";
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
    };
    Ok(Locker::from_backend(backend))
}

/// The backend that a URL's scheme selects.
#[derive(Clone, Copy)]
pub(crate) enum Scheme {
    Memory,
    Redis,
    MySql,
    ZooKeeper,
}

impl Scheme {
    /// The scheme, in any case, and the rest of the URL. `None` for an unknown scheme.
    pub(crate) fn split(url: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = url.split_once(':')?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "memory" => Self::Memory,
            "redis" | "rediss" | "redis+unix" | "unix" | "valkey" | "valkeys" | "valkey+unix" => Self::Redis,
            "mysql" | "mariadb" => Self::MySql,
            "zookeeper" | "zookeeper+tls" => Self::ZooKeeper,
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

macro_rules! without_feature {
    ($feature:literal, $backend:ident) => {
        #[cfg(not(feature = $feature))]
        fn $backend(_url: &str) -> Result<Arc<dyn DistributedLock>> {
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

without_feature!("redis", redis);
without_feature!("mysql", mysql);
without_feature!("zookeeper", zookeeper);

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
    async fn a_named_memory_is_shared_and_an_unnamed_one_is_not() {
        let first = connect("memory:shared").await.unwrap();
        let second = connect("Memory:shared").await.unwrap();
        let private = connect("memory:").await.unwrap();
        let _guard = first.lock("a").acquire().await.unwrap();
        assert!(second.lock("a").try_acquire().await.unwrap().is_none());
        assert!(private.lock("a").try_acquire().await.unwrap().is_some());
    }
}
