//! Where the server is and how to use it.

use std::fmt;
use std::num::ParseIntError;
use std::ops::RangeInclusive;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlSslMode};
use url::Url;

/// How to reach a MySQL or MariaDB, and what to use there.
///
/// ```
/// # use lock_mysql::MySqlConfig;
/// # fn main() -> Result<(), lock_core::Error> {
/// let config = MySqlConfig::from_url("mysql://app:secret@127.0.0.1:3306/shop?table=shop_locks&connect_timeout=2s")?;
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MySqlConfig {
    options: MySqlConnectOptions,
    table: String,
    connect_timeout: Duration,
    response_timeout: Duration,
    max_connections: usize,
}

/// What a URL may say after its `?`, besides what the driver understands.
const PARAMETERS: [&str; 4] = ["table", "connect_timeout", "response_timeout", "max_connections"];
/// What it hands to the driver.
const DRIVER_PARAMETERS: [&str; 5] = ["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket"];

impl MySqlConfig {
    /// Reads `mysql://user:password@host:port/database?parameters` (or `mariadb://`). Special characters in user and
    /// password are percent-encoded; the port defaults to 3306; the database must exist.
    ///
    /// | Parameter | Meaning |
    /// |---|---|
    /// | `table` | see [`with_table`](Self::with_table) |
    /// | `connect_timeout`, `response_timeout` | such as `5s` or `500ms`; see [`with_connect_timeout`](Self::with_connect_timeout), [`with_response_timeout`](Self::with_response_timeout) |
    /// | `max_connections` | see [`with_max_connections`](Self::with_max_connections) |
    /// | `ssl-mode` | `DISABLED`, `PREFERRED` (default: no TLS where the server has none), `REQUIRED`, `VERIFY_CA` or `VERIFY_IDENTITY` |
    /// | `ssl-ca`, `ssl-cert`, `ssl-key` | files in PEM |
    /// | `socket` | the path of a Unix socket to use instead of TCP |
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] for anything else in it. The error shows no part of the URL: any part may belong to
    /// a password that is not percent-encoded.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = Url::parse(url).map_err(|error| misconfigured(NO_URL).with_source(error))?;
        if !["mysql", "mariadb"].contains(&url.scheme()) || url.cannot_be_a_base() {
            return Err(misconfigured(NO_URL));
        }
        if ends_within_credentials(&url) {
            return Err(misconfigured(NOT_ENCODED));
        }
        let (own, drivers): (Vec<_>, Vec<_>) = url
            .query_pairs()
            .into_owned()
            .partition(|(key, _)| PARAMETERS.contains(&key.as_str()));
        if drivers
            .iter()
            .any(|(key, _)| !DRIVER_PARAMETERS.contains(&key.as_str()))
        {
            let known = [&PARAMETERS[..], &DRIVER_PARAMETERS[..]].concat().join(", ");
            return Err(misconfigured(format!(
                "the URL has an unknown parameter: the known ones are {known}; in a password, write ? as %3F and & as %26"
            )));
        }
        for (_, mode) in drivers.iter().filter(|(key, _)| key == "ssl-mode") {
            // The driver's own error shows the value.
            mode.parse::<MySqlSslMode>().map_err(|_| misconfigured(SSL_MODES))?;
        }
        url.set_query(None);
        if !drivers.is_empty() {
            url.query_pairs_mut().extend_pairs(&drivers);
        }
        let mut options = MySqlConnectOptions::from_url(&url).map_err(|_| misconfigured(NO_UTF8))?;
        if let Some(address) = url
            .host_str()
            .and_then(|host| host.strip_prefix('[')?.strip_suffix(']'))
        {
            options = options.host(address);
        }
        let mut config = Self::new(options);
        for (key, value) in own {
            config = config.with_parameter(&key, value)?;
        }
        config.check()?;
        Ok(config)
    }

    /// Uses the driver's own options, which must name a database. Time zone, SQL mode and statement logging are set
    /// as this backend needs them.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] when they name no database.
    pub fn from_options(options: MySqlConnectOptions) -> Result<Self> {
        let config = Self::new(options);
        config.check()?;
        Ok(config)
    }

    /// Uses the options of an existing pool, but none of its connections: a hold *is* a connection with a transaction
    /// on it and timeouts of its own, which nobody else may use or return to a pool.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] when its options name no database.
    pub fn from_pool(pool: &MySqlPool) -> Result<Self> {
        Self::from_options((*pool.connect_options()).clone())
    }

    /// Sets the table that the locks are in, which is created when it is missing. Lock names of different tables
    /// never meet: it is the namespace. Defaults to `polylock`.
    ///
    /// 1 to 48 letters, digits, `_` or `$`. A second table of that name and `_tokens` goes with it.
    #[must_use]
    pub fn with_table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Sets how long to try to reach the server, and to wait for a free connection of ours. Defaults to 5 s. After an
    /// outage of a server that was reached before, an acquire that waits goes on trying for as long as it waits.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long the server may take to answer before its connection is given up. Defaults to 5 s.
    ///
    /// A renewal is waited for until the hold's ttl is over, and never ends its connection before.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets how many connections there may be, at least 1: each hold and each name that is waited for has one. Each
    /// Tokio runtime uses one more for housekeeping. Defaults to 64; a MySQL allows 151 to all its clients by default.
    #[must_use]
    pub fn with_max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    fn new(options: MySqlConnectOptions) -> Self {
        let options = options
            // A round trip less for each connection, which sets all of these itself or does not need them.
            .timezone(None)
            .set_names(false)
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            // Waiting for a lock is no slow statement, and labels belong in no log.
            .disable_statement_logging();
        Self {
            options,
            table: "polylock".to_owned(),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            max_connections: 64,
        }
    }

    fn with_parameter(self, key: &str, value: String) -> Result<Self> {
        // The parser's own error shows the value.
        let duration = || {
            humantime::parse_duration(&value)
                .map_err(|_| misconfigured(format!("URL parameter {key}: write a duration such as 5s or 500ms")))
        };
        Ok(match key {
            "connect_timeout" => {
                let timeout = duration()?;
                self.with_connect_timeout(timeout)
            }
            "response_timeout" => {
                let timeout = duration()?;
                self.with_response_timeout(timeout)
            }
            "max_connections" => {
                let connections = value.parse().map_err(|error: ParseIntError| {
                    misconfigured("URL parameter max_connections: write a number such as 64").with_source(error)
                })?;
                self.with_max_connections(connections)
            }
            _ => self.with_table(value),
        })
    }

    /// Whether a backend can work with it.
    pub(crate) fn check(&self) -> Result<()> {
        let letters = |table: &str| {
            table
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_$".contains(&byte))
        };
        if !(1..=48).contains(&self.table.len()) || !letters(&self.table) {
            return Err(misconfigured(
                "the table's name is not allowed: use 1 to 48 letters, digits, _ or $",
            ));
        }
        if self.options.get_database().is_none_or(str::is_empty) {
            return Err(misconfigured(
                "no database is named: write mysql://user:password@host:port/database",
            ));
        }
        let timeouts = [self.connect_timeout, self.response_timeout];
        if timeouts.iter().any(|timeout| !TIMEOUTS.contains(timeout)) {
            return Err(misconfigured(
                "connect_timeout and response_timeout must be from 1ms to 1h",
            ));
        }
        if !(1..=MAX_CONNECTIONS).contains(&self.max_connections) {
            return Err(misconfigured(format!(
                "max_connections must be from 1 to {MAX_CONNECTIONS}"
            )));
        }
        Ok(())
    }

    pub(crate) fn options(&self) -> &MySqlConnectOptions {
        &self.options
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    pub(crate) fn max_connections(&self) -> usize {
        self.max_connections
    }

    /// Where the server is, for error messages.
    pub(crate) fn address(&self) -> String {
        match self.options.get_socket() {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", self.options.get_host(), self.options.get_port()),
        }
    }
}

