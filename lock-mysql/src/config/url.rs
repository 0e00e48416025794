//! A configuration from a URL.

use std::num::ParseIntError;

use lock_core::Result;
use lock_kit::url::{PasswordParameters, unknown_parameter};
use lock_tls::TlsParameters;
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use url::Url;

use super::{MySqlConfig, Strategy, misconfigured};
use crate::probe::Checks;

/// What a URL may say after its `?`, besides what the driver understands.
const PARAMETERS: [&str; 11] = [
    "table",
    "connect_timeout",
    "response_timeout",
    "max_connections",
    "strategy",
    "retention",
    "max_read_only",
    "single_writer",
    "checks",
    "password_file",
    "password_env",
];
/// What it says of the connection.
const DRIVER_PARAMETERS: [&str; 9] = [
    "tls", "ca", "cert", "key", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket",
];

impl MySqlConfig {
    /// Reads `mysql://user:password@host:port/database?parameters` (or `mariadb://`). Special characters in user and
    /// password are percent-encoded. The user defaults to `root`, the port to 3306. The database must exist.
    ///
    /// | Parameter | Meaning |
    /// |---|---|
    /// | `table` | see [`with_table`](Self::with_table) |
    /// | `connect_timeout`, `response_timeout` | such as `5s` or `500ms`; see [`with_connect_timeout`](Self::with_connect_timeout), [`with_response_timeout`](Self::with_response_timeout) |
    /// | `max_connections` | see [`with_max_connections`](Self::with_max_connections) |
    /// | `strategy` | `row` (default) or `lease`; see [`Strategy`] |
    /// | `retention` | such as `7d`; see [`with_retention`](Self::with_retention) |
    /// | `max_read_only` | such as `5s` (default); see [`with_max_read_only`](Self::with_max_read_only) |
    /// | `single_writer` | `true` or `false` (default); see [`with_single_writer`](Self::with_single_writer) |
    /// | `checks` | [`warn`](crate::Checks::Warn) (default), [`refuse`](crate::Checks::Refuse), [`off`](crate::Checks::Off); see [`with_checks`](Self::with_checks) |
    /// | `password_file`, `password_env` | a file or an environment variable that has the password; see [`with_credentials`](Self::with_credentials) |
    /// | `tls` | `true`: TLS alone, and the server's certificate is verified; `false`: no TLS; see [`with_tls`](Self::with_tls) |
    /// | `ca`, `cert`, `key` | files in PEM; see [`Tls`](crate::Tls) |
    /// | `ssl-mode` | `PREFERRED` (default: TLS without verification if the server has it), `DISABLED`; `REQUIRED`, `VERIFY_CA` and `VERIFY_IDENTITY` all mean `tls=true` |
    /// | `ssl-ca`, `ssl-cert`, `ssl-key` | as `ca`, `cert`, `key` |
    /// | `socket` | the path of a Unix socket to use instead of TCP |
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for anything else in it. The error names an
    /// unknown parameter, but shows nothing that may belong to a password that is not percent-encoded.
    pub fn from_url(url: &str) -> Result<Self> {
        if has_unencoded_password(url) {
            return Err(misconfigured(NOT_ENCODED));
        }
        let mut url = Url::parse(url).map_err(|error| misconfigured(NO_URL).with_source(error))?;
        if !["mysql", "mariadb"].contains(&url.scheme()) || url.cannot_be_a_base() {
            return Err(misconfigured(NO_URL));
        }
        if url.fragment().is_some() || url.path().trim_start_matches('/').contains('/') {
            return Err(misconfigured(NOT_ENCODED));
        }
        let (own, drivers): (Vec<_>, Vec<_>) = url
            .query_pairs()
            .into_owned()
            .partition(|(key, _)| PARAMETERS.contains(&key.as_str()));
        let is_unknown = |(key, _): &&(String, String)| !DRIVER_PARAMETERS.contains(&key.as_str());
        if let Some((key, _)) = drivers.iter().find(is_unknown) {
            let known = [&PARAMETERS[..], &DRIVER_PARAMETERS[..]].concat();
            let (query, hint) = (
                url.query().unwrap_or_default(),
                "in a password, write ? as %3F and & as %26",
            );
            return Err(unknown_parameter("MySQL", key, query, &known, hint));
        }
        let mut tls = TlsParameters::default();
        let mut to_driver = Vec::new();
        for (key, value) in drivers {
            match key.as_str() {
                "ssl-mode" => match value.parse() {
                    Ok(MySqlSslMode::Preferred) => {}
                    Ok(MySqlSslMode::Disabled) => drop(tls.read("tls", "false")?),
                    Ok(_) => drop(tls.read("tls", "true")?),
                    // The driver's own error shows the value.
                    Err(_) => return Err(misconfigured(SSL_MODES)),
                },
                "socket" => to_driver.push((key, value)),
                key => drop(tls.read(key.strip_prefix("ssl-").unwrap_or(key), &value)?),
            }
        }
        url.set_query(None);
        if !to_driver.is_empty() {
            url.query_pairs_mut().extend_pairs(&to_driver);
        }
        let mut options = MySqlConnectOptions::from_url(&url).map_err(|_| misconfigured(NO_UTF8))?;
        if let Some(address) = url
            .host_str()
            .and_then(|host| host.strip_prefix('[')?.strip_suffix(']'))
        {
            options = options.host(address);
        }
        let mut config = Self::from_options(options);
        config.has_password = url.password().is_some();
        if tls.is_refused() {
            config = config.without_tls();
        }
        if let Some(tls) = tls.finish()? {
            config = config.with_tls(tls);
        }
        let mut password = PasswordParameters::default();
        for (key, value) in own {
            if !password.read(&key, &value)? {
                config = config.with_parameter(&key, value)?;
            }
        }
        config.credentials = password.source();
        config.check()?;
        Ok(config)
    }

