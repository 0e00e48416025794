//! The backend that users name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, ListFrom, ListPage, LockStatus, Revoke, Revoked,
};
use lock_core::{FencingToken, Guarantee, LockName, Result, Verdict};
use sqlx::mysql::MySqlRow;

use super::Shared;
use crate::config::{MySqlConfig, Strategy};
use crate::error::{RequestError, SqlError};
use crate::probe;
use crate::protocol::lease_table::holder;
use crate::protocol::list_page;

/// Locks that are rows with a lease, for any number of holds on at most four connections. `strategy=lease`.
///
/// Cheap to clone; clones share their connections.
///
/// # Guarantees
/// Each request is one statement on the name's row, in one round trip. An acquire sends a second one if the name is taken, or if
/// it was never used before. The server's clock decides when a hold ends. Renewals at the same time go out as one statement.
/// The shortest TTL is 100 ms.
///
/// A hold outlives its connections, and a server that comes back before its TTL has passed. If the server's clock is set
/// back, a hold lasts at most as long as the longest TTL that its holder asked for.
///
/// Waiters of one process queue there. The first one marks the row, and the release of another process wakes it by `KILL QUERY`,
/// which all connections of one user may do. The release returns after that, one round trip and at most 250 ms later than if
/// nobody waits: a process may end right after it. The mark keeps the name for it for a moment. Waiters that found the mark of another
/// process have queue entries, which are named locks of their connections. Who was granted the name calls one of them, and that one
/// leaves the next mark. Besides, a waiter with a mark asks again every 0.5 to 1 s and one without every 250 to 500 ms, and both
/// less often if many names are waited for. The order of waiters is not kept.
///
/// # Modes
/// Readers and permits are rows of a second table, each with its own token and its own end. Such a request is a transaction that
/// locks the name's row first, sent as one text in one round trip. A writer becomes a reader in place by
/// [`Guard::downgrade`](lock_core::Guard::downgrade). No reader can become a writer. The
/// release wakes one of those who wait to share a name, and each of them that is granted the name calls the next one. Besides, each
/// asks again every 1 to 2 s, by a transaction of ten statements.
///
/// A waiting writer marks the row: new readers and requests for permits then wait until it had its turn. Readers that wait
/// for a writer, and a request for several permits, leave such a mark as well. A request for one permit of several leaves
/// none for others of its kind, so that it may wait for long while many ask. The release of a permit calls one of those who wait
/// for permits, with a statement of its own.
///
/// # Cost
/// An acquire and its release are two durable `UPDATE`s of one row. On 2026-11-22, on MariaDB 10.11 with
/// `innodb_flush_log_at_trx_commit=1` and the server on the same machine of two busy cores, they took 90 to 95 µs, where two bare
/// `UPDATE`s that write three columns of a smaller row took 60 to 80 µs: 34 µs of it were round trips. The rest came from these parts:
/// - 8 to 13 µs, the acquire: it writes six columns, which all have a meaning, and compares with the clock.
/// - 6 to 10 µs, the release: it compares with the clock, and looks for a waiter.
/// - 5 to 18 µs, this process: each connection has a task of its own, so that a caller that leaves breaks none.
///
/// In [the benchmarks](https://github.com/polylock/polylock/blob/main/docs/benchmarks.md) of 2026-11-29, one task reached 0.74 of the rate of
/// two bare `UPDATE`s, and 16 tasks 0.62 of that of 16 bare connections. 64 tasks reached 1.94 of that of 64: tasks share round trips.
/// Where a commit waits for a disk, the parts above matter less.
///
/// # What ends a hold
/// - Its release, or its TTL if nobody renews it: also if its process ends.
/// - A clock of the server that is set forward, before its time.
/// - Whoever deletes or changes its row.
/// - Whatever lets nobody write for longer than its TTL, as it cannot be renewed: a backup's read lock
///   (`FLUSH TABLES WITH READ LOCK`, `mysqldump --lock-all-tables`), `read_only`, `LOCK TABLES`, or an `ALTER TABLE` of its table.
///   Choose a TTL longer than these last, or dump with `--single-transaction`.
/// - A transaction of somebody else that keeps its row locked for longer than its TTL. Other holds are renewed all the same.
///
/// # Planned switchover
/// The rows are replicated, so holds outlive it: make the old primary read-only, wait until the new one has all transactions, and lead
/// clients to it. That must take less than the TTLs, by the new server's clock. A connection whose server refuses a write as read-only
/// gets no more requests, and the next one follows the address. Two connections renew, so that a renewal may have to be repeated
/// twice, each time a twelfth of the TTL later.
///
/// `read_only` stops no user with the permission to write all the same (`READ_ONLY ADMIN`, `CONNECTION_ADMIN`, `SUPER`): give
/// polylock's user none of them.
///
/// # Fencing
/// A token is the server's clock in microseconds, or larger than the row's last token if that is larger. The row keeps
/// the last one that was reserved, also after a release. So tokens grow unless the row was deleted or lost and the clock
/// is then behind the last token.
///
/// A quorum can have this backend as one of its servers: a row can remember any token. A token that the quorum has counted is
/// granted without this server's clock. A row with such a token is deleted like any other one, so the server's clock should not
/// be behind those of the others.
///
/// # Limits
/// - At most four connections for each process, whatever it holds or waits for: two renew and release, one acquires, and
///   one sleeps while anybody waits.
/// - A hold survives any round trip below a fifth of its TTL, and below two fifths if its process has no more than two
///   holds to renew at a time: each of two connections carries one text at a time.
/// - While a stranger keeps a name's row locked, as a forgotten transaction does, acquires and releases of that name fail. The
///   first one that finds the row locked fails after a second, and what goes over the same connection waits behind it; all that
///   follow fail at once. MySQL has no shorter wait for a row than one second, and without any wait, requests that meet in a
///   row would fail as well. Renewals never wait for such a row at the server: a renewal that finds it locked tries again for about
///   600 ms, and delays no other one.
/// - Pools between client and server must not give out a connection per transaction or statement to this user (ProxySQL's multiplexing,
///   for one). polylock checks that before the first lock, and refuses one that it finds doing so as `Misconfigured`.
/// - If a proxy hides the connection that sleeps, or its process has another database user, nobody can wake it. Then a
///   waiter learns of a release when it asks, one to four times a second, or every 1 to 2 s to share the name.
/// - If the server takes no further connection of the process, none sleeps, and the same holds; but a waiter that wants the name
///   alone asks every 25 to 50 ms, with one statement.
/// - If the process that is to call the next waiter ends before it does, that waiter learns of the next release when it asks.
/// - A row that nobody has used for seven days is deleted in the background, if the user has the permission `DELETE`. See
///   [`MySqlConfig::with_retention`] and [`clean_up`](Self::clean_up).
/// - If a client stops at the very moment when the server has refused a statement in the middle of a reader's or permit's
///   transaction, the name's row stays locked until the server ends the connection, after 90 s.
/// - One server, or one that all writes go to. After a failover to a server that lacks the last writes, a hold may be
///   lost and its name granted again.
#[derive(Clone)]
pub struct LeaseTableBackend(Arc<Shared>);

