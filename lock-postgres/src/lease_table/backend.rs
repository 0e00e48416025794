//! The backend that users name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, ListFrom, ListPage, LockStatus, Revoke, Revoked,
};
use lock_core::{FencingToken, Guarantee, LockName, Result, Verdict};

use super::Shared;
use crate::config::PostgresConfig;
use crate::error::{SqlError, unless_missing};
use crate::list::list;
use crate::names::name_bytes;
use crate::probe::{SYSTEM, leases_keep, server_id};
use crate::protocol::answers::status;

/// Locks that are rows with a lease, for any number of holds on two connections. `strategy=lease`.
///
/// Cheap to clone; clones share their connections.
///
/// # Guarantees
/// An acquire, a renewal and a release are one statement on the name's row each, in one round trip; an acquire of a name that is taken
/// or was never used sends a second one. The server's clock decides when a hold ends. Renewals at the same time go out as one
/// statement, up to 1,000, and those of readers and permits as another. The shortest TTL is 100 ms.
///
/// A hold outlives its connections, and a server that comes back before its TTL has passed. If the server's clock is set
/// back, a hold lasts at most as long as the longest TTL that its holder asked for.
///
/// Waiters of one process queue there, and processes queue at the server, in order. The release calls the first one with `NOTIFY`,
/// and a stand-by, which asks 100 ms later. It returns after the call, one round trip and at most 250 ms later than if nobody waits: a
/// process may end right after it. Besides, a waiter asks by itself every 0.5 to 1 s, and less often if many
/// names are waited for. A process that dies while it waits keeps those behind it waiting for up to 3 s.
///
/// # What ends a hold
/// - Its release, or its TTL if nobody renews it: also if its process ends.
/// - A clock of the server that is set forward, before its time; and the promotion of a standby whose clock is ahead of the primary's by
///   more than a tenth of the TTL.
/// - Whoever deletes or changes its row.
/// - Whatever lets nobody write its row for longer than its TTL, as it cannot be renewed: a disk so [full](crate#a-full-disk) that the
///   row's next version has no room, a synchronous standby that does not answer, or `LOCK TABLE` and `ALTER TABLE` on the table of leases.
/// - The promotion of an asynchronous standby that lacks its grant. With `synchronous_standby_names` the server grants nothing that the
///   standby does not have, unless somebody cancels the wait for the standby (`pg_cancel_backend`), or `pooler=transaction` leaves a
///   weaker `synchronous_commit` in place.
///
/// # Fencing
/// A token is the server's clock in microseconds, or larger than the row's last token if that is larger. The row keeps
/// the last one that was reserved, also after a release. So tokens grow unless the row was deleted or lost and the clock
/// is then behind the last token.
///
/// # Limits
/// - Two connections for each process, whatever it holds; one more while anybody waits, and for three seconds at most after that; and one
///   while old rows are deleted, a few times a day.
/// - A transaction of somebody else that keeps a name's row locked keeps that name from being acquired and renewed. The first such
///   request fails after a second, and delays those behind it: if that is a renewal, leases with a TTL below 2 s may be lost. For a
///   minute from then on, renewals leave locked rows out, and requests for that name fail after 50 ms.
/// - While a synchronous standby does not answer, each request that is given up leaves a connection at the server until the standby is
///   back: one every five seconds for each process.
/// - Before PostgreSQL 19, each `NOTIFY` wakes all sessions of the database that listen. So a process listens only while it waits, and
///   a hand-off takes the longer the more processes wait in one database: 0.7 ms with 2 clients, 1.6 ms with 16, 3.0 ms with 128 (medians
///   of [the benchmarks](https://github.com/polylock/polylock/blob/main/docs/benchmarks.md), 2026-11-29).
/// - A transaction that stays open for minutes keeps the server from removing dead versions of rows, in all tables. A name that is
///   taken a thousand times a second is then served slower and slower, until that transaction ends.
/// - The row of a name that nobody has and that nobody was granted for seven days is deleted in the background, if the user has the permission `DELETE`. See
///   [`PostgresConfig::with_retention`] and [`clean_up`](Self::clean_up).
/// - Requests of an id that was abandoned without an answer are refused for an hour. No pooler keeps a request for so long.
#[derive(Clone)]
pub struct LeaseTableBackend(Arc<Shared>);