    fn with_parameter(self, key: &str, value: String) -> Result<Self> {
        // The parser's own error shows the value.
        let duration = || {
            humantime::parse_duration(&value)
                .map_err(|_| misconfigured(format!("{key} in the URL is no duration: write 3s or 500ms")))
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
            "retention" => {
                let retention = duration()?;
                self.with_retention(retention)
            }
            "max_read_only" => {
                let time = duration()?;
                self.with_max_read_only(time)
            }
            "strategy" => match &*value {
                "row" => self.with_strategy(Strategy::Row),
                "lease" => self.with_strategy(Strategy::Lease),
                _ => return Err(misconfigured("URL parameter strategy: write row or lease")),
            },
            "checks" => self.with_checks(match &*value {
                "warn" => Checks::Warn,
                "refuse" => Checks::Refuse,
                "off" => Checks::Off,
                _ => return Err(misconfigured("URL parameter checks: write warn, refuse or off")),
            }),
            "single_writer" => {
                let single_writer = value
                    .parse()
                    .map_err(|_| misconfigured("URL parameter single_writer: write true or false"))?;
                self.with_single_writer(single_writer)
            }
            _ => self.with_table(value),
        })
    }
}

const NO_URL: &str = "this is no MySQL URL: write mysql://user:password@host:port/database; \
    in user and password, write / as %2F, ? as %3F, # as %23, @ as %40 and % as %25";

const NOT_ENCODED: &str = "a special character in the URL is not percent-encoded: \
    in user, password and database, write / as %2F, ? as %3F, # as %23, @ as %40 and % as %25";

const SSL_MODES: &str = "URL parameter ssl-mode: write DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY";

const NO_UTF8: &str = "user, password and database must be UTF-8: percent-encode its bytes";

/// Whether the host may be a part of a password instead: an unencoded `/`, `?` or `#` ends the part of a URL that holds the
/// password, and the `@` before the real host comes after it.
fn has_unencoded_password(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@'))
}