impl LeaseTableBackend {
    /// A backend for this server. Does no I/O: it connects when it is first used.
    ///
    /// ```
    /// use lock_core::Locker;
    /// use lock_mysql::{LeaseTableBackend, MySqlConfig, Strategy};
    ///
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = MySqlConfig::new("127.0.0.1", 3306)
    ///     .with_user("app")
    ///     .with_database("shop")
    ///     .with_strategy(Strategy::Lease);
    /// let locks = Locker::new(LeaseTableBackend::new(config)?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a configuration that cannot work, or with
    /// another [`Strategy`].
    pub fn new(config: MySqlConfig) -> Result<Self> {
        config.check_for(Strategy::Lease)?;
        Ok(Self(Arc::new(Shared::new(config))))
    }

    /// A backend for the server at this URL, which says `strategy=lease`: see [`MySqlConfig::from_url`].
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a URL that cannot work.
    pub fn from_url(url: &str) -> Result<Self> {
        Self::new(MySqlConfig::from_url(url)?)
    }

    /// Deletes the rows of names that nobody has had for the [retention](MySqlConfig::with_retention), and of readers and
    /// permits that ended so long ago, and returns how many rows they were. Spares rows whose token is ahead of the server's clock or behind it by less than the retention.
    ///
    /// The backend does the same in the background while it is used, a few times a day, if its user has the permission
    /// `DELETE`.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](lock_core::ErrorKind::Denied) without the permission `DELETE` on both tables; or if the server cannot
    /// be asked: then some rows may have been deleted.
    ///
    /// # Cancel safety
    /// May be dropped at any point: then some rows may have been deleted.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::Error> {
    /// let backend = lock_mysql::LeaseTableBackend::from_url("mysql://app:secret@db/shop?strategy=lease")?;
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
            .pass()
            .minimum_hold()
            .durable_tokens()
            .any_floor()
            .shared()
            .downgrade()
            .list()
            .revoke()
            .revoke_now()
            .permits(u32::MAX)
            .ttl_between(SHORTEST, LONGEST)
    }

    fn address(&self) -> Option<String> {
        Some(self.0.config.server_and_database())
    }

    async fn server_id(&self) -> Result<Option<String>> {
        self.0.server_id().await.map(Some)
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        self.0.server.keeps(guarantee)
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
        self.0.list(from, at_most).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let revoked = self.0.revoke(name, token, how).await;
        revoked.map_err(|error| error.with_name(name))
    }
}

impl Shared {
    async fn server_id(&self) -> Result<String> {
        let ask = async |sql: &str| {
            let answer = self.query(sql.to_owned()).await;
            answer.map(|answer| answer.rows).map_err(RequestError::into_lock_error)
        };
        let (facts, started) = (ask(probe::FACTS).await?, ask(probe::STARTED).await?);
        probe::server_id(&facts, &started).map_err(SqlError::into_lock_error)
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let rows = self.find(self.statements.list(from, at_most)).await?;
        list_page(&rows, from, at_most)
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let rows = self.find(self.statements.holders(name)).await?;
        let holders: Result<Vec<_>, SqlError> = rows.iter().map(holder).collect();
        Ok(LockStatus::held_by(holders.map_err(SqlError::into_lock_error)?))
    }

    /// The rows that a statement finds; none without a table.
    async fn find(&self, sql: String) -> Result<Vec<MySqlRow>> {
        match self.query(sql).await {
            Ok(found) => Ok(found.rows),
            Err(RequestError::Sql(error)) if error.is_missing_table() => Ok(Vec::new()),
            Err(error) => Err(error.into_lock_error()),
        }
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
    use crate::config::Strategy;

    /// Nobody listens there.
    #[tokio::test]
    async fn requests_without_a_connection_leave_no_claim_and_are_undone() {
        let config = MySqlConfig::from_url("mysql://u@127.0.0.1:1/d?connect_timeout=100ms&strategy=lease").unwrap();
        assert_eq!(config.strategy(), Strategy::Lease);
        let backend = LeaseTableBackend::new(config).unwrap();
        let terms = Terms::new(Duration::from_secs(10));
        let (request, _control) = RequestOptions::new(LockName::new("a").unwrap(), terms).start();
        let error = backend.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_not_executed());
        assert!(!backend.0.claims.contain(request.holder()));
        backend.abandon(&request).await.unwrap();
    }
}
