//! A configuration from a URL.

use lock_core::Result;
use lock_kit::url::{PasswordParameters, choice, duration, misconfigured, not_encoded, number, unknown_parameter};
use percent_encoding::percent_decode_str;

#[cfg(not(feature = "tls"))]
use super::no_tls::TlsParameters;
use super::{HeartbeatKind, ZooKeeperConfig};
#[cfg(feature = "tls")]
use lock_tls::TlsParameters;

const PARAMETERS: [&str; 13] = [
    "session_timeout",
    "connect_timeout",
    "heartbeat",
    "previous_password",
    "password_file",
    "password_env",
    "auth",
    "acl",
    "sessions",
    "tls",
    "ca",
    "cert",
    "key",
];

const HEARTBEATS: [(&str, HeartbeatKind); 2] = [("sync", HeartbeatKind::Sync), ("write", HeartbeatKind::Write)];

impl ZooKeeperConfig {
    /// Reads a URL, and checks it; but [`ZooKeeperBackend::new`](crate::ZooKeeperBackend::new) checks who may access the nodes, so that
    /// [credentials](Self::with_credentials) may follow. The user, the password and the root path may be percent-encoded; a `/`, `?`, `#`, `@`
    /// or `%` in them must be. The parameters are
    /// - `session_timeout` and `connect_timeout`: numbers with a unit, such as `10s` or `1500ms`;
    /// - `heartbeat`: `sync` or `write`, see [`HeartbeatKind`];
    /// - `sessions`: a number, see [`with_sessions`](Self::with_sessions);
    /// - `previous_password`: see [`with_previous_password`](Self::with_previous_password), percent-encoded like the password;
    /// - `password_file` and `password_env`: a file or an environment variable that has the password, see
    ///   [`with_credentials`](Self::with_credentials);
    /// - `auth`: `digest` (default), or `sasl`, see `with_sasl`, which needs the feature `sasl`;
    /// - `acl`: `creator` (default) or [`open`](Self::with_open_acl).
    ///
    /// `zookeeper+tls` or `tls=true` asks for TLS; then `ca`, `cert` and `key` name PEM files: see `with_tls`, which needs the
    /// feature `tls`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) says which part is wrong and what it may be. It
    /// names an unknown parameter, but repeats nothing that may be a piece of a password.
    pub fn from_url(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let is_secured = match scheme.to_ascii_lowercase().as_str() {
            "zookeeper" => false,
            "zookeeper+tls" => true,
            _ => {
                return Err(misconfigured(
                    "a ZooKeeper URL begins with zookeeper:// or zookeeper+tls://",
                ));
            }
        };
        let (authority, path_and_query) = match rest.find(['/', '?', '#']) {
            Some(end) => rest.split_at(end),
            None => (rest, ""),
        };
        if path_and_query.contains(['@', '#']) {
            return Err(not_encoded());
        }
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let (credentials, servers) = match authority.rsplit_once('@') {
            Some((credentials, servers)) => (Some(credentials), servers),
            None => (None, authority),
        };
        let mut config = Self::new(servers.split(','));
        if let Some(credentials) = credentials {
            let (user, password) = match credentials.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (credentials, None),
            };
            config = config.with_user(decode("user", user)?);
            if let Some(password) = password {
                config = config.with_password(decode("password", password)?);
            }
        }
        if !path.trim_end_matches('/').is_empty() {
            config = config.with_root(decode("root path", path)?);
        }
        let mut tls = TlsParameters::default();
        if is_secured {
            tls.want()?;
        }
        let mut password = PasswordParameters::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            config = match key {
                "session_timeout" => config.with_session_timeout(duration(key, value)?),
                "connect_timeout" => config.with_connect_timeout(duration(key, value)?),
                "sessions" => config.with_sessions(number(key, value)?),
                "heartbeat" => config.with_heartbeat(choice(key, value, &HEARTBEATS)?),
                "previous_password" => config.with_previous_password(decode("previous password", value)?),
                "auth" => config.with_auth(value)?,
                "acl" => match choice(key, value, &[("creator", false), ("open", true)])? {
                    true => config.with_open_acl(),
                    false => config,
                },
                "password_file" | "password_env" => {
                    password.read(key, &decode("value of a parameter", value)?)?;
                    config
                }
                _ if tls.read(key, &decode("value of a parameter", value)?)? => config,
                _ => {
                    return Err(unknown_parameter("ZooKeeper", key, query, &PARAMETERS));
                }
            };
        }
        config.credentials = password.source();
        #[cfg(feature = "tls")]
        {
            config.tls = tls.finish()?;
        }
        config.check_servers()?;
        Ok(config)
    }
}

fn decode(what: &str, text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    // The text itself may be a password.
    Ok(decoded
        .map_err(|error| misconfigured(format!("the {what} in the URL is not UTF-8")).with_source(error))?
        .into_owned())
}
