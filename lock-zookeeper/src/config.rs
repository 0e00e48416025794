//! Where the servers are and how to talk to them.

use std::fmt;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use percent_encoding::percent_decode_str;

const SCHEME: &str = "zookeeper://";
const DEFAULT_PORT: u16 = 2181;

/// How to reach a ZooKeeper ensemble, from a URL or step by step.
///
/// `zookeeper://[user:password@]host[:port][,host[:port]...][/root/path][?parameter=value&...]`
///
/// ```
/// # use std::time::Duration;
/// # use lock_zookeeper::ZooKeeperConfig;
/// # fn main() -> Result<(), lock_core::Error> {
/// let config = ZooKeeperConfig::from_url("zookeeper://zk1,zk2,zk3:2182/orders/locks?session_timeout=12s")?;
/// let same = ZooKeeperConfig::new(["zk1", "zk2", "zk3:2182"])?
///     .with_root("/orders/locks")?
///     .with_session_timeout(Duration::from_secs(12))?;
/// assert_eq!(config, same);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ZooKeeperConfig {
    servers: Vec<String>,
    root: String,
    session_timeout: Duration,
    connect_timeout: Duration,
    credentials: Option<String>,
}

impl ZooKeeperConfig {
    /// The root path where none is given.
    pub const DEFAULT_ROOT: &str = "/polylock";

    /// The servers, each `host` or `host:port`; the port defaults to 2181. Everything else has its default.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] when there is none, or one is not of that form.
    pub fn new<S: AsRef<str>>(servers: impl IntoIterator<Item = S>) -> Result<Self> {
        let servers = servers
            .into_iter()
            .enumerate()
            .map(|(index, server)| parse_server(index + 1, server.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        if servers.is_empty() {
            return Err(misconfigured(
                "no ZooKeeper server is given: name at least one as host:port",
            ));
        }
        Ok(Self {
            servers,
            root: Self::DEFAULT_ROOT.to_owned(),
            session_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            credentials: None,
        })
    }

    /// Reads a URL. The user, the password and the root path may be percent-encoded, and have to be where they hold one
    /// of `/?#@%`. The parameters are `session_timeout` and `connect_timeout`, each a number with a unit such as `10s`
    /// or `1500ms`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`], saying which part is wrong and what it may be. It never repeats the part, which may
    /// be a piece of a password.
    pub fn from_url(url: &str) -> Result<Self> {
        let rest = url
            .strip_prefix(SCHEME)
            .ok_or_else(|| misconfigured(format!("a ZooKeeper URL begins with {SCHEME}")))?;
        let (authority, path_and_query) = match rest.find(['/', '?', '#']) {
            Some(end) => rest.split_at(end),
            None => (rest, ""),
        };
        if path_and_query.contains(['@', '#']) {
            return Err(misconfigured(
                "the URL has an @ or a # in its path or its parameters: write /, ?, #, @ and % as %2F, %3F, %23, %40 and %25 in the \
                 user, the password and the root path",
            ));
        }
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let (credentials, servers) = match authority.rsplit_once('@') {
            Some((credentials, servers)) => (Some(credentials), servers),
            None => (None, authority),
        };
        let mut config = Self::new(servers.split(','))?;
        if let Some(credentials) = credentials {
            let (user, password) = credentials.split_once(':').ok_or_else(|| {
                misconfigured("the URL has a user without a password: write zookeeper://user:password@host")
            })?;
            config = config.with_credentials(decode("user", user)?, decode("password", password)?)?;
        }
        if !path.trim_end_matches('/').is_empty() {
            config = config.with_root(decode("root path", path)?)?;
        }
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            config = match key {
                "session_timeout" => config.with_session_timeout(parse_duration(key, value)?)?,
                "connect_timeout" => config.with_connect_timeout(parse_duration(key, value)?)?,
                _ => {
                    return Err(misconfigured(
                        "the URL has an unknown parameter: there are session_timeout and connect_timeout; write a ? in a \
                         password as %3F",
                    ));
                }
            };
        }
        Ok(config)
    }

    /// The node under which all locks live, created when missing: applications with different roots never meet.
    /// Defaults to [`DEFAULT_ROOT`](Self::DEFAULT_ROOT).
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] when it is no absolute path, or is not legal in ZooKeeper.
    pub fn with_root(mut self, root: impl Into<String>) -> Result<Self> {
        let mut root = root.into();
        while root.len() > 1 && root.ends_with('/') {
            root.pop();
        }
        let legal = |component: &str| {
            !matches!(component, "" | "." | "..") && !component.chars().any(|c| c.is_control() || is_reserved(c))
        };
        let components = root.strip_prefix('/').map(|path| path.split('/'));
        if !components.is_some_and(|mut components| components.all(legal)) {
            return Err(misconfigured(
                "the root path is not valid: write /like/this, without empty parts, control characters, . and ..",
            ));
        }
        if root == "/zookeeper" || root.starts_with("/zookeeper/") {
            return Err(misconfigured(
                "the path /zookeeper belongs to the server: use another root path",
            ));
        }
        self.root = root;
        Ok(self)
    }

