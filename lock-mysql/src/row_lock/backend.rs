//! The backend that users name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, ListFrom, ListPage, LockStatus};
use lock_core::{Guarantee, LockName, Result, Verdict};

use super::Shared;
use crate::config::{MySqlConfig, Strategy};
use crate::error::{RequestError, SqlError};
use crate::probe;
use crate::protocol::row_lock::holder;
use crate::protocol::{LONGEST_SECONDS, list_page};

/// A hold is passed on only if its connection answered within this time. Longer critical sections cost their release a round
/// trip, which is little beside them.
const PASS_CONFIRMED_WITHIN: Duration = Duration::from_millis(50);

/// Locks that are rows, each locked by a transaction on a connection of its own. `strategy=row`, the default.
///
/// Cheap to clone; clones share their connections.
///
/// # Guarantees
/// InnoDB gives a row's lock to one transaction at a time, and a transaction ends with its connection. An acquire of a
/// free name takes one round trip. It takes one more for a new connection or for a name that was never used. A release
/// takes one. A waiter waits in InnoDB's own queue, and the release itself wakes it. Its lease counts from a statement
/// that was sent after that.
///
/// A hold passes to the next waiter of the same process without a request, if its connection answered a statement that was sent
/// after that waiter came and in the last 50 ms. Otherwise, for other terms, or after
/// [a few passes](lock_core::Locker::with_passes), the row is released and that waiter acquires by itself. If somebody waits
/// elsewhere, InnoDB gives the row to them first.
///
/// If anything goes wrong on a connection, the connection is closed and never used again.
///
/// The ttl is the server's `wait_timeout` of that one connection: the server ends a client that is silent for longer.
/// `wait_timeout` counts whole seconds. So the shortest ttl is 1 s, and a ttl of 1.5 s may take 2 s to free a dead
/// machine's lock. A renewal sets it anew and writes nothing, so that a backup's global read lock ends no
/// hold, and a read-only server not at once. A status shows when a fixed lease ends; of a lease that is renewed, only its holder knows the end.
/// As core renews a hold every third of its ttl, the server hears each connection in time. A connection that is quiet for
/// 30 s besides is pinged.
///
/// Twice a second, one statement asks the server whether it still has all the connections that carry a process's holds, and
/// whether it is read-only. It goes over a connection of its own, one for each Tokio runtime. A hold's connection asks by itself if it seems to be
/// missing, if the server is read-only, or if that statement fails or has no answer for half a second. Only that decides: a control connection that is
/// slow or broken ends no hold.
///
/// # Modes
/// Readers share the lock of the name's row, each on a connection of its own; an exclusive hold is the write side. To acquire a
/// free name as a reader takes three round trips: the row's lock, a token, and the proof that the reader still has the row. The
/// token is committed over another connection, since a reader cannot write into a row that it shares. A release takes one,
/// and commits nothing.
///
/// A reader that comes while a writer waits has to wait as well. But the order is InnoDB's: on MySQL a late reader may pass a
/// writer that waits. The [status](lock_core::Locker::status) shows each reader, by a row in the lock table that is never
/// committed and whose key begins with the byte `ff`; how long its hold lasts without a renewal is not shown.
///
/// There are no upgrades, downgrades and permits:
/// - Upgrades: of two readers that each wait to become the writer, InnoDB ends one with error 1213, and with it its read
///   hold. If one reader upgrades while a writer waits, MariaDB ends the writer, which has done nothing wrong.
/// - Downgrades: InnoDB cannot weaken a row's lock. A release in between would let a writer in.
/// - Permits: with a row for each of them, a waiter can wait for one row only and not for any that comes free, the number of
///   rows fixes the limit, each permit takes a connection, and a request for several permits starves.
///
/// # What ends a hold
/// - Its release, or its ttl if nobody renews it: the connection's task then closes the connection.
/// - The end of the holder's process, at once: its sockets close.
/// - The silence of its machine or of the network, after the ttl.
/// - The end of the connection at the server, for whatever reason: a restart, a `KILL`, an administrator's lower limit,
///   a proxy or firewall in between that drops quiet connections. The next holder may come before this one notices,
///   which takes up to about a second. Until then only fencing protects the resource. Meanwhile the ended hold is not passed
///   on to an acquire that began after the next grant, and after 50 ms to none. A reader may still join the ended hold of a
///   reader of the same process.
/// - A server that is read-only (`read_only`, and so `super_read_only`) for [a time](MySqlConfig::with_max_read_only), 5 s by
///   default: see [below](#planned-switchover). The loss is [`LostCause::ReadOnly`](lock_core::LostCause::ReadOnly).
/// - The end of the Tokio runtime that acquired the lock, at once: the connection runs on it. While nobody drives that
///   runtime, nobody can renew the hold, and it ends with its ttl. It can be released from any runtime. A hold that was
///   passed on within the process stays on the connection, and so on the runtime, on which it was first acquired.
///
/// A waiter whose machine falls silent keeps its place in the queue. When its turn comes, its hold ends after its own
/// ttl at the latest. So each such waiter ahead can cost one ttl. A waiter that merely died costs nothing. A waiter waits
/// for at most 3 s at a time, or for its ttl if that is shorter, and then queues again behind the others: so the order of those
/// that wait for longer is not kept. A longer wait would [stop a backup](#for-dbas), and all writes with it.
///
/// # Planned switchover
/// Row locks are not replicated. So whoever makes a replica the primary has to end the holds on the old one first:
///
/// 1. On the old primary, `SET GLOBAL read_only=ON` (MySQL: `super_read_only=ON`; a change of primary in group replication sets
///    it). A server takes that while row locks are held.
/// 2. Wait for `max_read_only` and one second, or end the connections of polylock's users there with `KILL`. Each holder learns
///    that its hold is lost.
/// 3. Wait until the new primary has all transactions. Only then let it take writes, and lead clients to it.
///
/// If clients are led there before step 2 is over, two clients can hold one lock until then. If the old server takes writes
/// again before its time is over, no hold is lost. From step 1 on the old server refuses acquires as
/// [`Unavailable`](lock_core::ErrorKind::Unavailable). A release there fails as [`Lost`](lock_core::ErrorKind::Lost) if the
/// server refuses its write. An acquire that meets a read-only server, or whose new connection reaches another server than the last
/// ones, makes new connections from then on, and so follows the address to the new primary.
///
/// `read_only` stops no user with the permission to write all the same (`READ_ONLY ADMIN`, `CONNECTION_ADMIN`, `SUPER`): give
/// polylock's user none of them. Its holds end on a read-only server like all others.
///
/// # For DBAs
/// - **`FLUSH TABLES WITH READ LOCK`** waits for statements that wait for a row, for 3 s at most, and the writes of the whole
///   server wait behind it. Once it is there, holds are kept and released, and nobody gets a lock: an acquire fails as
///   [`Unavailable`](lock_core::ErrorKind::Unavailable), because the server lets nobody write, and one that may wait goes on
///   when the tables are unlocked. A release then takes a second, and its token is not written: the clock has passed it.
/// - **`ALTER TABLE`** on a lock table waits until the last lock is released. Meanwhile all acquires of other names fail as
///   `Unavailable`, after a second, with an error that names it. Give it a short `lock_wait_timeout`, or stop the clients.
/// - **`LOCK TABLES`**, as plain `mysqldump` does for each table, waits likewise for a moment without any lock, which may never
///   come. Dump with `--single-transaction`, or leave the lock tables out (`--ignore-table`): a restored row is worth nothing.
/// - Each hold is one transaction that is open for as long as the hold lasts: alarms for long transactions fire. It keeps little of
///   the history, since it reads uncommitted rows: 197 entries after 20,000 updates elsewhere. 1,000 holds took 450 MB of a
///   MySQL 9 and 102 statements a second at a ttl of 30 s, and wrote nothing to the binary log: see [the crate's page](crate#for-dbas).
/// - In the process list, holds are asleep and waiters are executing a `SELECT .. FOR UPDATE`, with names in hexadecimal digits. In the table, a
///   plain `SELECT` shows the previous holder; one at `READ UNCOMMITTED` shows who holds the name.
///
/// # Fencing
/// An exclusive hold's token is the server's clock in microseconds, or 17 more than the row's last token if that is
/// larger: the 16 in between are for those to whom the hold is passed on within the process. A release commits it. A
/// rollback undoes it in the row, but the clock has passed it by then, and the tokens of all passes with it. A token that
/// is ahead of the clock, because the clock was set back or for a token floor, is committed to a second table before it
/// is granted. So tokens grow also after crashes and after the tables were lost, unless the clock is then behind the last
/// token.
///
/// A reader's token is always committed to the second table, and is larger than all tokens there and in the row. The next
/// writer looks into that table after the last reader has left.
///
/// A quorum cannot have this backend as one of its servers. A hold is a transaction that is open, and a token that is written in it is
/// undone with it. So the server cannot be told to remember a larger token for a hold. The lease table can.
///
/// # Limits
/// - NUL bytes at the end of a label are cut off in the status.
/// - Each hold, and each name that is waited for, takes a connection: see [`MySqlConfig::with_max_connections`]. If none
///   is free, the error says so, and whether the limit is this one or the server's. Waiting takes no more than three
///   quarters of them, so that names that are free can be had; a waiter beyond that asks again and again. Each Tokio
///   runtime keeps one more open, which it opens first: so a full server cannot keep a lock or a wait from being ended.
/// - A hold survives any round trip below two fifths of its ttl. An acquire or a release fails if a single answer takes
///   longer than [the response timeout](MySqlConfig::with_response_timeout), and a new connection takes three round
///   trips within [the connect timeout](MySqlConfig::with_connect_timeout). Both are 5 s by default: raise them for a
///   slower line.
/// - One server, or one that all writes go to. Row locks are not replicated: a replica, or another node of a Galera or
///   group replication cluster, does not have them. After a failover the old server's holders must have ended: before a [planned](#planned-switchover) one they do, and
///   an old primary that failed has to be stopped. A Galera
///   node (`wsrep_on`) and a group replication with several primaries are refused, unless
///   [`MySqlConfig::with_single_writer`] says that all clients use the same node.
/// - Pools between client and server that give out a connection per transaction or statement (ProxySQL's multiplexing,
///   for one) must not do so for this user, and must pass on `SET SESSION wait_timeout`: otherwise a client that falls
///   silent keeps its locks for hours. They must lead all connections of this user to one server, plain `SELECT`s too.
///   [`connect`](lock_core::Locker::connect) checks all three.
/// - A server that crashes is noticed at once. One that falls silent while somebody waits is noticed after about three
///   seconds: from then on, an acquire whose time is up fails as unavailable instead of timed out. If a waiter's
///   connection alone is lost in silence, that is noticed when the wait's own time and the response timeout have passed.
/// - When a wait's time is up, the server ends it to the millisecond, and the connection is used again. The connection of a
///   caller that leaves earlier is ended.
/// - If a caller leaves while its connection is made, the handshake goes on for up to 5 s, of at most 16 connections at a
///   time: a MySQL blocks a host that breaks off `max_connect_errors` of them.
/// - A server that cannot be reached is dialled by one connection at a time, at most every 50 ms. If a dial has no
///   outcome within a second, the next one begins.
/// - Each name that was ever locked keeps a row, which holds its token, and each that was ever read or had a token ahead of the
///   clock one in the second table. A row whose last token is older than seven days, and that nobody has locked, is deleted in the
///   background, if the user has the permission `DELETE`. See [`MySqlConfig::with_retention`] and
///   [`clean_up`](Self::clean_up). An acquire at the very moment may find the row locked, as if another client held the name.
/// - [`Locker::revoke`](lock_core::Locker::revoke) is `Unsupported`. The hold is a transaction of one connection: it lasts as long as
///   that, so there is no end of a lease to wait for. And to end it at once, somebody has to end the connection. No column says which one that
///   is, and the server gives its number to another connection after a restart, which may carry another hold. Leases can be revoked.
/// - Rows of names that are not locked may also be deleted by hand at any time while the server's clock is right, and has
///   passed the [token floor](lock_core::Locker::with_token_floor) if there is one.
#[derive(Clone)]
pub struct RowLockBackend(Arc<Shared>);

