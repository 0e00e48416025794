//! The lock server, as part of an application's configuration.

use std::fmt;
use std::time::Duration;

use lock_core::{CredentialSource, Error, ErrorKind, FencingToken, Guarantee, Locker, Result};

use crate::connect;

pub use self::quorum::QuorumOptions;

#[cfg(feature = "serde")]
mod duration;
#[cfg(feature = "serde")]
mod file;
mod quorum;
mod shown;

/// The lock server and the defaults of all locks, as a part of an application's configuration. Change the URL, and the
/// same code uses another server.
///
/// With the feature `serde`, it can be read from a configuration file. Durations have a unit there: `10s` or `500ms`.
/// Unknown fields are errors. The file has either `url`, or `urls` for a quorum of several servers:
///
/// ```toml
/// urls = ["redis://a", "redis://b", "redis://c"]
/// quorum = { restart_delay = "60s" }
/// ttl = "20s"
/// ```
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), polylock::Error> {
/// let mut config = polylock::Config::new("memory:");
/// config.label = Some("worker 7".into());
/// let locks = config.connect().await?;
/// # drop(locks); Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(try_from = "file::File"))]
#[non_exhaustive]
pub struct Config {
    /// The server's URL: see [`connect`](crate::connect). Empty if there are [`urls`](Self::urls).
    pub url: String,
    /// The URLs of several independent servers, of which a majority has to agree. Needs the feature `quorum`. Empty if there is a
    /// [`url`](Self::url).
    pub urls: Vec<String>,
    /// The settings of the quorum of these [`urls`](Self::urls).
    pub quorum: Option<QuorumOptions>,
    /// The time for which a lock stays taken after its process died. Defaults to 30 s: see [`Locker::with_ttl`].
    pub ttl: Option<Duration>,
    /// A label, shown to anyone who asks who holds a lock. Empty: no label is stored. Defaults to `host:pid`: see
    /// [`Locker::with_label`].
    pub label: Option<String>,
    /// The most times in a row that a lock may pass from one waiter of this process to the next: up to 16, which is the default.
    /// As many readers may join a hold, also more than 16: see [`Locker::with_passes`].
    pub passes: Option<u32>,
    /// The time limit of operations that do not wait for the lock, if the server does not answer. Defaults to 5 s: see
    /// [`Locker::with_operation_timeout`]. The time limit for connecting is the parameter `connect_timeout` of the URL.
    pub operation_timeout: Option<Duration>,
    /// Every grant's fencing token is larger than this one. Defaults to no floor: see [`Locker::with_token_floor`].
    pub token_floor: Option<FencingToken>,
    /// The source of the password, if the URL has none: see [`with_credentials`](Self::with_credentials). In a file,
    /// one of `password_file` and `password_env`.
    pub(crate) credentials: Option<CredentialSource>,
    /// Guarantees that the server must keep, besides those that the URL requires. Defaults to none: see
    /// [`Locker::require`]. In a file, a list of ids, as in `require = ["fifo", "ttl:1s"]`.
    pub require: Vec<Guarantee>,
    /// The guarantees for which an operator vouches where a server cannot be asked. Defaults to none: see [`Locker::trusting`].
    pub trusting: Vec<Guarantee>,
}

impl Config {
    /// The default settings for the server with this URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            urls: Vec::new(),
            quorum: None,
            ttl: None,
            label: None,
            passes: None,
            operation_timeout: None,
            token_floor: None,
            credentials: None,
            require: Vec::new(),
            trusting: Vec::new(),
        }
    }

    /// The default settings for a quorum of the servers with these URLs.
    pub fn of_quorum(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            ..Self::new("")
        }
    }

    /// Sets where the password comes from, and perhaps the user. Each backend asks before each connection that it makes, so a password
    /// can change while the process runs and holds locks. The page of each backend says how: "Change of a password". A
    /// quorum asks for all of its nodes; if they have different passwords, write `password_file` into each URL. `memory:` asks for none.
    ///
    /// The Sentinels of a Redis have a password of their own: see the parameter `sentinel_password_file`.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "redis")]
    /// # fn main() -> Result<(), polylock::Error> {
    /// use polylock::{Config, CredentialSource, Credentials};
    ///
    /// # async fn from_vault() -> Result<String, polylock::Error> { Ok(String::new()) }
    /// let source = CredentialSource::ask(|| async { Ok(Credentials::new(from_vault().await?)) });
    /// let locks = Config::new("redis://app@cache").with_credentials(source).connect_lazy()?;
    /// # drop(locks); Ok(()) }
    /// # #[cfg(not(feature = "redis"))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub fn with_credentials(mut self, source: CredentialSource) -> Self {
        self.credentials = Some(source);
        self
    }

    /// Connects to the server: see [`connect`](crate::connect).
    ///
    /// # Errors
    /// Those of [`connect`](crate::connect); [`ErrorKind::Misconfigured`] without a URL, with both `url` and `urls`, and with a
    /// password in a URL besides [`with_credentials`](Self::with_credentials).
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn connect(&self) -> Result<Locker> {
        let locker = self.connect_lazy()?;
        locker.connect().await?;
        Ok(locker)
    }

    /// Makes a locker without I/O: see [`connect_lazy`](crate::connect_lazy).
    ///
    /// # Errors
    /// Those of [`connect_lazy`](crate::connect_lazy); [`ErrorKind::Misconfigured`] without a URL, with both `url` and `urls`, and
    /// with a password in a URL besides [`with_credentials`](Self::with_credentials).
    pub fn connect_lazy(&self) -> Result<Locker> {
        let mut locker = match self.servers()? {
            Servers::One(url) => connect::lazy(url, self.credentials.as_ref())?,
            Servers::Quorum(urls, options) => connect::quorum_lazy(urls, options, self.credentials.as_ref())?,
        };
        let Self {
            url: _,
            urls: _,
            quorum: _,
            ttl,
            label,
            passes,
            operation_timeout,
            token_floor,
            credentials: _,
            require,
            trusting,
        } = self;
        if let Some(ttl) = *ttl {
            locker = locker.with_ttl(ttl);
        }
        locker = match label.as_deref() {
            None => locker,
            Some("") => locker.without_label(),
            Some(label) => locker.with_label(label),
        };
        if let Some(passes) = *passes {
            locker = locker.with_passes(passes);
        }
        if let Some(limit) = *operation_timeout {
            locker = locker.with_operation_timeout(limit);
        }
        if let Some(floor) = *token_floor {
            locker = locker.with_token_floor(floor);
        }
        Ok(connect::required(locker, require, trusting))
    }

    /// Makes the tables that locks in MySQL, MariaDB and PostgreSQL need and that are missing, on each server of a quorum. Other
    /// servers need none. A locker makes its tables by itself, if its user may: this is for a deployment under another
    /// user. See `schema::migrate` of [MySQL](mysql/schema/fn.migrate.html) and [PostgreSQL](postgres/schema/fn.migrate.html).
    ///
    /// # Errors
    /// [`ErrorKind::Denied`], with the SQL for an administrator, if tables are missing and the user may not create them; those
    /// of [`connect_lazy`](Self::connect_lazy), and those of connecting.
    ///
    /// # Cancel safety
    /// May be dropped at any point: some tables are then made. Call it again.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), polylock::Error> {
    /// let url = "memory:"; // in a deployment: "postgres://admin:secret@db/shop?schema=locks"
    /// polylock::Config::new(url).migrate().await?;
    /// # Ok(()) }
    /// ```
    pub async fn migrate(&self) -> Result<()> {
        for url in self.checked_urls()? {
            connect::tables::make(&url, self.credentials.as_ref()).await?;
        }
        Ok(())
    }

    /// The SQL of all tables that [`migrate`](Self::migrate) makes, as statements that end with `;`. Those of several servers come one
    /// after the other, equal ones once. Empty if none are needed.
    ///
    /// # Errors
    /// Those of [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), polylock::Error> {
    /// assert_eq!(polylock::Config::new("memory:").schema()?, "");
    /// # Ok(()) }
    /// ```
    pub fn schema(&self) -> Result<String> {
        let mut all: Vec<String> = Vec::new();
        for url in self.checked_urls()? {
            let sql = connect::tables::sql(&url, self.credentials.as_ref())?;
            // The nodes of a quorum mostly have the same ones.
            if !all.contains(&sql) {
                all.push(sql);
            }
        }
        Ok(all.concat())
    }

    /// The URL of each server, if a locker can be made of them: servers that need no tables are checked here and nowhere else.
    fn checked_urls(&self) -> Result<Vec<String>> {
        drop(self.connect_lazy()?);
        match self.servers()? {
            Servers::One(url) => connect::tables::servers_of(url),
            Servers::Quorum(urls, _) => Ok(urls.to_vec()),
        }
    }

    /// The servers that it names, in one way.
    fn servers(&self) -> Result<Servers<'_>> {
        let refused = |message| Err(Error::new(ErrorKind::Misconfigured, message));
        match (self.url.as_str(), self.urls.as_slice(), &self.quorum) {
            ("", [], None) => refused("no lock server is named: write its `url`, or `urls` for a quorum of several"),
            ("", [], Some(_)) => refused("a quorum needs the URLs of its servers: write `urls`"),
            ("", urls, _) if urls.iter().any(|url| url.trim().is_empty()) => {
                refused("one of the `urls` is empty: write the URL of each server")
            }
            ("", urls, options) => Ok(Servers::Quorum(urls, options.as_ref())),
            (url, [], None) => Ok(Servers::One(url)),
            (_, [], Some(_)) => refused(
                "the settings of a quorum need `urls`: write these in place of `url`, or the settings into \
                 the URL, as in `quorum:?restart_delay=60s|redis://a|redis://b|redis://c`",
            ),
            (_, [_, ..], _) => refused("both `url` and `urls` name lock servers: write one of them"),
        }
    }
}

enum Servers<'a> {
    One(&'a str),
    Quorum(&'a [String], Option<&'a QuorumOptions>),
}

/// Shows of each URL the scheme, hosts, ports, database and the names of the parameters, and no password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            url,
            urls,
            quorum,
            ttl,
            label,
            passes,
            operation_timeout,
            token_floor,
            credentials,
            require,
            trusting,
        } = self;
        f.debug_struct("Config")
            .field("url", &format_args!("{}", shown::shown(url)))
            .field("urls", &urls.iter().map(|url| shown::shown(url)).collect::<Vec<_>>())
            .field("quorum", quorum)
            .field("ttl", ttl)
            .field("label", label)
            .field("passes", passes)
            .field("operation_timeout", operation_timeout)
            .field("token_floor", token_floor)
            .field("credentials", credentials)
            .field("require", require)
            .field("trusting", trusting)
            .finish()
    }
}

#[cfg(test)]
mod tests;
