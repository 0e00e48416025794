//! polylock's backend for MySQL and MariaDB.
//!
//! [`RowLockBackend`] locks a row of a table in a transaction that stays open as long as the lock is held. It is the
//! choice for those who have such a server already, and want the lock to end the moment that the holder's process
//! does: a hold *is* a connection.
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
//! [`MySqlConfig`] says how the server is used: user, database, table, timeouts, number of connections.
//!
//! # Guarantees
//! InnoDB gives a row's lock to one transaction at a time, and a transaction ends with its connection. An acquire of a
//! free name is one round trip (plus one now and then: a new connection, a name that was never used), a release
//! another. A waiter waits in InnoDB's own queue and is woken by the release itself; its grant counts from a statement
//! that was sent after that. Whatever goes wrong on a connection, it is closed and never used again.
//!
//! The ttl is the server's `wait_timeout` of that one connection: the server ends a client that is silent for longer.
//! It counts whole seconds, so that a ttl of 1.5 s may take 2 s to free a dead machine's lock, and the shortest is 1 s.
//! A client that is alive looks after its connection twice a second, or once in a round trip where that takes longer.
//!
//! # What ends a hold
//! - Its release, or its ttl when nobody renews it: the connection's task then closes the connection.
//! - The end of the holder's process, at once: its sockets close.
//! - The silence of its machine or of the network, after the ttl.
//! - The end of the connection at the server, for whatever reason: a restart, a `KILL`, an administrator's lower limit,
//!   a proxy or firewall in between that drops quiet connections. The next holder may come before this one knows: it
//!   is told within about half a second, and only fencing protects what it does until then.
//! - The end of the Tokio runtime that acquired the lock, at once: the connection runs on it. While nobody drives that
//!   runtime, nobody can renew the hold, and it ends with its ttl. It can be released from any runtime.
//!
//! A waiter whose machine falls silent keeps its place in the queue. When its turn comes, its hold ends after its own
//! ttl at the latest: so each such waiter ahead can cost one ttl, though none that merely died costs anything. A
//! waiter waits for at most its ttl, or a minute, at a time and then queues anew, so that the order of waiters is not
//! strict.
//!
//! # Fencing
//! A token is the server's clock in microseconds, or one more than the row's last token if that is larger. A release
//! commits it. A rollback undoes it in the row, but the clock has passed it by then; a token that is ahead of the clock,
//! since the clock was set back or a quorum asked for it, is committed to a second table before it is granted. So
//! tokens grow also after crashes and after the tables were lost, unless the clock is then behind the last token.
//!
//! # Limits
//! - Each hold, and each name that is waited for, takes a connection: see [`MySqlConfig::with_max_connections`]. If
//!   none is free, the error says so, whether the limit is this one or the server's.
//! - A hold survives any round trip below two fifths of its ttl. An acquire or a release fails if a single answer takes
//!   longer than [the response timeout](MySqlConfig::with_response_timeout), and a new connection takes three round
//!   trips within [the connect timeout](MySqlConfig::with_connect_timeout), both 5 s by default: raise them for a line
//!   that is slower than that.
//! - One server, or one that all writes go to. Row locks are not replicated: a replica, or another node of a Galera
//!   or group replication cluster, knows nothing of them. After a failover the old server's holders must have ended.
//! - Pools between client and server that give out a connection per transaction or statement (ProxySQL's multiplexing,
//!   for one) must not do so for this user.
//! - A server that crashes is noticed at once. One that falls silent while somebody waits is noticed after about three
//!   seconds: from then on, an acquire whose time is up fails as unavailable instead of timed out. If a waiter's
//!   connection alone is lost in silence, it is noticed when the wait's own time and the response timeout have passed.
//! - A server that cannot be reached is dialled by one connection at a time, at most every 50 ms. If a dial has no
//!   outcome within a second, the next one begins.
//! - A row stays for each name that was ever locked: it keeps the token. Rows of names that are not locked may be
//!   deleted at any time while the server's clock is right.
//!
//! # Server settings
//! - InnoDB, with `NOWAIT`: MariaDB 10.6 (tested with 10.11) or MySQL 8.0, or later.
//! - `binlog_format` is not `STATEMENT`.
//! - `max_connections` is large enough for all clients. Nothing else needs to be set: each connection sets its own
//!   `autocommit`, isolation level, `wait_timeout` and `innodb_lock_wait_timeout`.
//!
//! # Permissions needed
//! `SELECT`, `INSERT` and `UPDATE` on the two tables, and `CREATE` if they are to be made when they are missing. No
//! `PROCESS`, `SUPER` or `CONNECTION_ADMIN`: the connections that it ends, when nobody knows what came of a statement,
//! are its own user's; it finds them by a named lock (`GET_LOCK`), which needs no permission. Give each application a user of its own all the same: whoever may update the table can lock
//! every name in it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use config::MySqlConfig;
pub use row_lock::RowLockBackend;
/// The driver, of whose options a [`MySqlConfig`] can be made.
pub use sqlx;

mod client;
mod config;
mod connection;
mod error;
mod names;
mod probe;
mod protocol;
mod row_lock;
