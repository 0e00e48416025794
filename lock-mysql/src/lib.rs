//! polylock's backend for MySQL and MariaDB.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::Locker;
//! use lock_mysql::{MySqlConfig, backend};
//!
//! let config = MySqlConfig::from_url("mysql://app:secret@127.0.0.1:3306/shop")?; // or ..?strategy=lease
//! let locks = Locker::from_backend(backend(config)?);
//! let guard = locks.lock("orders/42").acquire().await?;
//! println!("ours, with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! [`MySqlConfig`] sets strategy, user, database, table, timeouts and the number of connections, by hand or from a URL.
//!
//! # Two strategies
//! | | [row locks](RowLockBackend), the default | [leases](LeaseTableBackend), `strategy=lease` |
//! |---|---|---|
//! | a hold is | an open transaction that keeps a row locked | a row with an expiry by the server's clock |
//! | connections | one for each hold and each name that is waited for | at most four for each process |
//! | a process dies | its locks are free at once | its locks are free after their TTL |
//! | a connection breaks | its lock is lost | nothing is lost |
//! | a write for each hold | none is durable before the release | one for the acquire, one for each renewal, one for the release |
//! | who waits | queues in InnoDB, and is woken by the release | is woken by the release, or asks again |
//! | shortest TTL | 1 s | 100 ms |
//!
//! Choose row locks for few locks at a time, and leases for many or long ones. Locks of different strategies are
//! independent, whatever their names: all clients must use the same one. Each page lists guarantees, what ends a hold,
//! fencing and limits.
//!
//! # Data in MySQL or MariaDB
//! [`Fence`] rejects holders whose lock has expired, within your own transaction. [`OptimisticLock`] needs no lock at
//! all: it updates one row if nobody has changed it since it was read.
//!
//! # Server settings
//! - InnoDB, with `NOWAIT`: MariaDB 10.6 (tested with 10.11) or MySQL 8.0, or later.
//! - `binlog_format` is not `STATEMENT`.
//! - For leases, `innodb_flush_log_at_trx_commit=1`, and with a binary log `sync_binlog=1`: otherwise a crash may forget the last
//!   grants, and grant them to others. [`Checks`] warns of it or refuses it.
//! - `max_connections` is large enough for all clients. Nothing else needs to be set: each connection sets its own
//!   `autocommit`, isolation level, `completion_type`, `sql_mode`, time zone, `wait_timeout`, `innodb_lock_wait_timeout`,
//!   `sql_select_limit`, `sql_big_selects` and `max_execution_time`; for row locks also `lock_wait_timeout`; on MariaDB also `max_statement_time` and the `idle_transaction_timeout`s. It writes even if
//!   transactions are read-only by default.
//!
//! # For DBAs
//! What 1,000 idle holds with a TTL of 30 s cost a MySQL 9 each second, measured in one process over TLS on 2026-11-24:
//!
//! | | statements | sent to clients | commits | redo log | binary log | CPU of one core |
//! |---|---|---|---|---|---|---|
//! | leases | 22 | 9.6 kB | 30 | 24.8 kB | 23.5 kB | 1.2 % |
//! | row locks | 102 | 128 kB | 0 | 0.1 kB | 0 | 1.8 % |
//!
//! - The leases were acquired one after the other within 7 s, and are renewed in that order. Those that are due at nearly the same time
//!   are renewed by one statement, so leases that were acquired together cost fewer statements and commits.
//! - The binary log of these leases grows by 2.0 GB a day: 235 bytes for each renewal. Where that matters, choose a longer TTL.
//! - 1,000 row locks are 1,000 connections, and took 0.45 MB each. Leases take at most four connections for each process.
//! - One that waits for a lease sends at most a few statements a second.
//! - A backup's read lock, `read_only` or an `ALTER TABLE` that lasts longer than the TTL loses
//!   [leases](LeaseTableBackend#what-ends-a-hold). What they do to row locks, and what the process list and the table show of
//!   those, is on [their page](RowLockBackend#for-dbas).
//! - To see who has a lease, `SELECT name, holder, label, expires, token FROM polylock_leases`. `expires` is in microseconds since 1970
//!   by the server's clock. A lease is held if its `holder` is not `NULL` and `expires` is ahead. A `label` stays after a
//!   release. If the holder is `shared` or `permits`, those who share the name are in `polylock_lease_holders`. To end a lease by
//!   force, set `holder` to `NULL` and `expires` to 0: its holder learns of it at its next renewal, and until then only fencing protects
//!   the resource. Do not delete the row, which keeps the last token.
//! - A transaction that somebody forgot to end and that has a row of a lease table locked keeps that name from being renewed and
//!   acquired. The error says that the lock's row is being waited for elsewhere.
//!
//! # Permissions needed
//! `SELECT`, `INSERT` and `UPDATE` on the tables of the strategy, and `CREATE` if polylock is to make them: [`schema`]
//! has their SQL for an administrator. `DELETE` is needed only if rows of names that nobody uses any more are to be
//! [deleted](MySqlConfig::with_retention). No `PROCESS`, `SUPER` or `CONNECTION_ADMIN`. If the outcome of a statement is
//! unknown, polylock ends the connection at the server: these connections belong to the same user, and a named lock
//! (`GET_LOCK`), which needs no permission, identifies them. Give each application a user of its own all the same:
//! whoever may update the table can lock every name in it. For leases, connections wake each other as well.
//!
//! # Change of a password
//! Connections outlive the password by which they were made. So locks stay held, and a row lock is not even moved:
//! 1. The server takes both passwords. MySQL 8.0.14 or later: `ALTER USER app IDENTIFIED BY 'NEW' RETAIN CURRENT PASSWORD`. MariaDB
//!    10.4 or later: `ALTER USER app IDENTIFIED VIA mysql_native_password USING PASSWORD('OLD') OR mysql_native_password USING
//!    PASSWORD('NEW')`.
//! 2. Change what [`MySqlConfig::with_credentials`] reads, such as the file that `password_file=` names. Each backend reads it before
//!    each connection.
//! 3. The server takes the new password alone: `ALTER USER app DISCARD OLD PASSWORD`, or `ALTER USER app IDENTIFIED VIA
//!    mysql_native_password USING PASSWORD('NEW')`.
//!
//! Keep the user: one user may not end the connections of another, as polylock does if the outcome of a statement is unknown. A password
//! that is part of the URL or was given to [`MySqlConfig::with_password`] needs a restart of the process between the first step and the
//! last.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use config::{Checks, MySqlConfig, Strategy};
pub use fence::{Fence, ReadBeforeEnter};
pub use lease_table::LeaseTableBackend;
pub use lock_tls::Tls;
pub use optimistic::{NewValues, OptimisticLock, UpdateError};
pub use row_lock::RowLockBackend;
/// The driver, of whose options a [`MySqlConfig`] can be made.
pub use sqlx;

mod clean_up;
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
mod tables;

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
