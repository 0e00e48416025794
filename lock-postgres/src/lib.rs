//! polylock's backend for PostgreSQL.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::Locker;
//! use lock_postgres::{PostgresConfig, backend};
//!
//! let config = PostgresConfig::from_url("postgres://app:secret@127.0.0.1:5432/shop")?;
//! let locks = Locker::from_backend(backend(config)?);
//! let guard = locks.lock("orders/42").acquire().await?;
//! println!("ours, with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! [`PostgresConfig`] sets hosts, user, database, schema, table and timeouts, by hand or from a URL.
//!
//! # Strategies
//! | | [`LeaseTableBackend`], `strategy=lease` (default) | [`SessionBackend`], `strategy=session` |
//! |---|---|---|
//! | a hold is | a row with an expiry | an advisory lock of a session |
//! | a process dies | the name is free after the TTL | the name is free at once |
//! | its connection breaks | the hold stays | the hold is lost |
//! | the server restarts | the hold stays | the hold is lost |
//! | behind a pooler of transactions | works | refused |
//! | a pair waits for the disk | twice | never |
//! | who waits | in a table | in the server's queue, each name on a connection of its own |
//! | modes | exclusive, readers, permits, downgrade, minimum hold | exclusive, readers, downgrade |
//!
//! Each of them lists its guarantees, what ends a hold, fencing and limits. The locks of one do not exclude those of the other: change
//! the strategy of all processes at the same time.
//!
//! The default is a row: a pooler may give an advisory lock to somebody else, and a connection that breaks would lose it. Neither is a
//! locked row in an open transaction, which would keep the server from removing dead versions of rows in the whole database.
//!
//! # Data in PostgreSQL
//! [`Fence`] rejects holders whose lock has expired, within your own transaction. [`lock_in`] is for those who need a lock for
//! one transaction alone, and no lease.
//!
//! # Server settings
//! - PostgreSQL 12 or later, 14 or later for sessions; tested with 15 and 18.
//! - `fsync=on`, `full_page_writes=on`: otherwise a crash may forget the last grants, and grant them to others. [`Checks`] warns of
//!   it or refuses it.
//! - The lock tables are not `UNLOGGED`: a crash would empty them, and a standby that is promoted has nothing of them. The same check sees
//!   that of leases, holders and tokens. Nothing sees that of a [`Fence`].
//! - `max_connections` is large enough: four for each process, and more while a synchronous standby is away. See
//!   [the limits](LeaseTableBackend#limits). Sessions take [one for each name](SessionBackend#limits) that is waited for.
//! - `default_transaction_read_only` is off for polylock's user, as it is by default. polylock does not change it: set to on, it keeps all
//!   clients from a server that is [to be replaced](#planned-switchover).
//! - Nothing else needs to be set. Each connection sets its own `default_transaction_isolation`, `default_transaction_deferrable`,
//!   `statement_timeout`, `lock_timeout`, `idle_in_transaction_session_timeout`, `idle_session_timeout`, `transaction_timeout`, `timezone`,
//!   `intervalstyle`, `bytea_output`, `extra_float_digits`, `client_min_messages`, `plan_cache_mode`, `enable_seqscan`, `jit`,
//!   `tcp_keepalives_idle`, `tcp_keepalives_interval`, `tcp_keepalives_count` and `tcp_user_timeout`, and
//!   `synchronous_commit=on` unless that is `remote_apply`. A connection that carries locks of sessions sets `synchronous_commit=off` and,
//!   on Linux, `client_connection_check_interval=1s` as well.
//!
//! # Behind a pooler
//! For sessions, see [`SessionBackend`](SessionBackend#poolers). For leases, a pooler that gives each client a connection of its own
//! needs nothing. With one that may give each transaction another
//! connection, such as PgBouncer with `pool_mode=transaction`, set `pooler=transaction`:
//! - Do not leave it out. Without it, polylock changes settings of connections that are not its own, and a PgBouncer before 1.21 may
//!   execute the prepared statement of another process in the place of the right one.
//! - polylock changes no setting of a connection, since it might be somebody else's. Have an administrator set those that differ:
//!   `ALTER ROLE app SET default_transaction_isolation='read committed'` (polylock refuses any other) and
//!   `ALTER ROLE app SET lock_timeout='1s'` (polylock refuses 0, the default: while a stranger keeps one row locked, requests for it would
//!   occupy all connections of the pool). The connections that the pooler has keep the old values: have it connect anew, as by PgBouncer's
//!   `RECONNECT`. [`schema::migrate`] through such a pooler needs the same of its user.
//! - Statements are not prepared. The server parses each of them, which takes several times as long as it takes to execute it.
//! - Requests go one at a time over each of the two connections. A PgBouncer 1.18 whose client leaves with several requests under way gives
//!   the answers to its next client. That one may take a stranger's grant for its own.
//! - Nobody can listen there. Name the server itself by `listen`, or waiters ask again every 250 to 500 ms.
//! - Give locks a small pool of their own, by a user or a database that only polylock has. Otherwise renewals wait behind queries of the
//!   application. And if a client of the application leaves as above, polylock may be given its answers.
//!
//! # Failover
//! Name all servers in the URL: each connection goes to the first one that takes writes. A primary that became a standby is
//! left as soon as it refuses a write. See [`LeaseTableBackend`](LeaseTableBackend#what-ends-a-hold) for what a promotion may lose. Locks of
//! sessions are not replicated: an old primary that failed has to be stopped, since as long as it answers, its holders keep their
//! locks, and the new one grants the same names.
//!
//! # Planned switchover
//! Before clients are led to the new primary, the old one must refuse what they write. Otherwise its holders go on renewing there, and
//! others are granted the same names by the new one.
//! 1. On the old primary, keep polylock's user out (`ALTER ROLE app NOLOGIN`, or `pg_hba.conf`), and end its sessions: `SELECT
//!    pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename='app'`. Shutting the server down does both. If nobody may write any more,
//!    `ALTER SYSTEM SET default_transaction_read_only=on` and `SELECT pg_reload_conf()` is enough for leases: polylock does not
//!    override it. Locks of sessions need the first way.
//! 2. Wait until the new primary has all rows. Only then let it take writes, and lead clients to it.
//!
//! Leases outlive this if it takes less than their TTL, by the new server's clock. Locks of sessions end in step 1, and their holders
//! learn of it.
//!
//! # A full disk
//! If the server has no room for another page of a lock table, it may refuse whatever needs a new row: a name that was never used, a place
//! in a queue, a reader, permits, and a downgrade. The error says so, and an acquire that waits tries again until there is room.
//!
//! Exclusive holds of names that have a row need no new page: the row's old versions make room for its next one. They do not while a
//! transaction is open for long, or a replication slot keeps them. A lease that then cannot be renewed ends with its TTL.
//!
//! If the server has no room for another file of its log (`pg_wal`), it crashes, and cannot start until there is room. Leases outlast
//! that if the server is back before their TTL is over, and are reported as lost otherwise. Locks of sessions end with the server, and
//! their holders learn of it at once.
//!
//! # For DBAs
//! To see who has a lease, `SELECT encode(name,'escape'),encode(label,'escape'),holder,expires,token FROM polylock_leases WHERE
//! expires>now()`. If `kind` is not 0, those who share the name are in `polylock_holders`. Those who wait are in
//! `polylock_waiters`, in the order of `place`. To end a lease by force, set `holder` to `NULL` and `expires` to `now()`, in a
//! transaction of that one statement: its holder learns of it at its next renewal, and until then only fencing protects the resource. Do not delete the row, which keeps the last token.
//!
//! Of sessions, `SELECT l.pid,l.mode,l.granted,a.client_addr FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE
//! l.locktype='advisory'` shows who has and wants locks. The columns `classid` and `objid` are the halves of a key, which is made of the
//! name. `{table}_tokens` has the name, the label and the token of the last grant of each name, and `{table}_readers` those of readers. To
//! end the holds of one session, `SELECT pg_terminate_backend(pid)`: its holders learn of it at once. With `log_lock_waits`
//! the server logs each wait that takes longer than a second.
//!
//! # Permissions needed
//! For leases: `SELECT`, `INSERT` and `UPDATE` on `{table}_leases`; these and `DELETE` on `{table}_holders` and `{table}_waiters`; `USAGE` on their
//! schema; and `CREATE` on it if polylock is to make the tables: [`schema`] has their SQL for an administrator. `DELETE` on
//! `{table}_leases` is needed only if rows of names that nobody uses any more are to be [deleted](PostgresConfig::with_retention).
//! For sessions: `SELECT`, `INSERT` and `UPDATE` on `{table}_tokens`, these and `DELETE` on `{table}_readers`, and likewise `DELETE` on
//! `{table}_tokens`. A process ends sessions of its own that it has lost (`pg_terminate_backend`), which every user may do with its own. So
//! the user must stay the same while the process runs: only its password may change.
//! Advisory locks, `LISTEN` and `NOTIFY` need no permission. Everybody may read `pg_class` and `pg_namespace`, unless an administrator has
//! revoked that: polylock needs it. No superuser, no `pg_signal_backend`.
//!
//! # Change of a password
//! Connections outlive the password by which they were made, so locks stay held. Change what
//! [`PostgresConfig::with_credentials`] reads, such as the file that `password_file=` names: each backend reads it before each
//! connection.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use config::{Checks, Pooler, PostgresConfig, Strategy};
pub use fence::Fence;
pub use lease_table::LeaseTableBackend;
pub use lock_tls::Tls;
pub use session::SessionBackend;
/// The driver, in the version whose transactions [`Fence`] and [`lock_in`] take.
pub use tokio_postgres;
pub use transaction::{KEY_OF, lock_in, try_lock_in};

mod clean_up;
mod config;
mod connection;
mod error;
mod fence;
mod lease_table;
mod list;
mod names;
mod probe;
mod protocol;
pub mod schema;
mod session;
mod transaction;

/// The backend for this configuration's [strategy](PostgresConfig::strategy). Does no I/O: it connects when it is first used.
///
/// # Errors
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a configuration that cannot work.
///
/// # Examples
/// ```
/// # use lock_postgres::PostgresConfig;
/// # fn main() -> Result<(), lock_core::Error> {
/// let config = PostgresConfig::from_url("postgres://app:secret@127.0.0.1:5432/shop")?;
/// let locks = lock_core::Locker::from_backend(lock_postgres::backend(config)?);
/// # Ok(()) }
/// ```
pub fn backend(config: PostgresConfig) -> lock_core::Result<std::sync::Arc<dyn lock_core::backend::DistributedLock>> {
    Ok(match config.strategy() {
        Strategy::Lease => std::sync::Arc::new(LeaseTableBackend::new(config)?),
        Strategy::Session => std::sync::Arc::new(SessionBackend::new(config)?),
    })
}
