//! Where the server is and how to use it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lock_core::{CredentialSource, Result};
use lock_kit::limits::{check_credentials, check_no_nul, check_retention, check_timeouts};
use lock_kit::url::{misconfigured, two_passwords};
use lock_tls::Tls;

pub use self::choices::{Pooler, Strategy};
use self::sessions::Sessions;
use crate::names::check_identifiers;
pub use lock_kit::checks::Checks;

mod choices;
mod sessions;
mod url;

/// Which PostgreSQL, and how to use it.
///
/// From a URL, or by hand. [`backend`](crate::backend) and [`LeaseTableBackend::new`](crate::LeaseTableBackend::new) check it.
///
/// ```
/// # use std::time::Duration;
/// # use lock_postgres::PostgresConfig;
/// # fn main() -> Result<(), lock_core::Error> {
/// let config = PostgresConfig::from_url("postgres://app:secret@db:5432/shop?table=shop_locks&connect_timeout=2s")?;
/// let same = PostgresConfig::new("db", 5432)
///     .with_user("app")
///     .with_password("secret")
///     .with_database("shop")
///     .with_table("shop_locks")
///     .with_connect_timeout(Duration::from_secs(2));
/// assert_eq!(format!("{config:?}"), format!("{same:?}")); // which never shows the password
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PostgresConfig {
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: String,
    password: Option<Secret>,
    credentials: Option<CredentialSource>,
    pub(crate) database: String,
    pub(crate) schema: Option<String>,
    pub(crate) table: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    strategy: Strategy,
    pub(crate) pooler: Pooler,
    /// Where to listen for calls, if not where requests go.
    listen: Option<Box<Self>>,
    pub(crate) retention: Duration,
    pub(crate) sessions: Sessions,
    pub(crate) checks: Checks,
    pub(crate) tls: Option<Tls>,
}

/// One server of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Tcp(String, u16),
    /// The directory of the socket, and the port that its name ends with.
    Socket(PathBuf, u16),
}

impl Host {
    fn is_empty(&self) -> bool {
        match self {
            Self::Tcp(host, _) => host.is_empty(),
            Self::Socket(directory, _) => directory.as_os_str().is_empty(),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Tcp(host, _) => host.as_bytes(),
            Self::Socket(directory, _) => directory.as_os_str().as_encoded_bytes(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Socket(directory, port) => write!(f, "{}/.s.PGSQL.{port}", directory.display()),
        }
    }
}

impl PostgresConfig {
    /// The table of the locks, unless another is chosen.
    pub const DEFAULT_TABLE: &'static str = "polylock";
    /// How long to try to reach the server, unless said otherwise.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// How long the server may take to answer, unless said otherwise.
    pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
    /// How long the row of a name outlasts its last use, unless said otherwise: 7 days.
    pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

    /// The server at this host and port, all else by default: user `postgres` without a password, no TLS.
    /// [`with_database`](Self::with_database) must follow, as no database is the default.
    ///
    /// ```
    /// # use lock_postgres::{LeaseTableBackend, PostgresConfig};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let backend = LeaseTableBackend::new(PostgresConfig::new("127.0.0.1", 5432).with_database("shop"))?;
    /// # Ok(()) }
    /// ```
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::at(vec![Host::Tcp(host.into(), port)])
    }

    /// The server at the Unix socket in this directory, as `/run/postgresql`, for this port.
    pub fn socket(directory: impl Into<PathBuf>, port: u16) -> Self {
        Self::at(vec![Host::Socket(directory.into(), port)])
    }

    fn at(hosts: Vec<Host>) -> Self {
        Self {
            hosts,
            user: "postgres".to_owned(),
            password: None,
            credentials: None,
            database: String::new(),
            schema: None,
            table: Self::DEFAULT_TABLE.to_owned(),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            response_timeout: Self::DEFAULT_RESPONSE_TIMEOUT,
            strategy: Strategy::default(),
            pooler: Pooler::default(),
            listen: None,
            retention: Self::DEFAULT_RETENTION,
            sessions: Sessions::default(),
            checks: Checks::default(),
            tls: None,
        }
    }

