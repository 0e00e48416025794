//! The backend that users name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, ListFrom, ListPage, LockStatus};
use lock_core::{Guarantee, LockName, Result, Verdict};

use super::Shared;
use crate::config::{PostgresConfig, Strategy};
use crate::connection::Parameters;
use crate::error::{SqlError, unless_missing};
use crate::list::list;
use crate::names::name_bytes;
use crate::probe::{SYSTEM, server_id, sessions_keep};
use crate::protocol::answers::status;

/// A hold is passed on only if its session answered within this time: another client may have the name before this process learns
/// that the session has ended.
const PASS_CONFIRMED_WITHIN: Duration = Duration::from_millis(50);

/// Advisory locks of sessions. `strategy=session`.
///
/// Cheap to clone; clones share their connections.
///
/// # Guarantees
/// PostgreSQL gives an advisory lock to one session, or shares it among readers, and frees it when the session ends. An acquire of a
/// free name is one statement in one round trip, which also takes the token. A release is one statement. No caller waits for
/// the disk, unless a token is [ahead of the clock](#fencing).
///
/// One connection carries all names that were free when they were asked for. A name that is taken is waited for in the server's own
/// queue, over a connection of its own. The unlock itself wakes the waiter. That connection then carries the hold, and may carry more.
/// A session never asks for a name that it has: its own locks would not conflict. The process then asks over another
/// connection. So the server decides about every request.
///
/// The TTL of every hold is the [session timeout](PostgresConfig::with_session_timeout), which is also the shortest TTL. A heartbeat
/// each third of it renews all holds of a session, and writes nothing. The server ends a session that is silent for longer
/// (`idle_session_timeout`). The client counts on 0.9 of it, from before it sent the last heartbeat that was answered. A fixed lease ends
/// after its own TTL, or with its session.
///
/// A hold passes to the next waiter of the same process without a request, if the server answered a request of its session that was sent
/// after that waiter came and in the last 50 ms.
///
/// # Modes
/// Exclusive holds and readers. A reader that comes while a writer waits waits behind it. A downgrade takes the shared lock before it
/// gives up the exclusive one, so nobody writes in between. Not offered, as typed errors or missing capabilities say:
/// - Permits: a session's lock is exclusive or shared.
/// - Upgrades: of two readers that wait to become the writer, the server ends one.
/// - A minimum hold: it must outlast the process, and no lock of a session does.
/// - [`extend`](lock_core::Guard::extend): the session is the TTL.
/// - [`revoke`](lock_core::Locker::revoke): nobody can unlock what another session has locked. `pg_terminate_backend` would end all
///   holds of that session.
/// - The order of those who wait for longer than 30 s: then each queues anew. A longer wait would keep VACUUM from its work.
///
/// # What ends a hold
/// - Its release.
/// - The end of its process, at once: its sockets close.
/// - The silence of its machine or of the network, after the session timeout.
/// - The end of its connection, for whatever reason: a restart, `pg_terminate_backend`, a firewall that drops it. If
///   the client is still reached, the loss is reported at once, as [`LostCause::Disconnected`](lock_core::LostCause::Disconnected).
///   All other holds of that session are lost with it.
/// - The end of the Tokio runtime on which its connection was made, at once. While nobody drives that runtime, nobody sends
///   heartbeats, and its holds end with the session timeout.
///
/// If the server ends a session while the client is cut off and its connection stays open, the name is free at once, and the client
/// counts on the hold until its lease ends: 0.9 session timeouts after the last answered heartbeat was sent. No more than that passes, as no
/// hold counts without an answer. Until then only [fencing](crate::Fence) protects the resource. This happens:
/// - when the server is started anew, or ends and a standby is promoted: a server does not grant anything for the
///   [restart delay](PostgresConfig::with_restart_delay), so nobody gets the name earlier. It needs the longest session
///   timeout of all processes. A server that restarts its processes after one of them crashed keeps its start time: there the delay does not help.
/// - when an administrator ends the session, or something in between ends the connection towards the server alone. The server's own
///   TCP limits are never shorter than the session timeout: each session sets them.
///
/// A failover alone ends no hold. Locks of sessions are not replicated, and heartbeats write nothing. As long as the old primary answers a
/// client, its holds last, whatever the new one grants after the restart delay: two then have one lock. So an old primary that
/// failed has to be stopped, and before a planned switchover its sessions must [end](crate#planned-switchover).
///
/// # Poolers
/// A pooler that lends a connection for each transaction would give one lock to all its clients. So each session is given a mark in the
/// first message of its connection. Only the server itself can take it, since a pooler's connections are older than its clients. A
/// pooler that refuses or ignores the mark is an error, [`Misconfigured`](lock_core::ErrorKind::Misconfigured). With
/// `pooler=session` a statement sets the mark instead. Then polylock compares the sessions of its own connections when it first connects,
/// and every statement that locks or unlocks first looks at the mark, and does nothing if another client has set its own. A session is
/// ended or cancelled only while its `application_name` is `polylock` with the first 16 digits of its mark: the pooler may have lent its
/// connection to another client. Not detected:
/// a pooler of transactions that was declared as `pooler=session`, as long as it happens to give each client the same connection.
///
/// # Fencing
/// A token is the server's clock in microseconds, read after the lock was taken, or one more than the row's last token if that is larger.
/// It is committed before the grant, and no caller waits until the commit is on the disk. A crash may undo it; the clock has passed it
/// by then. A token that is ahead of the clock, because the clock was set back, for a token floor or after a raise, is
/// on the disk before it is granted. So tokens grow, also over expiry and crash, unless the clock is set back at the same time as a crash
/// loses the row. They grow over a failover to a standby too, unless
/// - the standby's clock is behind the primary's by more than the [restart delay](PostgresConfig::with_restart_delay), and it has not
///   received the row;
/// - the standby is asynchronous, and has not received a token that was ahead of the clock. Make it synchronous if you raise tokens or
///   give them a floor.
///
/// # Limits
/// - Connections for each process: one for questions, one that carries locks, and one for each name that is waited for, or that is held
///   after a wait, up to [`max_connections`](PostgresConfig::with_max_connections). Beyond that, waiters ask again and again. One that has
///   carried nothing for a minute is closed. While the server has no room for one more, a process dials it for one waiter at a time.
/// - Each lock takes an entry in the server's table of locks, which all clients share. See
///   [`max_holds`](PostgresConfig::with_max_holds).
/// - Locks of different databases are independent. A key has 64 bits: two names with the same key exclude each other, except
///   within one session. Either is safe; among a million names the chance is 1 to 30 million.
/// - The row of a name that others have locked keeps a session's statements waiting for 0.5 s each, its heartbeats too. Do not lock
///   rows of these tables.
/// - A row that nobody has used for seven days is deleted in the background, over one more connection, if the user has the permission
///   `DELETE`.
/// - PostgreSQL 14 or later, for `idle_session_timeout`.
#[derive(Clone)]
pub struct SessionBackend(Arc<Shared>);