/// Shorter ones cannot be told from zero, longer ones from for ever.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);

/// What a server can be configured to serve at most.
const MAX_CONNECTIONS: usize = 100_000;

/// The driver's options would show the password.
impl fmt::Debug for MySqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlConfig")
            .field("address", &self.address())
            .field("user", &self.options.get_username())
            .field("database", &self.options.get_database())
            .field("table", &self.table)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("max_connections", &self.max_connections)
            .finish_non_exhaustive()
    }
}

const NO_URL: &str = "this is no MySQL URL: write mysql://user:password@host:port/database";

const NOT_ENCODED: &str = "the URL has a bare #, @ or second / after the host: percent-encode special characters in \
    user, password, database and parameters; write # as %23, / as %2F, ? as %3F and @ as %40";

const SSL_MODES: &str = "URL parameter ssl-mode: write DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY";

const NO_UTF8: &str = "user, password and database must be UTF-8: percent-encode its bytes";

/// Whether the URL's host may be a part of a password instead: an unencoded `/`, `?` or `#` ends the part of a URL that
/// holds the password, and the `@` before the real host comes after it.
fn ends_within_credentials(url: &Url) -> bool {
    let database = url.path().trim_start_matches('/');
    url.fragment().is_some() || database.contains(['/', '@']) || url.query().is_some_and(|query| query.contains('@'))
}

fn misconfigured(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests;
