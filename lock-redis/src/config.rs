//! The configuration: where the server is and how to use it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
#[cfg(feature = "tls")]
use lock_tls::TlsParameters;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::probe::Checks;
use crate::probe::permissions::acl_rules;

/// The longest grace: a queue entry outlives several.
pub(crate) const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// Which Redis, and how to use it.
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
    prefix: String,
    connect_timeout: Duration,
    response_timeout: Duration,
    grace: Duration,
    checks: Checks,
    #[cfg(feature = "tls")]
    tls: Option<lock_tls::Tls>,
}

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

    /// The server, credentials and database of a client of the driver, but not its settings of TCP and TLS and its protocol
    /// version: for TLS, call `with_tls`.
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

    /// Parses a URL: `redis://[[user]:password@]host[:port][/database]`, or
    /// `redis+unix:///path[?db=N&user=U&pass=P]`; `valkey` may stand for `redis`, and `unix` for `redis+unix`. `rediss` or
    /// `valkeys` asks for TLS, as `tls=true` does; then `ca`, `cert` and `key` name PEM files: see `with_tls`, which needs the
    /// feature `tls`.
    ///
    /// Parameters of both: `prefix` ([default](Self::DEFAULT_PREFIX) `polylock:`), `connect_timeout` and
    /// `response_timeout` (default `5s` each), `grace` (default `100ms`), `checks` ([`warn`](Checks::Warn), which is the
    /// default, `refuse` or `off`).
    ///
    /// Percent-encode special characters of user and password: `/` as `%2F`, `?` as `%3F`, `#` as `%23`, `@` as `%40`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] for anything else, and for TLS without the feature `tls`. No error shows any part of the URL: it may be a part of the password.
    pub fn from_url(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (is_unix, is_secured) = match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => (false, false),
            "rediss" | "valkeys" => (false, true),
            "redis+unix" | "valkey+unix" | "unix" => (true, false),
            _ => {
                return Err(misconfigured(
                    "the URL of a Redis begins with redis:// or redis+unix://",
                ));
            }
        };
        let behind_host = rest.find(['/', '?', '#']).map_or("", |at| &rest[at..]);
        if !is_unix && behind_host.contains('@') {
            return Err(misconfigured(format!(
                "a special character in the URL is not percent-encoded: {ENCODE}"
            )));
        }
        // The driver's own TLS is not used.
        let plain;
        let url = match is_secured {
            true => {
                plain = format!("redis://{rest}");
                &plain
            }
            false => url,
        };
        let parsed = redis::parse_redis_url(url).ok_or_else(|| misconfigured(format!("this is no URL: {WRITE}")))?;
        if parsed.fragment().is_some() {
            return Err(misconfigured(format!("a '#' in the URL has no meaning: {ENCODE}")));
        }
        let mut config = Self::new("", 0);
        let mut tls = TlsParameters::default();
        if is_secured {
            tls.want()?;
        }
        for (name, value) in parsed.query_pairs() {
            match (&*name, is_unix) {
                ("prefix", _) => config.prefix = value.into_owned(),
                ("connect_timeout", _) => config.connect_timeout = duration("connect_timeout", &value)?,
                ("response_timeout", _) => config.response_timeout = duration("response_timeout", &value)?,
                ("grace", _) => config.grace = duration("grace", &value)?,
                ("checks", _) => config.checks = checks(&value)?,
                ("db" | "user" | "pass", true) => {}
                (_, false) if tls.read(&name, &value)? => {}
                (_, true) => return Err(unknown_parameter("db, user, pass, ")),
                (_, false) => return Err(unknown_parameter("")),
            }
        }
        config.info = (parsed.into_connection_info())
            .map_err(|error| misconfigured(format!("the URL names no Redis server: {WRITE}")).with_source(error))?;
        #[cfg(feature = "tls")]
        {
            config.tls = tls.finish()?;
        }
        config.check()?;
        Ok(config)
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

    /// Sets how long the first connection may take: until then the backend keeps trying a server that refuses. From 1 ms to 1 h.
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

    /// Sets what to do about server settings that can lose locks. Defaults to [`Checks::Warn`].
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
        acl_rules(&self.prefix, self.info.redis_settings().db())
    }

    fn at(address: ConnectionAddr) -> Self {
        let info = address.into_connection_info();
        Self::with_info(info.expect("the driver only wraps an address"))
    }

    fn with_info(info: ConnectionInfo) -> Self {
        Self {
            info,
            prefix: Self::DEFAULT_PREFIX.into(),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            response_timeout: Self::DEFAULT_RESPONSE_TIMEOUT,
            grace: Self::DEFAULT_GRACE,
            checks: Checks::default(),
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
            .field("user", &settings.username())
            .field("database", &settings.db())
            .field("prefix", &self.prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("grace", &self.grace)
            .field("checks", &self.checks)
            .finish_non_exhaustive()
    }
}

/// What to do about a URL that does not parse, or has a special character in its password.
const WRITE: &str = "write redis://user:password@host:port/database; \
     in user and password, write / as %2F, ? as %3F, # as %23, @ as %40 and % as %25";
const ENCODE: &str = "in user and password, write / as %2F, ? as %3F, # as %23, @ as %40 and % as %25";

fn checks(value: &str) -> Result<Checks> {
    match value {
        "warn" => Ok(Checks::Warn),
        "refuse" => Ok(Checks::Refuse),
        "off" => Ok(Checks::Off),
        _ => Err(misconfigured(format!(
            "the value of checks in the URL is none of warn, refuse, off; {ENCODE}"
        ))),
    }
}

fn duration(name: &'static str, value: &str) -> Result<Duration> {
    // Its error would show the value.
    humantime::parse_duration(value)
        .map_err(|_| misconfigured(format!("{name} in the URL is no duration: write 3s or 500ms; {ENCODE}")))
}

fn unknown_parameter(more: &str) -> Error {
    misconfigured(format!(
        "the URL of a Redis has an unknown parameter: allowed are {more}prefix, connect_timeout, response_timeout, \
         grace, checks, tls, ca, cert, key; {ENCODE}"
    ))
}

fn misconfigured(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

#[cfg(not(feature = "tls"))]
fn without_feature() -> Error {
    misconfigured("TLS to Redis is not compiled in: enable the feature `tls`, as in `--features tls`")
}

/// Stands for the parameters of TLS where that is not compiled in: refuses all that ask for it.
#[cfg(not(feature = "tls"))]
#[derive(Default)]
struct TlsParameters {}

#[cfg(not(feature = "tls"))]
impl TlsParameters {
    fn want(&mut self) -> Result<()> {
        Err(without_feature())
    }

    fn read(&mut self, name: &str, value: &str) -> Result<bool> {
        match (name, value) {
            ("tls", "false") => Ok(true),
            ("tls" | "ca" | "cert" | "key", _) => Err(without_feature()),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests;