    /// How long the server keeps the session of a client that is gone, and with it the client's holds. Defaults to
    /// 10 s; from 100 ms to an hour.
    ///
    /// Every ttl must be at least this, since a dead client's holds survive that long. The server bounds it: by
    /// default to 2 to 20 of its ticks (`tickTime`, 2 s). Choose at least `syncLimit` ticks (5), or a follower that
    /// is cut off from its leader keeps its clients in the dark for longer than their sessions live.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] when it is out of bounds.
    pub fn with_session_timeout(mut self, timeout: Duration) -> Result<Self> {
        const BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
        if timeout < BOUNDS.0 || timeout > BOUNDS.1 {
            let message = format!("session_timeout is {timeout:?}: it may be 100ms to 1h");
            return Err(misconfigured(message));
        }
        // The protocol counts whole milliseconds.
        self.session_timeout = Duration::from_millis(timeout.as_millis().try_into().unwrap_or(u64::MAX));
        Ok(self)
    }

    /// How long to try to reach a server, and to wait for an answer, before a call fails. Defaults to 5 s.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] when it is zero.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        if timeout.is_zero() {
            return Err(misconfigured("connect_timeout is zero: give it at least a millisecond"));
        }
        self.connect_timeout = timeout;
        Ok(self)
    }

    /// Authenticates with the scheme `digest`, and makes all nodes accessible to this user alone. Defaults to none:
    /// anybody who reaches the server may then end any hold.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] when the user is empty or has a colon in it.
    pub fn with_credentials(mut self, user: impl AsRef<str>, password: impl AsRef<str>) -> Result<Self> {
        let user = user.as_ref();
        if user.is_empty() || user.contains(':') {
            return Err(misconfigured("the user is empty or has a colon in it"));
        }
        self.credentials = Some(format!("{user}:{}", password.as_ref()));
        Ok(self)
    }

    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    pub(crate) fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// `user:password`.
    pub(crate) fn credentials(&self) -> Option<&str> {
        self.credentials.as_deref()
    }
}

impl fmt::Debug for ZooKeeperConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            servers,
            root,
            session_timeout,
            connect_timeout,
            credentials,
        } = self;
        let user = credentials
            .as_deref()
            .and_then(|credentials| credentials.split(':').next());
        f.debug_struct("ZooKeeperConfig")
            .field("servers", servers)
            .field("root", root)
            .field("session_timeout", session_timeout)
            .field("connect_timeout", connect_timeout)
            .field("user", &user)
            .finish_non_exhaustive()
    }
}

/// Characters beyond the control ones that ZooKeeper refuses in a path.
fn is_reserved(c: char) -> bool {
    matches!(u32::from(c), 0xd800..=0xf8ff | 0xfff0..=0xffff)
}

/// `host:port`, or `[address]:port`. `number` says in an error which server it is.
fn parse_server(number: usize, server: &str) -> Result<String> {
    let wrong = || {
        misconfigured(format!(
            "server {number} is not valid: write host:port or [address]:port"
        ))
    };
    let (host, port) = match server.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']').ok_or_else(wrong)?;
            match rest {
                "" => (host, None),
                _ => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            }
        }
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    let port = port.map_or(Ok(DEFAULT_PORT), str::parse).map_err(|_| wrong())?;
    let strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | ',' | '[' | ']' | '@');
    if host.is_empty() || port == 0 || host.contains(strange) {
        return Err(wrong());
    }
    Ok(if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    })
}

fn parse_duration(key: &str, value: &str) -> Result<Duration> {
    // Neither the value nor the parser's error, which repeats a part of it.
    humantime::parse_duration(value).map_err(|_| {
        misconfigured(format!(
            "{key} is no duration: write 10s or 1500ms, and a ? in a password as %3F"
        ))
    })
}

fn decode(what: &str, text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    // The text itself may be a password.
    Ok(decoded
        .map_err(|error| misconfigured(format!("the {what} in the URL is not UTF-8")).with_source(error))?
        .into_owned())
}