impl SessionBackend {
    /// A backend for this server. Does no I/O: it connects when it is first used.
    ///
    /// ```
    /// use lock_core::Locker;
    /// use lock_postgres::{PostgresConfig, SessionBackend, Strategy};
    ///
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = PostgresConfig::new("127.0.0.1", 5432).with_user("app").with_database("shop");
    /// let locks = Locker::new(SessionBackend::new(config.with_strategy(Strategy::Session))?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a configuration that cannot work.
    pub fn new(config: PostgresConfig) -> Result<Self> {
        let config = config.with_strategy(Strategy::Session);
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

    /// Deletes the rows of names that nobody has had for the [retention](PostgresConfig::with_retention), and of readers that have
    /// ended, and returns how many rows they were. Spares rows whose token is ahead of the server's clock or behind it by less than
    /// the retention, and those of names that somebody has.
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
    /// let backend = lock_postgres::SessionBackend::from_url("postgres://app:secret@db/shop?strategy=session")?;
    /// println!("{} rows deleted", backend.clean_up().await?);
    /// # Ok(()) }
    /// ```
    pub async fn clean_up(&self) -> Result<u64> {
        self.0.clean_up().await
    }
}

#[async_trait]
impl DistributedLock for SessionBackend {
    fn capabilities(&self) -> Capabilities {
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
        Capabilities::default()
            .fixed_lease()
            .durable_tokens()
            .any_floor()
            .session_renewal()
            .pass_if_confirmed_within(PASS_CONFIRMED_WITHIN)
            .shared()
            .downgrade()
            .list()
            .ttl_between(self.0.config.sessions.timeout, LONGEST)
    }

    fn address(&self) -> Option<String> {
        Some(self.0.config.server_and_database())
    }

    async fn server_id(&self) -> Result<Option<String>> {
        server_id(self.0.ask(SYSTEM).await)
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        sessions_keep(guarantee)
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
        let (statements, control) = (self.0.statements().await?, self.0.control.connection().await?);
        list(&control, &statements.list, from, at_most, Some(self.0.limit())).await
    }
}

impl Shared {
    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let statements = self.statements().await?;
        let control = self.control.connection().await?;
        let parameters: Parameters<'_> = &[&name_bytes(name)];
        let found = control.query(&statements.status, parameters, Some(self.limit())).await;
        status(&unless_missing(found)?).map_err(SqlError::into_lock_error)
    }
}

impl fmt::Debug for SessionBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBackend")
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}
