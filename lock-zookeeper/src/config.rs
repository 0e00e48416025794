//! The addresses of the servers, and the options of their use.

use std::fmt;
use std::time::Duration;

use lock_core::{CredentialSource, Result};
use lock_kit::url::misconfigured;

#[cfg(not(feature = "tls"))]
mod no_tls;
mod proof;
mod rotation;
mod sasl;
#[cfg(test)]
mod tests;
mod url;

pub(crate) use self::proof::Proof;

const DEFAULT_PORT: u16 = 2181;
const SESSION_TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

const SESSIONS: std::ops::RangeInclusive<usize> = 1..=64;

/// The proof that a session lives: the request that the backend sends twelve times in a session timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeartbeatKind {
    /// A `sync`. It costs the servers little and writes nothing. A leader that is cut off from its quorum still answers it,
    /// until it steps down after at most `syncLimit` ticks. Meanwhile another client may get the lock.
    #[default]
    Sync,
    /// A write, which only a leader with a quorum can answer: so even a leader that was cut off renews no hold. It is a delete
    /// that always fails, of a node that does not exist. It changes nothing and needs no permission. But each one is a
    /// transaction, which a quorum of the servers writes to disk.
    Write,
}

/// The addresses of a ZooKeeper ensemble and the options of its use, from a URL or step by step.
///
/// `zookeeper[+tls]://[user:password@]host[:port][,host[:port]...][/root/path][?parameter=value&...]`
///
/// [`ZooKeeperBackend::new`](crate::ZooKeeperBackend::new) checks the configuration.
///
/// ```
/// # use std::time::Duration;
/// # use lock_zookeeper::ZooKeeperConfig;
/// # fn main() -> Result<(), lock_core::Error> {
/// let config = ZooKeeperConfig::from_url("zookeeper://app:secret@zk1,zk2,zk3:2182/orders/locks?session_timeout=12s")?;
/// let same = ZooKeeperConfig::new(["zk1", "zk2", "zk3:2182"])
///     .with_user("app")
///     .with_password("secret")
///     .with_root("/orders/locks")
///     .with_session_timeout(Duration::from_secs(12));
/// assert_eq!(config, same);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ZooKeeperConfig {
    /// Each `host:port`, unless it is not valid.
    servers: Vec<String>,
    root: String,
    session_timeout: Duration,
    connect_timeout: Duration,
    heartbeat: HeartbeatKind,
    sessions: usize,
    user: Option<String>,
    password: Option<String>,
    previous_password: Option<String>,
    credentials: Option<CredentialSource>,
    has_sasl: bool,
    has_open_acl: bool,
    #[cfg(feature = "tls")]
    tls: Option<lock_tls::Tls>,
}

impl ZooKeeperConfig {
    /// The root path unless another one is given.
    pub const DEFAULT_ROOT: &'static str = "/polylock";
    /// The session timeout unless another one is given.
    pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(10);
    /// The connect timeout unless another one is given.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// The largest number of sessions unless another one is given.
    pub const DEFAULT_SESSIONS: usize = 8;