fn misconfigured(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_part_of_a_url() {
        let url = "zookeeper://me:p%40ss@zk1,zk2:2182,[::1]:2183/my/locks/?session_timeout=12s&connect_timeout=300ms";
        let config = ZooKeeperConfig::from_url(url).unwrap();
        assert_eq!(config.servers(), ["zk1:2181", "zk2:2182", "[::1]:2183"]);
        assert_eq!(config.root(), "/my/locks");
        assert_eq!(config.session_timeout(), Duration::from_secs(12));
        assert_eq!(config.connect_timeout(), Duration::from_millis(300));
        assert_eq!(config.credentials(), Some("me:p@ss"));
    }

    #[test]
    fn has_defaults() {
        for url in ["zookeeper://zk", "zookeeper://zk/", "zookeeper://zk?"] {
            let config = ZooKeeperConfig::from_url(url).unwrap();
            assert_eq!(config, ZooKeeperConfig::new(["zk:2181"]).unwrap());
            assert_eq!(config.root(), "/polylock");
        }
    }

    #[test]
    fn says_what_is_wrong_and_what_is_right() {
        for (url, hint) in [
            ("redis://zk", "zookeeper://"),
            ("zookeeper://", "host:port"),
            ("zookeeper://zk:0", "host:port"),
            ("zookeeper://zk:99999", "host:port"),
            ("zookeeper://zk,,zk2", "host:port"),
            ("zookeeper://[::1", "host:port"),
            ("zookeeper://me@zk", "user:password"),
            ("zookeeper://:x@zk", "user is empty"),
            ("zookeeper://zk/a//b", "/like/this"),
            ("zookeeper://zk/zookeeper/a", "belongs to the server"),
            ("zookeeper://zk/a/../b", "/like/this"),
            ("zookeeper://zk/a%00b", "/like/this"),
            ("zookeeper://zk/%ff", "UTF-8"),
            ("zookeeper://zk?ttl=3s", "session_timeout and connect_timeout"),
            ("zookeeper://zk?session_timeout=3", "10s or 1500ms"),
            ("zookeeper://zk?session_timeout=1ms", "100ms to 1h"),
            ("zookeeper://zk?connect_timeout=0s", "connect_timeout is zero"),
        ] {
            let error = ZooKeeperConfig::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let config = ZooKeeperConfig::from_url("zookeeper://me:s3cret@zk").unwrap();
        let shown = format!("{config:?}");
        assert!(shown.contains("\"me\"") && !shown.contains("s3cret"), "{shown}");
        for url in [
            "zookeeper://me:s3cret%ff@zk",
            "zookeeper://me:s3cret@zk:x",
            "zookeeper://s3cret@zk",
            "zookeeper://me:123?s3cret@zk",
            "zookeeper://me:123?session_timeout=s3cret@zk",
            "zookeeper://me:123?s3cret",
            "zookeeper://me:123?session_timeout=s3cret",
            "zookeeper://me:123/s3cret@zk",
            "zookeeper://me:123#s3cret@zk",
            "zookeeper://me:1@2/s3cret@zk",
            "zookeeper://me:s3cret",
            "zookeeper://me:s3cret@@zk:x",
            "zookeeper://me:1/s3cret/../x",
            "zookeeper://me:1/s3cret/%ff",
            "zookeeper://me:12@zk,s3cret]",
            "s3cret",
        ] {
            let error = ZooKeeperConfig::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
            let source = std::error::Error::source(&error);
            assert!(
                !format!("{error} {error:?} {source:?}").contains("s3cret"),
                "{url}: {error:?}"
            );
        }
    }

    #[test]
    fn a_password_that_has_to_be_encoded_is_hinted_at() {
        let all = "/?#@%:";
        let encoded = "zookeeper://me:%2F%3F%23%40%25:@zk";
        assert_eq!(
            ZooKeeperConfig::from_url(encoded).unwrap().credentials(),
            Some(&*format!("me:{all}"))
        );
        let config = ZooKeeperConfig::new(["zk"]).unwrap();
        assert_eq!(
            config.with_credentials("me", all).unwrap().credentials(),
            Some(&*format!("me:{all}"))
        );
        for character in ["/", "?", "#"] {
            let error = ZooKeeperConfig::from_url(&format!("zookeeper://me:12{character}3@zk")).unwrap_err();
            for code in ["%2F", "%3F", "%23", "%40"] {
                assert!(error.to_string().contains(code), "{character}: {error}");
            }
        }
        // The last one ends it.
        let config = ZooKeeperConfig::from_url("zookeeper://me:12@3@zk").unwrap();
        assert_eq!(config.credentials(), Some("me:12@3"));
    }
}
