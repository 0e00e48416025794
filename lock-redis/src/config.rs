//! The configuration: where the server is and how to use it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{CredentialSource, Result};
use lock_kit::url::misconfigured;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::permissions::acl_rules;

pub use lock_kit::checks::Checks;

use self::hosts::Address;
pub(crate) use self::sentinels::Sentinels;

mod credentials;
mod durability;
pub(crate) mod hosts;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod sentinels;
#[cfg(test)]
mod tests;
mod topology;
mod url;

/// The longest grace: a queue entry outlives several.
pub(crate) const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// The address of a Redis, and the options of its use.
///
/// From a URL, or by hand:
///
/// ```
/// # use std::time::Duration;
/// # use lock_redis::RedisConfig;
/// # fn main() -> Result<(), lock_core::Error> {
/// let config = RedisConfig::from_url("redis://app:secret@cache:6379/2?prefix=shop:&connect_timeout=2s")?;
/// let same = RedisConfig::new("cache", 6379)
///     .with_user("app")
///     .with_password("secret")
///     .with_database(2)
///     .with_prefix("shop:")
///     .with_connect_timeout(Duration::from_secs(2));
/// assert_eq!(format!("{config:?}"), format!("{same:?}")); // which never shows the password
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    info: ConnectionInfo,
    credentials: Option<CredentialSource>,
    prefix: String,
    connect_timeout: Duration,
    response_timeout: Duration,
    grace: Duration,
    checks: Checks,
    /// Of a Redis Cluster: some of its nodes.
    nodes: Option<Vec<Address>>,
    node_addresses: Option<AddressMap>,
    /// The Sentinels that name the server.
    sentinels: Option<Sentinels>,
    replicas: u32,
    restart_delay: Duration,
    #[cfg(feature = "tls")]
    tls: Option<lock_tls::Tls>,
}

/// Maps the address that a node reports to the address at which this process reaches it.
type AddressMap = Arc<dyn Fn(&str, u16) -> (String, u16) + Send + Sync>;

impl RedisConfig {
    /// Default of [`with_prefix`](Self::with_prefix).
    pub const DEFAULT_PREFIX: &'static str = "polylock:";
    /// Default of [`with_connect_timeout`](Self::with_connect_timeout).
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// Default of [`with_response_timeout`](Self::with_response_timeout).
    pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
    /// Default of [`with_grace`](Self::with_grace).
    pub const DEFAULT_GRACE: Duration = Duration::from_millis(100);