impl RowLockBackend {
    /// A backend for this server. Does no I/O: it connects when it is first used.
    ///
    /// ```
    /// use lock_core::Locker;
    /// use lock_mysql::{MySqlConfig, RowLockBackend};
    ///
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = MySqlConfig::new("127.0.0.1", 3306).with_user("app").with_database("shop");
    /// let locks = Locker::new(RowLockBackend::new(config)?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a configuration that cannot work.
    pub fn new(config: MySqlConfig) -> Result<Self> {
        config.check_for(Strategy::Row)?;
        Ok(Self(Arc::new(Shared::new(config))))
    }

    /// A backend for the server at this URL: see [`MySqlConfig::from_url`].
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a URL that cannot work.
    pub fn from_url(url: &str) -> Result<Self> {
        Self::new(MySqlConfig::from_url(url)?)
    }

    /// Deletes the rows of names whose last token is older than the [retention](MySqlConfig::with_retention), in both tables, and
    /// returns how many rows they were. Spares rows that anybody has locked, as a holder or a reader, and those whose token is
    /// ahead of the server's clock or behind it by less than the retention. Uses a connection of its own for it.
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
    /// let backend = lock_mysql::RowLockBackend::from_url("mysql://app:secret@db/shop?retention=30d")?;
    /// println!("{} rows deleted", backend.clean_up().await?);
    /// # Ok(()) }
    /// ```
    pub async fn clean_up(&self) -> Result<u64> {
        self.0.clean_up().await
    }