    /// Adds another server of the same replication. Each connection goes to the first one that takes writes. So it
    /// does if a name has several addresses.
    pub fn with_host(mut self, host: impl Into<String>, port: u16) -> Self {
        self.hosts.push(Host::Tcp(host.into(), port));
        self
    }

    /// Sets the user. Defaults to `postgres`.
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// Sets the password. Defaults to none.
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(Secret(password.into()));
        self
    }

    /// Sets where the password comes from, and perhaps the user, instead of [`with_password`](Self::with_password). It is asked before
    /// each connection, so that the password can change while locks are held. Defaults to none.
    ///
    /// ```
    /// # use lock_core::CredentialSource;
    /// # use lock_postgres::PostgresConfig;
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let source = CredentialSource::file("/run/secrets/postgres");
    /// let config = PostgresConfig::new("db", 5432).with_user("app").with_database("shop").with_credentials(source);
    /// let same = PostgresConfig::from_url("postgres://app@db/shop?password_file=/run/secrets/postgres")?;
    /// # assert_eq!(format!("{config:?}"), format!("{same:?}"));
    /// # Ok(()) }
    /// ```
    pub fn with_credentials(mut self, source: CredentialSource) -> Self {
        self.credentials = Some(source);
        self
    }

    /// Sets the database that the lock tables are in. It must exist. There is no default.
    pub fn with_database(mut self, database: impl Into<String>) -> Self {
        self.database = database.into();
        self
    }

    /// Sets the schema that the lock tables are in. It must exist. Without it, tables are found by the user's
    /// `search_path`, and made in the first schema of that if none of them is there.
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Sets what the names of the lock tables begin with, which are created when they are missing. Locks in different tables are
    /// independent, whatever their names: the table is the namespace. Defaults to [`DEFAULT_TABLE`](Self::DEFAULT_TABLE).
    ///
    /// 1 to 48 letters, digits, `_` or `$`; upper case differs from lower case. See [`schema`](crate::schema).
    pub fn with_table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Sets how long to try to reach the server. Several hosts, and several addresses of a name, share this time. From 1 ms to 1 h. Defaults to
    /// [`DEFAULT_CONNECT_TIMEOUT`](Self::DEFAULT_CONNECT_TIMEOUT).
    ///
    /// After an outage of a server that was reached before, an acquire that waits goes on trying for as long as it waits.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long the server may take to answer before its connection is given up. From 1 ms to 1 h. Defaults to
    /// [`DEFAULT_RESPONSE_TIMEOUT`](Self::DEFAULT_RESPONSE_TIMEOUT).
    ///
    /// The server itself ends what takes longer: each connection sets `statement_timeout` to this time, or to 5 s if that is longer. With
    /// [`Pooler::Transaction`] the server's own setting counts.
    ///
    /// A renewal is waited for until the hold's TTL is over, and never ends its connection before. With [`Pooler::Transaction`],
    /// requests of a process wait for each other. The timeout begins when a request is sent; one that is not sent within two of them fails,
    /// and has changed nothing.
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// How locks are kept.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Sets how locks are kept. Defaults to [`Strategy::Lease`].
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// States which pooler is between this process and the server. Defaults to [`Pooler::None`].
    pub fn with_pooler(mut self, pooler: Pooler) -> Self {
        self.pooler = pooler;
        self
    }

    /// Sets the server at which waiters listen to be woken: the same one without the pooler. Without it, waiters behind a
    /// [pooler of transactions](Pooler::Transaction) ask again every 250 to 500 ms.
    pub fn with_listen(mut self, listen: Self) -> Self {
        self.listen = Some(Box::new(listen));
        self
    }

    /// Sets how long the row of a name outlasts its last token, from 1 min to 365 days. Then it is deleted: in
    /// the background, or by [`LeaseTableBackend::clean_up`](crate::LeaseTableBackend::clean_up). Without the permission `DELETE`
    /// on the table of leases, locks work and no row is deleted. Defaults to [`DEFAULT_RETENTION`](Self::DEFAULT_RETENTION).
    ///
    /// Choose a time longer than any by which the server's clock may ever be set back: with the row goes the last token, and
    /// then only the clock makes the next one larger.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets what to do about server settings by which a crash loses leases: `fsync=off`, `full_page_writes=off`, and a
    /// `synchronous_commit` that does not wait for the disk; and about lock tables that are `UNLOGGED`. Defaults to [`Checks::Warn`].
    ///
    /// Each new connection over which locks are acquired is checked. polylock warns again only when the findings change. A setting
    /// that changes later is noticed by the next new connection or [`connect`](lock_core::Locker::connect). Then [`Checks::Refuse`]
    /// refuses new locks, and those that are held are renewed and released as before.
    pub fn with_checks(mut self, checks: Checks) -> Self {
        self.checks = checks;
        self
    }

    /// Connects over TLS alone, and verifies the server's certificate. Defaults to no TLS.
    ///
    /// ```
    /// # use lock_postgres::{PostgresConfig, Tls};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = PostgresConfig::new("db", 5432).with_database("shop").with_tls(Tls::new().with_ca("ca.pem"));
    /// let same = PostgresConfig::from_url("postgres://db/shop?tls=true&ca=ca.pem")?;
    /// # assert_eq!(format!("{config:?}"), format!("{same:?}"));
    /// # Ok(()) }
    /// ```
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// User and password of this moment.
    pub(crate) async fn login(&self, limit: Duration) -> Result<(String, Option<String>)> {
        let Some(source) = &self.credentials else {
            let password = self.password.clone().map(|Secret(password)| password);
            return Ok((self.user.clone(), password));
        };
        let credentials = source.get(limit).await?;
        check_credentials(&credentials)?;
        let user = credentials.user().unwrap_or(&self.user).to_owned();
        Ok((user, Some(credentials.password().to_owned())))
    }

    /// Where waiters listen; `None`: nowhere.
    pub(crate) fn listens_at(&self) -> Option<&Self> {
        match (&self.listen, self.pooler) {
            (Some(listen), _) => Some(listen),
            (None, Pooler::Transaction) => None,
            (None, _) => Some(self),
        }
    }

    /// Where the server is, for error messages.
    pub(crate) fn address(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(Host::to_string).collect();
        hosts.join(",")
    }

    /// Where the server is, with the database and the tables, for whoever compares.
    pub(crate) fn server_and_database(&self) -> String {
        let schema = self.schema.as_deref().unwrap_or_default();
        let (address, database, table) = (self.address().to_lowercase(), &self.database, &self.table);
        format!("postgres {address}/{database}/{schema}/{table}")
    }

    /// Checks what the builder methods could not refuse. No message shows a value: it may be a part of a password.
    pub(crate) fn check(&self) -> Result<()> {
        if self.hosts.is_empty() || self.hosts.iter().any(Host::is_empty) {
            return Err(misconfigured("the host is empty: name the server's host or socket"));
        }
        if self.tls.is_some() {
            for host in &self.hosts {
                match host {
                    Host::Tcp(host, _) => lock_tls::check_host(host)?,
                    Host::Socket(..) => {
                        return Err(misconfigured("TLS needs a host: leave it out for a Unix socket"));
                    }
                }
            }
        }
        if self.password.is_some() && self.credentials.is_some() {
            return Err(two_passwords("PostgreSQL"));
        }
        if self.database.is_empty() {
            return Err(misconfigured(
                "no database is named: write postgres://user:password@host:port/database, or call with_database",
            ));
        }
        let password = self.password.as_ref().map(|Secret(password)| password);
        let texts = [Some(&self.user), password, Some(&self.database)].into_iter().flatten();
        check_no_nul(texts.map(String::as_bytes).chain(self.hosts.iter().map(Host::bytes)))?;
        check_identifiers(self.schema.as_deref(), &self.table)?;
        check_timeouts(self.connect_timeout, self.response_timeout)?;
        check_retention(self.retention)?;
        self.check_sessions()?;
        match &self.listen {
            Some(listen) if listen.pooler == Pooler::Transaction => Err(misconfigured(
                "listen must lead to the server itself, without a pooler of transactions",
            )),
            Some(listen) => listen.check(),
            None => Ok(()),
        }
    }
}

/// A password, which nothing shows.
#[derive(Clone, PartialEq, Eq)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

#[cfg(test)]
mod tests;