    /// The Redis at this host and port, with default settings: no credentials, database 0.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::at(ConnectionAddr::Tcp(host.into(), port))
    }

    /// The Redis behind this Unix socket, with default settings.
    pub fn unix(path: impl AsRef<Path>) -> Self {
        Self::at(ConnectionAddr::Unix(path.as_ref().into()))
    }

    /// The server, credentials and database of a client of the driver, but not its settings of TCP and its protocol version.
    ///
    /// With the feature `tls`, a client of `rediss://` gives a configuration with TLS that trusts the authorities of the operating
    /// system. The client's own authorities and certificate are not taken: name them by `with_tls`.
    ///
    /// A connection of the driver cannot be shared: to keep an ended holder id from coming back, the backend has to know
    /// which request went over which connection.
    pub fn from_client(client: &redis::Client) -> Self {
        let info = client.get_connection_info().clone();
        match info.addr().clone() {
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, .. } => {
                Self::with_info(info.set_addr(ConnectionAddr::Tcp(host, port))).with_tls(lock_tls::Tls::new())
            }
            _ => Self::with_info(info),
        }
    }

    /// Connects over TLS, and verifies the server's certificate. Defaults to a connection without TLS.
    ///
    /// ```
    /// # use lock_redis::{RedisConfig, Tls};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = RedisConfig::new("cache", 6380).with_tls(Tls::new().with_ca("ca.pem"));
    /// let same = RedisConfig::from_url("rediss://cache:6380?ca=ca.pem")?;
    /// # assert_eq!(format!("{config:?}"), format!("{same:?}"));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[must_use]
    pub fn with_tls(mut self, tls: lock_tls::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the user name (Redis ACL). Defaults to none, which is the user `default`.
    #[must_use]
    pub fn with_user(mut self, user: impl AsRef<str>) -> Self {
        let settings = self.info.redis_settings().clone().set_username(user);
        self.info = self.info.set_redis_settings(settings);
        self
    }

    /// Sets the password. Defaults to none.
    #[must_use]
    pub fn with_password(mut self, password: impl AsRef<str>) -> Self {
        let settings = self.info.redis_settings().clone().set_password(password);
        self.info = self.info.set_redis_settings(settings);
        self
    }

    /// Sets the number of the database. Defaults to 0.
    #[must_use]
    pub fn with_database(mut self, number: u32) -> Self {
        let settings = self.info.redis_settings().clone().set_db(number.into());
        self.info = self.info.set_redis_settings(settings);
        self
    }

    /// Sets the prefix of all keys, which separates applications: choose prefixes of which none begins with another. Any text
    /// without `{` and `}`. Defaults to [`DEFAULT_PREFIX`](Self::DEFAULT_PREFIX).
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long the first connection may take: until then the backend keeps trying a server that refuses. In a Redis Cluster,
    /// it is also how long a request waits for a hash slot that is being moved or has no master. From 1 ms to 1 h.
    /// Defaults to [`DEFAULT_CONNECT_TIMEOUT`](Self::DEFAULT_CONNECT_TIMEOUT).
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long the connection may be silent after a request before it is replaced. The requests on it then fail with an
    /// unknown outcome. A request waits for longer if the server keeps replying to others. From 1 ms to 1 h; it should be far
    /// above a round trip and above what a loaded server needs. Defaults to
    /// [`DEFAULT_RESPONSE_TIMEOUT`](Self::DEFAULT_RESPONSE_TIMEOUT).
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets what to do about server settings that can lose locks ([`Finding`](crate::Finding)). Defaults to [`Checks::Warn`], which
    /// logs each finding once per run of the server; [`findings`](crate::RedisBackend::findings) returns them. [`Checks::Refuse`] also
    /// fails, as denied, if the user may not ask (`INFO`).
    ///
    /// Unless it is [`Checks::Off`], a server that cannot work at all is rejected: one before version 7, a node of a Redis Cluster, a
    /// Sentinel, a replica.
    #[must_use]
    pub fn with_checks(mut self, checks: Checks) -> Self {
        self.checks = checks;
        self
    }

    /// Sets the grace: how long a released lock is reserved for the first waiter. A waiter that hangs, or is cut off without
    /// the server's noticing, delays the others by that long. From 1 ms to 5 s; it should be above a round trip under load. Defaults to [`DEFAULT_GRACE`](Self::DEFAULT_GRACE).
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The ACL rules of a user that can lock with this configuration and nothing else: keys, channels and commands, to be
    /// written behind `ACL SETUSER name reset on >password`. All of them are needed.
    ///
    /// ```
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = lock_redis::RedisConfig::from_url("redis://app:secret@cache?prefix=shop:")?;
    /// println!("ACL SETUSER app reset on >PASSWORD {}", config.acl_rules().join(" "));
    /// # assert!(config.acl_rules().contains(&"~shop:*".to_owned()));
    /// # Ok(()) }
    /// ```
    pub fn acl_rules(&self) -> Vec<String> {
        let mut more = Vec::new();
        if self.info.redis_settings().db() != 0 {
            // Without a database the driver does not select one.
            more.push("select");
        }
        if self.replicas > 0 {
            more.push("wait");
        }
        if self.replicas > 0 || !self.restart_delay.is_zero() {
            more.push("info");
        }
        let mut rules = acl_rules(&self.prefix, &more, self.nodes.is_some());
        if self.sentinels.is_some() {
            rules.push("+role".into());
        }
        rules
    }

    fn at(address: ConnectionAddr) -> Self {
        let info = address.into_connection_info();
        Self::with_info(info.expect("the driver only wraps an address"))
    }

    fn with_info(info: ConnectionInfo) -> Self {
        Self {
            info,
            credentials: None,
            prefix: Self::DEFAULT_PREFIX.into(),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            response_timeout: Self::DEFAULT_RESPONSE_TIMEOUT,
            grace: Self::DEFAULT_GRACE,
            checks: Checks::default(),
            nodes: None,
            node_addresses: None,
            sentinels: None,
            replicas: 0,
            restart_delay: Duration::ZERO,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Checks the whole configuration, since the builders cannot fail.
    pub(crate) fn check(&self) -> Result<()> {
        if self.prefix.contains(['{', '}']) {
            return Err(misconfigured(
                "the prefix contains '{' or '}', which decide on a key's hash slot: choose one without them",
            ));
        }
        for (name, timeout) in [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
        ] {
            if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&timeout) {
                return Err(misconfigured(format!("{name} is {timeout:?}: give it from 1ms to 1h")));
            }
        }
        if !(Duration::from_millis(1)..=LONGEST_GRACE).contains(&self.grace) {
            return Err(misconfigured(format!(
                "grace is {:?}: give it from 1ms to {:?}",
                self.grace, LONGEST_GRACE
            )));
        }
        self.check_credentials()?;
        if let Some(nodes) = &self.nodes {
            if nodes.iter().any(|(host, port)| host.is_empty() || *port == 0) || nodes.is_empty() {
                return Err(misconfigured(
                    "a node of the Redis Cluster lacks its host or port: write redis+cluster://host:port,host:port",
                ));
            }
            if self.info.redis_settings().db() != 0 {
                return Err(misconfigured(
                    "a Redis Cluster has no database but 0: give no other number",
                ));
            }
        }
        if let Some(sentinels) = &self.sentinels {
            sentinels.check()?;
            #[cfg(feature = "tls")]
            if self.tls.is_some() {
                for (host, _) in &sentinels.servers {
                    lock_tls::check_host(host)?;
                }
            }
        }
        self.check_durability()?;
        if self.info.redis_settings().db() < 0 {
            return Err(misconfigured("the database number is negative: give one from 0"));
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            match self.info.addr() {
                ConnectionAddr::Tcp(host, _) if !host.is_empty() => lock_tls::check_host(host)?,
                ConnectionAddr::Unix(_) => {
                    return Err(misconfigured("TLS needs a host: leave it out for a Unix socket"));
                }
                _ => {}
            }
        }
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } if host.is_empty() => {
                Err(misconfigured("no host is given: write redis://host:port"))
            }
            #[cfg(not(feature = "tls"))]
            ConnectionAddr::TcpTls { .. } => Err(without_feature()),
            _ => Ok(()),
        }
    }

    /// The server's address with the database and the prefix, independent of the order of several hosts.
    pub(crate) fn address(&self) -> String {
        let join = |hosts: &[Address]| {
            let mut hosts: Vec<String> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
            hosts.sort_unstable();
            hosts.join(",")
        };
        let server = match (&self.nodes, &self.sentinels) {
            (Some(nodes), _) => join(nodes),
            (None, Some(sentinels)) => format!("{}/{}", join(&sentinels.servers), sentinels.master),
            (None, None) => self.info.addr().to_string(),
        };
        let database = self.info.redis_settings().db();
        format!("redis {}/{database}/{}", server.to_lowercase(), self.prefix)
    }

    pub(crate) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls(&self) -> Option<&lock_tls::Tls> {
        self.tls.as_ref()
    }

    pub(crate) fn checks(&self) -> Checks {
        self.checks
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.info.redis_settings();
        let mut shown = f.debug_struct("RedisConfig");
        #[cfg(feature = "tls")]
        shown.field("tls", &self.tls);
        shown
            .field("server", &format_args!("{}", self.info.addr()))
            .field("nodes", &self.nodes)
            .field("sentinels", &self.sentinels)
            .field("user", &settings.username())
            .field("credentials", &self.credentials)
            .field("database", &settings.db())
            .field("prefix", &self.prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("grace", &self.grace)
            .field("checks", &self.checks)
            .field("replicas", &self.replicas)
            .field("restart_delay", &self.restart_delay)
            .finish_non_exhaustive()
    }
}

#[cfg(not(feature = "tls"))]
fn without_feature() -> lock_core::Error {
    misconfigured("TLS to Redis is not compiled in: enable the feature `tls`, as in `--features tls`")
}
