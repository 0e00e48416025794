//! A configuration from a URL.

use lock_core::Result;
use lock_kit::url::{ENCODE, PasswordParameters, check_encoded, choice, duration, number, unknown_parameter};
#[cfg(feature = "tls")]
use lock_tls::TlsParameters;
use redis::IntoConnectionInfo;

#[cfg(not(feature = "tls"))]
use super::no_tls::TlsParameters;
use super::{Checks, RedisConfig, hosts, misconfigured, sentinels};

/// The port of a Sentinel if the URL gives none.
const SENTINEL_PORT: u16 = 26379;

/// The parameters that any URL may have after its `?`.
const PARAMETERS: [&str; 9] = [
    "prefix",
    "connect_timeout",
    "response_timeout",
    "grace",
    "checks",
    "replicas",
    "restart_delay",
    "password_file",
    "password_env",
];

impl RedisConfig {
    /// Parses a URL: `redis://[[user]:password@]host[:port][/database]`, for a Redis Cluster
    /// `redis+cluster://[[user]:password@]host:port,host:port`, where some of the nodes are enough, for Sentinels
    /// `redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/MASTER[/database]`, or
    /// `redis+unix:///path[?db=N&user=U&pass=P]`; `valkey` may stand for `redis`, and `unix` for `redis+unix`. `rediss` or
    /// `valkeys` asks for TLS (`rediss+cluster`, `rediss+sentinel`), as `tls=true` does; then `ca`, `cert` and `key` name PEM files: see `with_tls`, which needs the
    /// feature `tls`.
    ///
    /// Parameters of both: `prefix` ([default](Self::DEFAULT_PREFIX) `polylock:`), `connect_timeout` and
    /// `response_timeout` (default `5s` each), `grace` (default `100ms`), `checks` ([`warn`](Checks::Warn), which is the
    /// default, `refuse` or `off`), `replicas` ([default](Self::with_replicas) `0`) and `restart_delay`
    /// ([default](Self::with_restart_delay) `0s`).
    ///
    /// The hosts of `redis+sentinel` are those of all Sentinels, on port 26379 by default, `MASTER` is what they call the Redis
    /// (`sentinel monitor MASTER ..`), and user and password are those of the Redis. The Sentinels' own are the parameters
    /// `sentinel_user` and `sentinel_password`. See [`sentinel`](Self::sentinel).
    ///
    /// In place of a password, `password_file` names a file and `password_env` an environment variable that has it, and for Sentinels
    /// `sentinel_password_file` and `sentinel_password_env`: see [`with_credentials`](Self::with_credentials).
    ///
    /// Percent-encode special characters of user and password: `/` as `%2F`, `?` as `%3F`, `#` as `%23`, `@` as `%40`; of a socket's
    /// path all but the `/`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for anything else, and for TLS without the feature `tls`. An error names an unknown parameter, but shows nothing that may be a part of the password.
    pub fn from_url(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let scheme = scheme.to_ascii_lowercase();
        let (scheme, topology) = scheme.split_once('+').unwrap_or((&*scheme, ""));
        let has_sentinels = topology == "sentinel";
        let (is_unix, is_secured) = match (scheme, topology) {
            ("redis" | "valkey", "" | "cluster" | "sentinel") => (false, false),
            ("rediss" | "valkeys", "" | "cluster" | "sentinel") => (false, true),
            ("redis" | "valkey", "unix") | ("unix", "") => (true, false),
            _ => {
                return Err(misconfigured(
                    "the URL of a Redis begins with redis://, redis+sentinel://, redis+cluster:// or redis+unix://",
                ));
            }
        };
        check_encoded(url)?;
        // The driver's own TLS is not used.
        let plain;
        let mut config = Self::new("", 0);
        let url = match (topology, is_secured) {
            ("cluster", _) => {
                let (nodes, first) = hosts::split(rest, 6379)?;
                config = Self::cluster(nodes);
                plain = format!("redis://{first}");
                &plain
            }
            ("sentinel", _) => {
                let (servers, first) = hosts::split(rest, SENTINEL_PORT)?;
                let (master, others) = sentinels::split_master(&first);
                config = Self::sentinel(servers, master);
                plain = format!("redis://{others}");
                &plain
            }
            (_, true) => {
                plain = format!("redis://{rest}");
                &plain
            }
            (_, false) => url,
        };
        let parsed =
            redis::parse_redis_url(url).ok_or_else(|| misconfigured(format!("this is no URL: {WRITE}; {ENCODE}")))?;
        if parsed.fragment().is_some() {
            return Err(misconfigured(format!("a '#' in the URL has no meaning: {ENCODE}")));
        }
        let mut tls = TlsParameters::default();
        if is_secured {
            tls.want()?;
        }
        let (mut password, mut sentinel_password) = (PasswordParameters::default(), PasswordParameters::default());
        for (name, value) in parsed.query_pairs() {
            let of_sentinel = name
                .strip_prefix("sentinel_")
                .filter(|_| has_sentinels)
                .unwrap_or_default();
            match (&*name, is_unix) {
                ("prefix", _) => config.prefix = value.into_owned(),
                ("connect_timeout", _) => config.connect_timeout = duration("connect_timeout", &value)?,
                ("response_timeout", _) => config.response_timeout = duration("response_timeout", &value)?,
                ("grace", _) => config.grace = duration("grace", &value)?,
                ("checks", _) => config.checks = choice("checks", &value, &Checks::VALUES)?,
                ("replicas", _) => config.replicas = number("replicas", &value)?,
                ("restart_delay", _) => config.restart_delay = duration("restart_delay", &value)?,
                ("db" | "user" | "pass", true) => {}
                ("sentinel_user", _) if has_sentinels => config = config.with_sentinel_user(value),
                ("sentinel_password", _) if has_sentinels => config = config.with_sentinel_password(value),
                (_, false) if tls.read(&name, &value)? => {}
                _ if password.read(&name, &value)? => {}
                _ if sentinel_password.read(of_sentinel, &value)? => {}
                _ => {
                    let (unix, sentinel) = (is_unix, has_sentinels);
                    let query = parsed.query().unwrap_or_default();
                    return Err(unknown_parameter("Redis", &name, query, &known(unix, sentinel)));
                }
            }
        }
        let address = config.info.addr().clone();
        config.info = (parsed.into_connection_info()).map_err(|error| {
            misconfigured(format!("the URL names no Redis server: {WRITE}; {ENCODE}")).with_source(error)
        })?;
        if has_sentinels {
            config.info = config.info.set_addr(address);
        }
        config.credentials = password.source();
        if let Some(source) = sentinel_password.source() {
            config = config.with_sentinel_credentials(source);
        }
        #[cfg(feature = "tls")]
        {
            config.tls = tls.finish()?;
        }
        config.check()?;
        Ok(config)
    }
}

/// The advice for a URL that cannot be parsed.
const WRITE: &str = "write redis://user:password@host:port/database";

fn known(is_unix: bool, has_sentinels: bool) -> Vec<&'static str> {
    let of_server: &[&str] = match (is_unix, has_sentinels) {
        (true, _) => &["db", "user", "pass"],
        (false, true) => &[
            "tls",
            "ca",
            "cert",
            "key",
            "sentinel_user",
            "sentinel_password",
            "sentinel_password_file",
            "sentinel_password_env",
        ],
        (false, false) => &["tls", "ca", "cert", "key"],
    };
    [&PARAMETERS[..], of_server].concat()
}
