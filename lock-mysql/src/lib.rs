//! polylock's backend for MySQL and MariaDB.
//!
//! [`RowLockBackend`] locks a row of a table in a transaction that stays open as long as the lock is held. A hold *is* a
//! connection. So a lock ends the moment its holder's process ends.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::Locker;
//! use lock_mysql::RowLockBackend;
//!
//! let locks = Locker::new(RowLockBackend::from_url("mysql://app:secret@127.0.0.1:3306/shop")?);
//! let guard = locks.lock("orders/42").acquire().await?;
//! println!("ours, with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! [`LeaseTableBackend`], with `?strategy=lease`, keeps a row for each name that says until when it is held. Any number of
//! holds share a few connections. The lock of a process that died is free when its TTL has passed. [`backend`] chooses by
//! the [`Strategy`] of the configuration. What follows is about row locks, up to the section about leases.
//!
//! [`MySqlConfig`] sets user, database, table, timeouts and the number of connections, by hand or from a URL.
//!
//! # Guarantees
//! InnoDB gives a row's lock to one transaction at a time, and a transaction ends with its connection. An acquire of a
//! free name takes one round trip. It takes one more for a new connection or for a name that was never used. A release
//! takes one. A waiter waits in InnoDB's own queue, and the release itself wakes it. Its lease counts from a statement
//! that was sent after that.
//!
//! A hold passes to the next waiter of the same process without a request, or, on other terms, within the open transaction: in
//! one round trip and without a commit. A backend cannot see who waits for a row. So after
//! [a few of these](lock_core::Locker::with_hand_overs) the row is really released: if somebody waits elsewhere, InnoDB
//! gives it to them, and otherwise the next waiter of the process takes it in the same round trip.
//!
//! If anything goes wrong on a connection, the connection is closed and never used again.
//!
//! The ttl is the server's `wait_timeout` of that one connection: the server ends a client that is silent for longer.
//! `wait_timeout` counts whole seconds. So the shortest ttl is 1 s, and a ttl of 1.5 s may take 2 s to free a dead
//! machine's lock. A renewal sets it anew and writes nothing, so that neither a read-only server nor a backup's global read
//! lock ends a hold. A status shows when a fixed lease ends; of a lease that is renewed, only its holder knows the end.
//! As core renews a hold every third of its ttl, the server hears each connection in time. A connection that is quiet for
//! 30 s besides is pinged.
//!
//! Twice a second, one statement asks the server whether it still has all the connections that carry a process's holds. It
//! goes over a connection of its own, one for each Tokio runtime. A hold's connection asks by itself if it seems to be
//! missing, or if that statement fails or has no answer for half a second. Only that decides: a control connection that is
//! slow or broken ends no hold.
//!
//! # Modes
//! Readers share the lock of the name's row, each on a connection of its own; an exclusive hold is the write side. To acquire a
//! free name as a reader takes three round trips: the row's lock, a token, and the proof that the reader still has the row. The
//! token is committed over another connection, since a reader cannot write into a row that it shares. A release takes one,
//! and commits nothing.
//!
//! A reader that comes while a writer waits has to wait as well. But the order is InnoDB's: on MySQL a late reader may pass a
//! writer that waits. The [status](lock_core::Locker::status) shows each reader, by a row in the lock table that is never
//! committed and whose key begins with the byte `ff`; how long its hold lasts without a renewal is not shown.
//!
//! There are no upgrades, downgrades and permits:
//! - Upgrades: of two readers that each wait to become the writer, InnoDB ends one with error 1213, and with it its read
//!   hold. If one reader upgrades while a writer waits, MariaDB ends the writer, which has done nothing wrong.
//! - Downgrades: InnoDB cannot weaken a row's lock. A release in between would let a writer in.
//! - Permits: with a row for each of them, a waiter can wait for one row only and not for any that comes free, the number of
//!   rows fixes the limit, each permit takes a connection, and a request for several permits starves.
//!
//! # What ends a hold
//! - Its release, or its ttl if nobody renews it: the connection's task then closes the connection.
//! - The end of the holder's process, at once: its sockets close.
//! - The silence of its machine or of the network, after the ttl.
//! - The end of the connection at the server, for whatever reason: a restart, a `KILL`, an administrator's lower limit,
//!   a proxy or firewall in between that drops quiet connections. The next holder may come before this one notices,
//!   which takes up to about a second. Until then only fencing protects the resource.
//! - The end of the Tokio runtime that acquired the lock, at once: the connection runs on it. While nobody drives that
//!   runtime, nobody can renew the hold, and it ends with its ttl. It can be released from any runtime. A hold that was
//!   handed over within the process stays on the connection, and so on the runtime, on which it was first acquired.
//!
//! A waiter whose machine falls silent keeps its place in the queue. When its turn comes, its hold ends after its own
//! ttl at the latest. So each such waiter ahead can cost one ttl. A waiter that merely died costs nothing. A waiter waits
//! for at most its ttl, or a minute, at a time and then queues again, so that the order of waiters is not strict.
//!
//! # Fencing
//! An exclusive hold's token is the server's clock in microseconds, or 17 more than the row's last token if that is larger: the 16 in between
//! are for those to whom the hold is passed on within the process. A release commits it. A rollback undoes it in the row, but
//! the clock has passed it by then, and the tokens of all passes with it. A token that is ahead of the clock, because the
//! clock was set back or for a token floor, is committed to a second table before it is granted. So tokens grow also after
//! crashes and after the tables were lost, unless the clock is then behind the last token.
//!
//! A reader's token is always committed to the second table, and is larger than all tokens there and in the row. The next
//! writer looks into that table after the last reader has left.
//!
//! [`Fence`] rejects holders whose lock has expired, within your own transaction, where the data is in a MySQL or MariaDB.
//! [`OptimisticLock`] needs no lock at all: it updates one row if nobody has changed it since it was read.
//!
//! # Limits
//! - Each hold, and each name that is waited for, takes a connection: see [`MySqlConfig::with_max_connections`]. If
//!   none is free, the error says so, and whether the limit is this one or the server's. Waiting takes no more than three
//!   quarters of them, so that names that are free can be had; a waiter beyond that asks again and again. Each Tokio runtime keeps one more
//!   open, which it opens first: so a full server cannot keep a lock or a wait from being ended.
//! - A hold survives any round trip below two fifths of its ttl. An acquire or a release fails if a single answer takes
//!   longer than [the response timeout](MySqlConfig::with_response_timeout), and a new connection takes three round
//!   trips within [the connect timeout](MySqlConfig::with_connect_timeout). Both are 5 s by default: raise them for a
//!   slower line.
//! - One server, or one that all writes go to. Row locks are not replicated: a replica, or another node of a Galera
//!   or group replication cluster, does not have them. After a failover the old server's holders must have ended. A Galera node (`wsrep_on`) and a group
//!   replication with several primaries are refused, unless [`MySqlConfig::with_single_writer`] says that all clients use
//!   the same node.
//! - Pools between client and server that give out a connection per transaction or statement (ProxySQL's multiplexing,
//!   for one) must not do so for this user, and must pass on `SET SESSION wait_timeout`: otherwise a client that falls
//!   silent keeps its locks for hours. [`connect`](lock_core::Locker::connect) checks both.
//! - A server that crashes is noticed at once. One that falls silent while somebody waits is noticed after about three
//!   seconds: from then on, an acquire whose time is up fails as unavailable instead of timed out. If a waiter's
//!   connection alone is lost in silence, that is noticed when the wait's own time and the response timeout have passed.
//! - When a wait's time is up, the server ends it to the millisecond, and the connection is used again. The connection of a
//!   caller that leaves earlier is ended.
//! - If a caller leaves while its connection is made, the handshake goes on for up to 5 s, of at most 16 connections at a
//!   time: a MySQL blocks a host that breaks off `max_connect_errors` of them.
//! - A server that cannot be reached is dialled by one connection at a time, at most every 50 ms. If a dial has no
//!   outcome within a second, the next one begins.
//! - Each name that was ever locked keeps a row, which holds its token, and each that was ever read or had a token ahead of the
//!   clock one in the second table. Rows of names that are not locked may be deleted
//!   at any time while the server's clock is right, and has passed the
//!   [token floor](lock_core::Locker::with_token_floor) if there is one.
//!
//! # Server settings
//! - InnoDB, with `NOWAIT`: MariaDB 10.6 (tested with 10.11) or MySQL 8.0, or later.
//! - `binlog_format` is not `STATEMENT`.
//! - `max_connections` is large enough for all clients. Nothing else needs to be set: each connection sets its own
//!   `autocommit`, isolation level, `completion_type`, `sql_mode`, time zone, `wait_timeout`, `innodb_lock_wait_timeout`
//!   and `max_execution_time`; on MariaDB also `max_statement_time` and the `idle_transaction_timeout`s. It writes even if
//!   transactions are read-only by default.
//!
//! # Permissions needed
//! `SELECT`, `INSERT` and `UPDATE` on the tables, and `CREATE` if polylock is to make them: [`schema`] has their SQL for an
//! administrator. No `PROCESS`, `SUPER` or `CONNECTION_ADMIN`. If the outcome of a statement is unknown, polylock ends the
//! connection at the server: these connections belong to the same user, and a named lock (`GET_LOCK`), which needs no
//! permission, identifies them. Give each application a user of its own all the same: whoever may update the table can lock
//! every name in it.
//!
//! # Leases
//! - **Guarantees.** Each request is one statement on the name's row, in one round trip. The server's clock decides when a hold
//!   ends. A hold survives broken connections and a server that comes back before its TTL has passed. The shortest TTL is
//!   100 ms. If the server's clock is set back, a hold lasts at most as long as the longest TTL that its holder asked for; if it
//!   is set forward, holds end early.
//! - **Connections.** At most four for each process, whatever it holds or waits for: two renew and release, one acquires, and
//!   one sleeps while anybody waits. Renewals at the same time go out as one statement.
//! - **Waiting.** Waiters of one process queue there. The first one marks the row, and the release of another process wakes it
//!   by `KILL QUERY`, which all connections of one user may do. Waiters that found the mark of another process ask again every
//!   25 to 50 ms, and less often if many names are waited for. The order of waiters is not kept. A woken connection that a
//!   proxy hides is found by asking once a second.
//! - **Fencing.** As for row locks: the last token stays in the row.
//! - **Slow lines.** A hold survives any round trip below a fifth of its TTL, and below two fifths if its process has no more
//!   than two holds to renew at a time: each of two connections carries one text at a time.
//! - **Unused names.** A row that nobody has used for seven days is deleted in the background, if the user has `DELETE`. See
//!   [`MySqlConfig::with_retention`] and [`LeaseTableBackend::clean_up`].
//! - **Permissions.** `SELECT`, `INSERT` and `UPDATE` on the table of that name and `_leases`; `CREATE` if polylock is to make it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use config::{MySqlConfig, Strategy};
pub use fence::{Fence, ReadBeforeEnter, Stale};
pub use lease_table::LeaseTableBackend;
pub use optimistic::{NewValues, OptimisticLock, UpdateError};
pub use row_lock::RowLockBackend;
/// The driver, of whose options a [`MySqlConfig`] can be made.
pub use sqlx;

mod client;
mod config;
mod connection;
mod error;
mod fence;
mod lease_table;
mod names;
mod optimistic;
mod probe;
mod protocol;
mod row_lock;
pub mod schema;

/// The backend for this configuration's [strategy](MySqlConfig::strategy). Does no I/O: it connects when it is first used.
///
/// # Errors
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a configuration that cannot work.
///
/// # Examples
/// ```
/// # use lock_mysql::MySqlConfig;
/// # fn main() -> Result<(), lock_core::Error> {
/// let config = MySqlConfig::from_url("mysql://app:secret@127.0.0.1:3306/shop?strategy=lease")?;
/// let locks = lock_core::Locker::from_backend(lock_mysql::backend(config)?);
/// # Ok(()) }
/// ```
pub fn backend(config: MySqlConfig) -> lock_core::Result<std::sync::Arc<dyn lock_core::backend::DistributedLock>> {
    Ok(match config.strategy() {
        Strategy::Row => std::sync::Arc::new(RowLockBackend::new(config)?),
        Strategy::Lease => std::sync::Arc::new(LeaseTableBackend::new(config)?),
    })
}