    /// The servers of one ensemble, each `host`, `host:port` or `[address]:port`; the port defaults to 2181. All other
    /// settings have their defaults.
    pub fn new<S: Into<String>>(servers: impl IntoIterator<Item = S>) -> Self {
        let servers = servers.into_iter().map(|server| {
            let server = server.into();
            parse_server(&server).unwrap_or(server)
        });
        Self {
            servers: servers.collect(),
            root: Self::DEFAULT_ROOT.to_owned(),
            session_timeout: Self::DEFAULT_SESSION_TIMEOUT,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            heartbeat: HeartbeatKind::default(),
            sessions: Self::DEFAULT_SESSIONS,
            user: None,
            password: None,
            previous_password: None,
            credentials: None,
            has_sasl: false,
            has_open_acl: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The node under which all locks live: an absolute path, created if it is missing. Applications with different
    /// roots never meet. Defaults to [`DEFAULT_ROOT`](Self::DEFAULT_ROOT).
    #[must_use]
    pub fn with_root(mut self, root: impl Into<String>) -> Self {
        let mut root = root.into();
        while root.len() > 1 && root.ends_with('/') {
            root.pop();
        }
        self.root = root;
        self
    }

    /// How long the server keeps the session of a client that is gone, and with it the client's holds: 100 ms to an
    /// hour, in whole milliseconds. Defaults to [`DEFAULT_SESSION_TIMEOUT`](Self::DEFAULT_SESSION_TIMEOUT).
    ///
    /// Every ttl must be at least this, since a dead client's holds survive that long. The server bounds it: by
    /// default to 2 to 20 of its ticks (`tickTime`, 2 s). Choose at least `syncLimit` ticks (5). Otherwise a follower
    /// that is cut off from its leader answers its clients for longer than their sessions live.
    #[must_use]
    pub fn with_session_timeout(mut self, timeout: Duration) -> Self {
        // The protocol counts whole milliseconds.
        self.session_timeout = Duration::from_millis(timeout.as_millis().try_into().unwrap_or(u64::MAX));
        self
    }

    /// How long a call tries to reach a server, and waits for an answer, before it fails; not zero. Defaults to
    /// [`DEFAULT_CONNECT_TIMEOUT`](Self::DEFAULT_CONNECT_TIMEOUT).
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the proof that a session lives. Defaults to [`HeartbeatKind::Sync`].
    #[must_use]
    pub fn with_heartbeat(mut self, heartbeat: HeartbeatKind) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// The largest number of sessions of the backend, 1 to 64. Defaults to [`DEFAULT_SESSIONS`](Self::DEFAULT_SESSIONS).
    ///
    /// Each session has its own connection and heartbeats, and begins when it is first needed. Up to eight names at a time
    /// are in the first one. With more, names are spread over the first four by their hash. A session carries 512 KiB of
    /// node paths: with names of 100 bytes, about 2,700 holds and waiting names. A name whose session is full gets the next
    /// one with room. If all are full, an acquire fails as [`Unavailable`](lock_core::ErrorKind::Unavailable): the end of a
    /// session with many more nodes could stop an ensemble.
    #[must_use]
    pub fn with_sessions(mut self, sessions: usize) -> Self {
        self.sessions = sessions;
        self
    }

    /// Authenticates as this user, with the scheme `digest` unless another way is set, and makes all nodes accessible to this user
    /// alone. Needs a [password](Self::with_password). Must not be empty nor contain a colon. Defaults to none, which needs an
    /// [open ACL](Self::with_open_acl).
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The password of the [user](Self::with_user). Defaults to none.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Makes all nodes accessible to everybody: anyone who can reach the server may then end any hold. Needed without a
    /// [user](Self::with_user), since nobody else could then be permitted. Defaults to nodes that only their creator may
    /// access.
    #[must_use]
    pub fn with_open_acl(mut self) -> Self {
        self.has_open_acl = true;
        self
    }

    /// Connects over TLS, and verifies each server's certificate. A client certificate counts as credentials: the server takes
    /// its subject as the identity that may access the nodes. Defaults to a connection without TLS.
    ///
    /// The driver takes the crypto provider of the process. If none is installed when the backend first connects, it installs
    /// ring's.
    ///
    /// ```
    /// # use lock_zookeeper::{Tls, ZooKeeperConfig};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let tls = Tls::new().with_ca("ca.pem").with_certificate("client.pem", "client.key");
    /// let config = ZooKeeperConfig::new(["zk1:2281", "zk2:2281"]).with_tls(tls);
    /// let url = "zookeeper+tls://zk1:2281,zk2:2281?ca=ca.pem&cert=client.pem&key=client.key";
    /// assert_eq!(ZooKeeperConfig::from_url(url)?, config);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[must_use]
    pub fn with_tls(mut self, tls: lock_tls::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Checks every setting.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_servers()?;
        self.check_access()
    }

    /// All but who may access the nodes.
    fn check_servers(&self) -> Result<()> {
        if self.servers.is_empty() {
            return Err(misconfigured(
                "no ZooKeeper server is given: name at least one as host:port",
            ));
        }
        if let Some(index) = self.servers.iter().position(|server| parse_server(server).is_none()) {
            let message = format!("server {} is not valid: write host:port or [address]:port", index + 1);
            return Err(misconfigured(message));
        }
        check_root(&self.root)?;
        if !SESSION_TIMEOUTS.contains(&self.session_timeout) {
            let message = format!("session_timeout is {:?}: it may be 100ms to 1h", self.session_timeout);
            return Err(misconfigured(message));
        }
        if self.connect_timeout.is_zero() {
            return Err(misconfigured("connect_timeout is zero: give it at least a millisecond"));
        }
        if !SESSIONS.contains(&self.sessions) {
            let message = format!("sessions is {}: it may be 1 to 64", self.sessions);
            return Err(misconfigured(message));
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            for server in &self.servers {
                lock_tls::check_host(host_and_port(server).0)?;
            }
        }
        Ok(())
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

    pub(crate) fn has_open_acl(&self) -> bool {
        self.has_open_acl
    }

    pub(crate) fn heartbeat(&self) -> HeartbeatKind {
        self.heartbeat
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls(&self) -> Option<&lock_tls::Tls> {
        self.tls.as_ref()
    }
}

impl fmt::Debug for ZooKeeperConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            servers,
            root,
            session_timeout,
            connect_timeout,
            heartbeat,
            sessions,
            user,
            password: _,
            previous_password: _,
            credentials,
            has_sasl,
            has_open_acl,
            #[cfg(feature = "tls")]
            tls,
        } = self;
        // An invalid value may hold a password in a wrong place.
        let servers: Vec<_> = servers.iter().map(|server| parse_server(server)).collect();
        let user = user.as_ref().and_then(|user| user.split(':').next());
        let mut shown = f.debug_struct("ZooKeeperConfig");
        #[cfg(feature = "tls")]
        shown.field("tls", tls);
        shown
            .field("servers", &servers)
            .field("root", root)
            .field("session_timeout", session_timeout)
            .field("connect_timeout", connect_timeout)
            .field("heartbeat", heartbeat)
            .field("sessions", sessions)
            .field("user", &user)
            .field("credentials", credentials)
            .field("has_sasl", has_sasl)
            .field("has_open_acl", has_open_acl)
            .finish_non_exhaustive()
    }
}

fn check_root(root: &str) -> Result<()> {
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
    Ok(())
}

/// Characters beyond the control ones that ZooKeeper rejects in a path.
fn is_reserved(c: char) -> bool {
    matches!(u32::from(c), 0xd800..=0xf8ff | 0xfff0..=0xffff)
}

/// `host:port` or `[address]:port`, with the default port if there is none. `None` if it is not valid.
fn parse_server(server: &str) -> Option<String> {
    let (host, port) = match server.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']')?;
            match rest {
                "" => (host, None),
                _ => (host, Some(rest.strip_prefix(':')?)),
            }
        }
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    let port = port.map_or(Ok(DEFAULT_PORT), str::parse).ok()?;
    let strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | ',' | '[' | ']' | '@');
    if host.is_empty() || port == 0 || host.contains(strange) {
        return None;
    }
    Some(match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    })
}

/// The parts of a [valid](parse_server) `host:port` or `[address]:port`.
pub(crate) fn host_and_port(server: &str) -> (&str, u16) {
    let (host, port) = server.rsplit_once(':').unwrap_or((server, ""));
    let port = port.parse().unwrap_or(DEFAULT_PORT);
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}
