//! The address of the server, and the options of its use.

use std::fmt;
use std::time::Duration;

use lock_core::CredentialSource;
use lock_tls::Tls;
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlSslMode};

pub use lock_kit::checks::Checks;

mod credentials;
mod limits;
mod url;

/// The address of a MySQL or MariaDB, and the options of its use.
///
/// From a URL, or by hand. [`backend`](crate::backend) and the backends' `new` check it.
///
/// ```
/// # use std::time::Duration;
/// # use lock_mysql::MySqlConfig;
/// # fn main() -> Result<(), lock_core::Error> {
/// let config = MySqlConfig::from_url("mysql://app:secret@db:3306/shop?table=shop_locks&connect_timeout=2s")?;
/// let same = MySqlConfig::new("db", 3306)
///     .with_user("app")
///     .with_password("secret")
///     .with_database("shop")
///     .with_table("shop_locks")
///     .with_connect_timeout(Duration::from_secs(2));
/// assert_eq!(format!("{config:?}"), format!("{same:?}")); // which never shows the password
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct MySqlConfig {
    pub(crate) options: MySqlConnectOptions,
    /// True if the options have a password that was given to us.
    has_password: bool,
    /// The driver gives no password back.
    password_has_nul: bool,
    credentials: Option<CredentialSource>,
    pub(crate) table: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) max_connections: usize,
    strategy: Strategy,
    pub(crate) retention: Duration,
    pub(crate) max_read_only: Duration,
    pub(crate) single_writer: bool,
    pub(crate) checks: Checks,
    pub(crate) tls: Option<Tls>,
}

/// The strategy by which a lock is kept in the database.
///
/// ```
/// use lock_mysql::{MySqlConfig, Strategy};
/// # fn main() -> Result<(), lock_core::Error> {
/// let config = MySqlConfig::from_url("mysql://app:secret@db/shop?strategy=lease")?;
/// assert_eq!(config.strategy(), Strategy::Lease);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// A locked row in an open transaction: see [`RowLockBackend`](crate::RowLockBackend). Each hold takes a connection and
    /// ends with it, at once.
    #[default]
    Row,
    /// A row that says until when it is held: see [`LeaseTableBackend`](crate::LeaseTableBackend). All holds share a few
    /// connections. The hold of a process that died ends with its TTL.
    Lease,
}

impl MySqlConfig {
    /// The table of the locks, unless another is chosen.
    pub const DEFAULT_TABLE: &'static str = "polylock";
    /// The default time limit for reaching the server.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default time limit for the server's answers.
    pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default for the most connections.
    pub const DEFAULT_MAX_CONNECTIONS: usize = 64;

    /// The default time for which the row of a name outlasts its last use: 7 days.
    pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

    /// The default time for which a server may be read-only before its row locks end.
    pub const DEFAULT_MAX_READ_ONLY: Duration = Duration::from_secs(5);

    /// The server at this host and port, all else by default: user `root` without a password. If the server has TLS, the
    /// connection uses it, without verifying the server's certificate: see [`with_tls`](Self::with_tls).
    /// [`with_database`](Self::with_database) must follow, as no database is the default.
    ///
    /// ```
    /// # use lock_mysql::{MySqlConfig, RowLockBackend};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let backend = RowLockBackend::new(MySqlConfig::new("127.0.0.1", 3306).with_database("shop"))?;
    /// # Ok(()) }
    /// ```
    pub fn new(host: impl AsRef<str>, port: u16) -> Self {
        Self::from_options(MySqlConnectOptions::new().host(host.as_ref()).port(port))
    }