impl LeaseTableBackend {
    /// A backend for this server. Does no I/O: it connects when it is first used.
    ///
    /// ```
    /// use lock_core::Locker;
    /// use lock_postgres::{LeaseTableBackend, PostgresConfig};
    ///
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = PostgresConfig::new("127.0.0.1", 5432).with_user("app").with_database("shop");
    /// let locks = Locker::new(LeaseTableBackend::new(config)?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a configuration that cannot work.
    pub fn new(config: PostgresConfig) -> Result<Self> {
        config.check()?;
        Ok(Self(Arc::new(Shared::new(config))))
    }

    /// A backend for the server at this URL: see [`PostgresConfig::from_url`].
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a URL that cannot work.
    pub fn from_url(url: &str) -> Result<Self> {
        Self::new(PostgresConfig::from_url(url)?)
    }

    /// Deletes the rows of names that nobody has and that nobody was granted for the [retention](PostgresConfig::with_retention), and of
    /// readers, permits and waiters that have ended, and returns how many rows they were. Spares rows whose token is ahead of the
    /// server's clock or behind it by less than the retention. Uses a connection of its own, and reads the tables 500 rows at a time.
    ///
    /// The backend does the same in the background while it is used, a few times a day, if its user has the permission
    /// `DELETE`.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](lock_core::ErrorKind::Denied) without the permission `DELETE`; or if the server cannot be asked: then some
    /// rows may have been deleted.
    ///
    /// # Cancel safety
    /// May be dropped at any point: then some rows may have been deleted.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::Error> {
    /// let backend = lock_postgres::LeaseTableBackend::from_url("postgres://app:secret@db/shop")?;
    /// println!("{} rows deleted", backend.clean_up().await?);
    /// # Ok(()) }
    /// ```
    pub async fn clean_up(&self) -> Result<u64> {
        self.0.clean_up().await
    }
}

#[async_trait]
impl DistributedLock for LeaseTableBackend {
    fn capabilities(&self) -> Capabilities {
        // A commit waits for the disk: shorter leases would end while it does.
        const SHORTEST: Duration = Duration::from_millis(100);
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
        Capabilities::default()
            .extend()
            .fixed_lease()
            .fifo()
            .pass()
            .minimum_hold()
            .durable_tokens()
            .any_floor()
            .shared()
            .downgrade()
            .permits(u32::MAX)
            .list()
            .revoke()
            .revoke_now()
            .ttl_between(SHORTEST, LONGEST)
    }

    fn address(&self) -> Option<String> {
        Some(self.0.config.server_and_database())
    }

    async fn server_id(&self) -> Result<Option<String>> {
        let connection = self.0.asking.connection().await?;
        server_id(connection.run(SYSTEM, self.0.limit()).await)
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        leases_keep(guarantee, self.0.dialer.probe().as_ref(), self.0.config.checks)
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = self.0.acquire(request).await;
        attempt.map_err(|error| error.with_name(request.name()))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let abandoned = self.0.abandon(request).await;
        abandoned.map_err(|error| error.with_name(request.name()))
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await.map_err(|error| error.with_name(name))
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let (shared, connection) = (&self.0, self.0.asking.connection().await?);
        list(&connection, &shared.statements.list, from, at_most, shared.limit()).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let revoked = self.0.revoke(name, token, how).await;
        revoked.map_err(|error| error.with_name(name))
    }
}

impl Shared {
    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let connection = self.asking.connection().await?;
        let name = name_bytes(name);
        let found = connection.query(&self.statements.status, &[&name], self.limit()).await;
        status(&unless_missing(found)?).map_err(SqlError::into_lock_error)
    }
}

impl fmt::Debug for LeaseTableBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseTableBackend")
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;
    use lock_core::backend::request::{RequestOptions, Terms};

    use super::*;

    /// Nobody listens there.
    #[tokio::test]
    async fn requests_without_a_connection_leave_no_claim_and_fail_until_one_is_there() {
        let config = PostgresConfig::from_url("postgres://u@127.0.0.1:1/d?connect_timeout=100ms").unwrap();
        let backend = LeaseTableBackend::new(config).unwrap();
        let terms = Terms::new(Duration::from_secs(10));
        let (request, _control) = RequestOptions::new(LockName::new("a").unwrap(), terms).start();
        backend.abandon(&request).await.unwrap();
        let error = backend.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_not_executed());
        assert!(!backend.0.claims.contain(request.holder()));
    }
}
