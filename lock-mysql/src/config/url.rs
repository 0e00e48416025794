//! A configuration from a URL.

use lock_core::Result;
use lock_kit::url::{
    ENCODE, PasswordParameters, check_encoded, choice, duration, misconfigured, not_encoded, number, unknown_parameter,
};
use lock_tls::TlsParameters;
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use url::Url;

use super::{Checks, MySqlConfig, Strategy};

/// The parameters that a URL may have after its `?`, besides those of the driver.
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
/// The parameters of the driver, for the connection.
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
        check_encoded(url)?;
        let no_url = || misconfigured(format!("this is no MySQL URL: write {EXAMPLE}; {ENCODE}"));
        let mut url = Url::parse(url).map_err(|error| no_url().with_source(error))?;
        if !["mysql", "mariadb"].contains(&url.scheme()) || url.cannot_be_a_base() {
            return Err(no_url());
        }
        if url.fragment().is_some() || url.path().trim_start_matches('/').contains('/') {
            return Err(not_encoded());
        }
        let (own, drivers): (Vec<_>, Vec<_>) = url
            .query_pairs()
            .into_owned()
            .partition(|(key, _)| PARAMETERS.contains(&key.as_str()));
        let is_unknown = |(key, _): &&(String, String)| !DRIVER_PARAMETERS.contains(&key.as_str());
        if let Some((key, _)) = drivers.iter().find(is_unknown) {
            let known = [&PARAMETERS[..], &DRIVER_PARAMETERS[..]].concat();
            let query = url.query().unwrap_or_default();
            return Err(unknown_parameter("MySQL", key, query, &known));
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
        config.password_has_nul = url.password().is_some_and(|password| password.contains("%00"));
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
        Ok(match key {
            "connect_timeout" => self.with_connect_timeout(duration(key, &value)?),
            "response_timeout" => self.with_response_timeout(duration(key, &value)?),
            "max_connections" => self.with_max_connections(number(key, &value)?),
            "retention" => self.with_retention(duration(key, &value)?),
            "max_read_only" => self.with_max_read_only(duration(key, &value)?),
            "strategy" => self.with_strategy(choice(key, &value, &STRATEGIES)?),
            "checks" => self.with_checks(choice(key, &value, &Checks::VALUES)?),
            "single_writer" => self.with_single_writer(choice(key, &value, &[("true", true), ("false", false)])?),
            _ => self.with_table(value),
        })
    }
}

const STRATEGIES: [(&str, Strategy); 2] = [("row", Strategy::Row), ("lease", Strategy::Lease)];

const EXAMPLE: &str = "mysql://user:password@host:port/database";

const SSL_MODES: &str = "URL parameter ssl-mode: write DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY";

const NO_UTF8: &str = "user, password and database must be UTF-8: percent-encode its bytes";