    /// Uses the driver's own options: for a Unix socket, or for certificates in memory. Time zone, SQL mode and statement
    /// logging are set as this backend needs them.
    ///
    /// ```
    /// # use lock_mysql::{MySqlConfig, RowLockBackend, sqlx::mysql::MySqlConnectOptions};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let options = MySqlConnectOptions::new().socket("/run/mysqld/mysqld.sock").database("shop");
    /// let backend = RowLockBackend::new(MySqlConfig::from_options(options))?;
    /// # Ok(()) }
    /// ```
    pub fn from_options(options: MySqlConnectOptions) -> Self {
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
            has_password: false,
            password_has_nul: false,
            credentials: None,
            table: Self::DEFAULT_TABLE.to_owned(),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            response_timeout: Self::DEFAULT_RESPONSE_TIMEOUT,
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            strategy: Strategy::default(),
            retention: Self::DEFAULT_RETENTION,
            max_read_only: Self::DEFAULT_MAX_READ_ONLY,
            single_writer: false,
            checks: Checks::default(),
            tls: None,
        }
    }

    /// Uses the options of an existing pool, but none of its connections: a hold *is* a connection with a transaction
    /// on it and timeouts of its own, which nobody else may use or return to a pool.
    pub fn from_pool(pool: &MySqlPool) -> Self {
        Self::from_options((*pool.connect_options()).clone())
    }

    /// Connects over TLS alone, and verifies the server's certificate. The driver also trusts the public authorities of
    /// Mozilla's list, even if [`Tls::with_ca`] names another. Defaults to TLS without verification if the server has it, which protects
    /// from no attacker who can change what is sent.
    ///
    /// ```
    /// # use lock_mysql::{MySqlConfig, Tls};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = MySqlConfig::new("db", 3306).with_database("shop").with_tls(Tls::new().with_ca("ca.pem"));
    /// let same = MySqlConfig::from_url("mysql://db/shop?tls=true&ca=ca.pem")?;
    /// # assert_eq!(format!("{config:?}"), format!("{same:?}"));
    /// # Ok(()) }
    /// ```
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.options = self.options.ssl_mode(MySqlSslMode::VerifyIdentity);
        if let Some(ca) = tls.ca() {
            self.options = self.options.ssl_ca(ca);
        }
        if let Some((certificate, key)) = tls.certificate() {
            self.options = self.options.ssl_client_cert(certificate).ssl_client_key(key);
        }
        self.tls = Some(tls);
        self
    }

    /// The same with the trusted authorities in PEM.
    pub(crate) fn with_roots(mut self, roots: String) -> Self {
        self.options = self.options.ssl_ca_from_pem(roots.into_bytes());
        self
    }

    /// Connects without TLS, even if the server has it.
    pub(crate) fn without_tls(mut self) -> Self {
        self.options = self.options.ssl_mode(MySqlSslMode::Disabled);
        self
    }

    /// Sets the user. Defaults to `root`.
    pub fn with_user(mut self, user: impl AsRef<str>) -> Self {
        self.options = self.options.username(user.as_ref());
        self
    }

    /// Sets the password. Defaults to none.
    pub fn with_password(mut self, password: impl AsRef<str>) -> Self {
        self.options = self.options.password(password.as_ref());
        self.has_password = true;
        self.password_has_nul = password.as_ref().contains('\0');
        self
    }

    /// Sets the database that the lock tables are in. It must exist. There is no default.
    pub fn with_database(mut self, database: impl AsRef<str>) -> Self {
        self.options = self.options.database(database.as_ref());
        self
    }

    /// Sets the table that the locks are in, which is created when it is missing. Locks in different tables are
    /// independent, whatever their names: the table is the namespace. Defaults to
    /// [`DEFAULT_TABLE`](Self::DEFAULT_TABLE).
    ///
    /// 1 to 48 letters, digits, `_` or `$`. The other tables have names that begin with this one: see [`schema`](crate::schema).
    pub fn with_table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Sets how long to try to reach the server, and how long an acquire that waits may wait for a free connection of
    /// ours. From 1 ms to 1 h. Defaults to [`DEFAULT_CONNECT_TIMEOUT`](Self::DEFAULT_CONNECT_TIMEOUT).
    ///
    /// After an outage of a server that was reached before, an acquire that waits goes on trying for as long as it waits.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long the server may take to answer before its connection is given up. From 1 ms to 1 h. Defaults to
    /// [`DEFAULT_RESPONSE_TIMEOUT`](Self::DEFAULT_RESPONSE_TIMEOUT).
    ///
    /// A renewal is waited for until the hold's ttl is over, and never ends its connection before.
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets how many connections row locks may have, from 1 to 100,000: each hold and each name that is waited for has one.
    /// Waiters take no more than three quarters of them. With all in use, a try fails at once as
    /// [`Unavailable`](lock_core::ErrorKind::Unavailable).
    /// Each Tokio runtime uses one more for housekeeping, from its first lock on. Defaults to
    /// [`DEFAULT_MAX_CONNECTIONS`](Self::DEFAULT_MAX_CONNECTIONS); a MySQL allows 151 to all its clients by default.
    pub fn with_max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sets how locks are kept. Defaults to [`Strategy::Row`]. [`backend`](crate::backend) makes the backend of a strategy.
    ///
    /// Locks of different strategies are independent, whatever their names: all clients must use the same one.
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Returns the strategy by which locks are kept.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Sets how long the row of a name outlasts its last hold and its last token, from 1 min to 365 days. Then it is deleted: in
    /// the background, or by [`RowLockBackend::clean_up`](crate::RowLockBackend::clean_up) or
    /// [`LeaseTableBackend::clean_up`](crate::LeaseTableBackend::clean_up). Both need the permission `DELETE`; without it, locks
    /// work and no row is deleted. Defaults to [`DEFAULT_RETENTION`](Self::DEFAULT_RETENTION).
    ///
    /// Choose a time longer than any by which the server's clock may ever be set back: with the row goes the last token, and
    /// then only the clock makes the next one larger.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets how long the server may be read-only before the row locks on it end, from 0 s to 365 days. Defaults to
    /// [`DEFAULT_MAX_READ_ONLY`](Self::DEFAULT_MAX_READ_ONLY): a server that is read-only for a moment keeps them, and in a
    /// planned switchover an administrator need not wait for longer than that. [`Strategy::Lease`] is not asked: its renewals
    /// write, and end there with the TTL.
    ///
    /// A server becomes read-only before another takes its place. That one grants the same names. See
    /// [`RowLockBackend`](crate::RowLockBackend#planned-switchover) for what an administrator has to do.
    pub fn with_max_read_only(mut self, time: Duration) -> Self {
        self.max_read_only = time;
        self
    }

    /// States that all clients of these locks reach the same node of a cluster, also after a failover of some of them.
    /// Defaults to `false`: then a row lock is refused on a Galera node and in a group replication with several primaries,
    /// because the other nodes do not have its row locks. Two clients on two nodes would hold one name. Other servers and
    /// [`Strategy::Lease`] are not asked.
    pub fn with_single_writer(mut self, single_writer: bool) -> Self {
        self.single_writer = single_writer;
        self
    }

    /// Sets what to do about server settings by which a crash loses leases: `innodb_flush_log_at_trx_commit` other than 1, and
    /// with a binary log `sync_binlog` other than 1. Row locks are not checked, since each of them ends in a crash anyway. Defaults
    /// to [`Checks::Warn`].
    pub fn with_checks(mut self, checks: Checks) -> Self {
        self.checks = checks;
        self
    }

    /// The server's address with the database and the table, for comparison with others.
    pub(crate) fn server_and_database(&self) -> String {
        let database = self.options.get_database().unwrap_or_default();
        format!("mysql {}/{database}/{}", self.address().to_lowercase(), self.table)
    }

    /// The server's address, for error messages.
    pub(crate) fn address(&self) -> String {
        match self.options.get_socket() {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", self.options.get_host(), self.options.get_port()),
        }
    }
}

/// The driver's options would show the password.
impl fmt::Debug for MySqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlConfig")
            .field("address", &self.address())
            .field("user", &self.options.get_username())
            .field("credentials", &self.credentials)
            .field("database", &self.options.get_database())
            .field("table", &self.table)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("max_connections", &self.max_connections)
            .field("strategy", &self.strategy)
            .field("retention", &self.retention)
            .field("max_read_only", &self.max_read_only)
            .field("single_writer", &self.single_writer)
            .field("checks", &self.checks)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
