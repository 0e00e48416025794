//! A configuration from a URL.

use lock_core::Result;
use lock_kit::url::{
    ENCODE, PasswordParameters, check_encoded, choice, duration, not_encoded, number, unknown_parameter,
};
use lock_tls::TlsParameters;
use percent_encoding::percent_decode_str;
use url::Url;

use super::{Checks, Host, Pooler, PostgresConfig, Secret, Strategy, misconfigured};

#[cfg(test)]
mod fuzz;

const DEFAULT_PORT: u16 = 5432;

/// What a URL may say after its `?`.
const PARAMETERS: [&str; 20] = [
    "strategy",
    "table",
    "schema",
    "connect_timeout",
    "response_timeout",
    "pooler",
    "listen",
    "retention",
    "session_timeout",
    "restart_delay",
    "max_holds",
    "max_connections",
    "checks",
    "password_file",
    "password_env",
    "tls",
    "ca",
    "cert",
    "key",
    "socket",
];

impl PostgresConfig {
    /// Reads `postgres://user:password@host:port,host:port/database?parameters` (or `postgresql://`). Special characters in user
    /// and password are percent-encoded. The user defaults to `postgres`, each port to 5432. The database must exist. Of several
    /// hosts, the first one that takes writes serves.
    ///
    /// | Parameter | Meaning |
    /// |---|---|
    /// | `strategy` | `lease` (default) or `session`; see [`Strategy`] |
    /// | `table`, `schema` | see [`with_table`](Self::with_table), [`with_schema`](Self::with_schema) |
    /// | `connect_timeout`, `response_timeout` | such as `5s` or `500ms`; see [`with_connect_timeout`](Self::with_connect_timeout), [`with_response_timeout`](Self::with_response_timeout) |
    /// | `pooler` | `none` (default), `session` or `transaction`; see [`Pooler`] |
    /// | `listen` | another URL, percent-encoded; see [`with_listen`](Self::with_listen) |
    /// | `retention` | such as `7d`; see [`with_retention`](Self::with_retention) |
    /// | `session_timeout`, `restart_delay` | such as `10s`, with `strategy=session`; see [`with_session_timeout`](Self::with_session_timeout), [`with_restart_delay`](Self::with_restart_delay) |
    /// | `max_holds`, `max_connections` | numbers, with `strategy=session`; see [`with_max_holds`](Self::with_max_holds), [`with_max_connections`](Self::with_max_connections) |
    /// | `checks` | [`warn`](Checks::Warn) (default), [`refuse`](Checks::Refuse), [`off`](Checks::Off); see [`with_checks`](Self::with_checks) |
    /// | `password_file`, `password_env` | a file or an environment variable that has the password; see [`with_credentials`](Self::with_credentials) |
    /// | `tls` | `true`: TLS alone, and the server's certificate is verified; see [`with_tls`](Self::with_tls) |
    /// | `ca`, `cert`, `key` | files in PEM; see [`Tls`](crate::Tls) |
    /// | `socket` | the directory of a Unix socket to use instead of TCP |
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for anything else in it. The error names an
    /// unknown parameter, but shows nothing that may belong to a password that is not percent-encoded.
    pub fn from_url(url: &str) -> Result<Self> {
        check_encoded(url)?;
        let no_url = || misconfigured(format!("this is no PostgreSQL URL: write {EXAMPLE}; {ENCODE}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(no_url)?;
        if !["postgres", "postgresql"].contains(&scheme.to_ascii_lowercase().as_str()) {
            return Err(no_url());
        }
        // A URL has one host.
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let one_host = match login {
            "" => format!("postgres://h{path}"),
            login => format!("postgres://{login}@h{path}"),
        };
        let url = Url::parse(&one_host).map_err(|error| no_url().with_source(error))?;
        if url.fragment().is_some() || url.path().trim_start_matches('/').contains('/') {
            return Err(not_encoded());
        }
        let hosts: Result<Vec<_>> = hosts.split(',').map(host).collect();
        let mut config = Self::at(hosts?);
        if !url.username().is_empty() {
            config.user = decoded(url.username())?;
        }
        config.password = url.password().map(decoded).transpose()?.map(Secret);
        config.database = decoded(url.path().trim_start_matches('/'))?;
        let (mut tls, mut password) = (TlsParameters::default(), PasswordParameters::default());
        for (key, value) in url.query_pairs() {
            if !PARAMETERS.contains(&&*key) {
                let query = url.query().unwrap_or_default();
                return Err(unknown_parameter("PostgreSQL", &key, query, &PARAMETERS));
            }
            if !tls.read(&key, &value)? && !password.read(&key, &value)? {
                config = config.with_parameter(&key, &value)?;
            }
        }
        config.tls = tls.finish()?;
        config.credentials = password.source();
        config.check()?;
        Ok(config)
    }

    fn with_parameter(mut self, key: &str, value: &str) -> Result<Self> {
        Ok(match key {
            "strategy" => self.with_strategy(choice(key, value, &STRATEGIES)?),
            "schema" => self.with_schema(value),
            "connect_timeout" => self.with_connect_timeout(duration(key, value)?),
            "response_timeout" => self.with_response_timeout(duration(key, value)?),
            "pooler" => self.with_pooler(choice(key, value, &POOLERS)?),
            "listen" => self.with_listen(Self::from_url(value)?),
            "retention" => self.with_retention(duration(key, value)?),
            "session_timeout" => self.with_session_timeout(duration(key, value)?),
            "restart_delay" => self.with_restart_delay(duration(key, value)?),
            "max_holds" => self.with_max_holds(number(key, value)?),
            "max_connections" => self.with_max_connections(number(key, value)?),
            "checks" => self.with_checks(choice(key, value, &Checks::VALUES)?),
            "socket" => {
                let port = match self.hosts.as_slice() {
                    [Host::Tcp(_, port)] => *port,
                    _ => {
                        return Err(misconfigured(
                            "socket in the URL stands for one host: leave out the others",
                        ));
                    }
                };
                self.hosts = vec![Host::Socket(value.into(), port)];
                self
            }
            _ => self.with_table(value),
        })
    }
}

/// A host with its port, or without.
fn host(text: &str) -> Result<Host> {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, rest)) => (address, Some(rest.strip_prefix(':').unwrap_or_default())),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port
            .parse()
            .map_err(|_| misconfigured(format!("a port in the URL is no number from 0 to 65535; {ENCODE}")))?,
    };
    Ok(Host::Tcp(decoded(host)?, port))
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(|text| text.into_owned())
        .map_err(|_| misconfigured("user, password, host and database must be UTF-8: percent-encode its bytes"))
}

const STRATEGIES: [(&str, Strategy); 2] = [("lease", Strategy::Lease), ("session", Strategy::Session)];
const POOLERS: [(&str, Pooler); 3] = [
    ("none", Pooler::None),
    ("session", Pooler::Session),
    ("transaction", Pooler::Transaction),
];

const EXAMPLE: &str = "postgres://user:password@host:port/database";