    #[cfg(test)]
    pub(super) fn claims(&self) -> &super::claims::Claims {
        &self.0.claims
    }
}

#[async_trait]
impl DistributedLock for RowLockBackend {
    fn capabilities(&self) -> Capabilities {
        // wait_timeout counts whole seconds.
        let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(LONGEST_SECONDS));
        Capabilities::default()
            .extend()
            .fixed_lease()
            .pass_if_confirmed_within(PASS_CONFIRMED_WITHIN)
            .shared()
            .list()
            .durable_tokens()
            .ttl_between(shortest, longest)
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        probe::row_locks_keep(guarantee)
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.0.acquire(request).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0
            .abandon(request)
            .await
            .map_err(|error| error.with_name(request.name()))
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await.map_err(|error| error.with_name(name))
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        self.0.list(from, at_most).await
    }
}

impl Shared {
    /// Reaches the server, makes the tables and checks that all that a lock needs is permitted.
    async fn connect(&self) -> Result<()> {
        let session = self.client.pool.open().await?;
        let limit = self.client.response_timeout();
        let prepared = self.prepare_tables(&session, limit).await;
        prepared.map_err(RequestError::into_lock_error)?;
        probe::check_permissions(&self.statements, &session, limit)
            .await
            .map_err(SqlError::into_lock_error)?;
        let checked = probe::check_session(&session, limit).await;
        checked.map_err(RequestError::into_lock_error)?;
        self.client.pool.check_new(&session).await?;
        self.set_prepared(true);
        self.client.pool.offer(session);
        Ok(())
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let sql = self.statements.list(from, at_most);
        let answer = match self.client.control.execute(sql, None).await {
            Err(RequestError::Sql(error)) if error.is_missing_table() => return Ok(ListPage::default()),
            answer => answer.map_err(RequestError::into_lock_error)?,
        };
        let rows = answer.results.first().map_or(&[][..], |select| &select.rows);
        list_page(rows, from, at_most)
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let answer = match self.client.control.execute(self.statements.holders(name), None).await {
            Err(RequestError::Sql(error)) if error.is_missing_table() => return Ok(LockStatus::free()),
            answer => answer.map_err(RequestError::into_lock_error)?,
        };
        let rows = answer.results.first().map_or(&[][..], |select| &select.rows);
        let holders: Result<Vec<_>, _> = rows.iter().map(holder).collect();
        Ok(LockStatus::held_by(holders.map_err(SqlError::into_lock_error)?))
    }
}

impl fmt::Debug for RowLockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLockBackend")
            .field("client", &self.0.client)
            .finish_non_exhaustive()
    }
}
