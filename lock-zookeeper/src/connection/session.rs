//! One ZooKeeper session: the leases that it renews, its connection, and its end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::backend::LostCause;
use lock_core::{Error, Result};
use lock_kit::runtime::RuntimeCheck;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use zookeeper_client::{Error as DriverError, SessionInfo, Stat};

use self::leases::Liveness;
use super::budget::Budget;
use super::driver::Connection;
use super::heartbeat::{self, Heartbeat};
use super::room::Room;
use super::token_offset::TokenOffset;
use crate::config::{HeartbeatKind, ZooKeeperConfig};
use crate::error;
use crate::names;
use crate::probe::ServerMode;
use crate::state::{SessionState, StateReporter};

/// The answer to a request that was sent already.
type Answer<'a> = Pin<Box<dyn Future<Output = Result<(), DriverError>> + Send + 'a>>;
/// A delete that was sent already.
pub(crate) type Delete = Answer<'static>;

/// A session, shared by the holds and waiters that depend on it.
pub(crate) struct Session {
    pub(crate) info: SessionInfo,
    /// The session timeout that the server granted.
    pub(crate) timeout: Duration,
    /// The runtime of the driver's tasks. The claims' tasks run there too, and end with it.
    pub(crate) runtime: Handle,
    /// Checks whether that runtime is driven.
    pub(crate) runtime_check: Arc<RuntimeCheck>,
    root: String,
    /// The kind of its heartbeats.
    heartbeat: HeartbeatKind,
    liveness: Mutex<Liveness>,
    /// The nodes that it carries.
    budget: Mutex<Budget>,
    reporter: StateReporter,
    /// `None` during an outage, and after the session's end.
    pub(super) connection: watch::Sender<Option<Arc<Connection>>>,
    ended: watch::Sender<bool>,
    /// See [`has_expired`](Self::has_expired).
    has_expired: AtomicBool,
    renewals: watch::Sender<()>,
    pub(crate) token_offset: Arc<TokenOffset>,
    /// Why the server is unreachable at the moment, if so.
    outage: watch::Sender<Option<Error>>,
}

/// The error that the session has ended.
#[derive(Debug)]
pub(crate) struct SessionEnded;

impl Session {
    /// A session that was requested at `connect`.
    pub(crate) fn new(
        connection: Connection,
        connect: Heartbeat,
        config: &ZooKeeperConfig,
        runtime_check: Arc<RuntimeCheck>,
        reporter: StateReporter,
    ) -> Self {
        reporter.set(SessionState::Connected);
        let timeout = connection.client.session_timeout();
        Self {
            info: connection.client.session().clone(),
            timeout,
            runtime: Handle::current(),
            runtime_check,
            root: config.root().to_owned(),
            heartbeat: config.heartbeat(),
            liveness: Mutex::new(Liveness::new(connect, timeout)),
            budget: Mutex::default(),
            reporter,
            connection: watch::Sender::new(Some(Arc::new(connection))),
            ended: watch::Sender::new(false),
            has_expired: AtomicBool::new(false),
            renewals: watch::Sender::new(()),
            token_offset: Arc::default(),
            outage: watch::Sender::new(None),
        }
    }

    /// True if this session owns a node.
    pub(crate) fn owns(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.info.id().0
    }

    /// True if a node in this directory fits.
    pub(crate) fn has_room(&self, directory: &str) -> bool {
        self.budget().has_room(directory)
    }

    /// Room for a node in this directory. `None` if it does not fit, or if the session has ended.
    pub(super) fn reserve(self: &Arc<Self>, directory: &str) -> Option<Room> {
        let reserved = !self.has_ended() && self.budget().reserve(directory);
        reserved.then(|| Room::new(self.clone(), directory.to_owned()))
    }

    /// Closes it for further nodes. False if it carries any.
    pub(super) fn close(&self) -> bool {
        self.budget().close()
    }

    /// True if it takes no more nodes, since it has ended or is about to.
    pub(super) fn is_closed(&self) -> bool {
        self.has_ended() || self.budget().is_closed()
    }

    /// Of how many names it has nodes.
    pub(super) fn names(&self) -> usize {
        self.budget().directories()
    }

    /// True if it has nodes in this directory.
    pub(super) fn carries(&self, directory: &str) -> bool {
        self.budget().carries(directory)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.borrow().is_some()
    }

    /// Waits for a connection to send requests over.
    pub(crate) async fn connected(&self) -> Result<Arc<Connection>, SessionEnded> {
        let mut connection = self.connection.subscribe();
        tokio::select! {
            biased;
            () = self.ended() => Err(SessionEnded),
            // The sender lives as long as `self`.
            found = connection.wait_for(Option::is_some) => found.ok().and_then(|found| found.clone()).ok_or(SessionEnded),
        }
    }

    /// Why the server is unreachable at the moment: the connection has ended, or brings no answers.
    pub(crate) fn outage(&self) -> Option<Error> {
        self.outage.borrow().clone()
    }

    /// The [outage](Self::outage), as it changes.
    pub(crate) fn outages(&self) -> watch::Receiver<Option<Error>> {
        self.outage.subscribe()
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// True if the session has expired: the server said so, or the driver has not reached it for the session timeout. Its ephemeral
    /// nodes are gone, or go as soon as the server has the session expire.
    pub(crate) fn has_expired(&self) -> bool {
        self.has_expired.load(Ordering::SeqCst)
    }

    /// To be called before its end is published.
    pub(super) fn note_expired(&self) {
        self.has_expired.store(true, Ordering::SeqCst);
    }

    /// Waits until the session has ended.
    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as `self`.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// True if the heartbeats prove enough of the session's life to begin a hold.
    pub(crate) fn is_fresh(&self) -> bool {
        self.liveness.lock().heartbeats.is_fresh(Instant::now())
    }

    /// False if it carries no node, or if the leases of its holds have ended.
    pub(super) fn may_carry_holds(&self) -> bool {
        let base = self.liveness.lock().heartbeats.base();
        base.at.elapsed() < self.timeout && self.names() > 0
    }

    /// Waits until [`is_fresh`](Self::is_fresh).
    pub(crate) async fn fresh(&self) -> Result<(), SessionEnded> {
        while !self.is_fresh() {
            self.next_heartbeat().await?;
        }
        Ok(())
    }

    /// Waits for the next heartbeat that renews leases.
    pub(crate) async fn next_heartbeat(&self) -> Result<(), SessionEnded> {
        let mut renewals = self.renewals.subscribe();
        tokio::select! {
            // The sender lives as long as `self`.
            _ = renewals.changed() => Ok(()),
            () = self.ended() => Err(SessionEnded),
        }
    }

    /// Sends a `sync` at once. Its answer counts as a heartbeat, unless those are writes. A read that follows it on this
    /// connection sees at least what the leader had.
    pub(crate) fn sync<'a>(
        &'a self,
        connection: &'a Connection,
    ) -> impl Future<Output = Result<(), DriverError>> + Send + use<'a> {
        let beat = Heartbeat::now();
        let sync = connection.client.sync(&self.root);
        async move {
            sync.await?;
            if self.heartbeat == HeartbeatKind::Sync {
                self.acknowledge(beat, ServerMode::PerhapsFollower);
            }
            Ok(())
        }
    }

    /// Sends the request of a heartbeat at once.
    pub(super) fn beat<'a>(&self, connection: &'a Connection) -> Answer<'a> {
        match self.heartbeat {
            HeartbeatKind::Sync => Box::pin(connection.client.sync(&self.root)),
            HeartbeatKind::Write => {
                // The version of no node, should somebody create it.
                let write = connection.client.delete(&names::heartbeat(&self.root), Some(i32::MAX));
                Box::pin(async move {
                    match write.await {
                        // Failed writes are transactions as well: a quorum has it before it is answered.
                        Err(DriverError::NoNode | DriverError::BadVersion | DriverError::NoAuth) => Ok(()),
                        answer => answer,
                    }
                })
            }
        }
    }

    /// The connection, if there is one at the moment.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.borrow().clone()
    }

    /// Deletes a node. If there is a connection, the delete is sent at once, so that it precedes later requests.
    pub(crate) fn delete(self: &Arc<Self>, path: &str) -> Delete {
        if let Some(connection) = &*self.connection.borrow() {
            return Box::pin(connection.client.delete(path, None));
        }
        let (session, path) = (self.clone(), path.to_owned());
        Box::pin(async move {
            let connection = session
                .connected()
                .await
                .map_err(|SessionEnded| DriverError::SessionExpired)?;
            connection.client.delete(&path, None).await
        })
    }

    /// The time between two heartbeats.
    pub(crate) fn interval(&self) -> Duration {
        heartbeat::interval(self.timeout)
    }

    /// Ends the session for this process: its leases are lost.
    pub(crate) fn end(&self) {
        let mut liveness = self.liveness.lock();
        let is_first = !std::mem::replace(&mut liveness.ended, true);
        for (_, lease) in liveness.leases.drain() {
            lease.lose(LostCause::Disconnected);
        }
        drop(liveness);
        if is_first {
            let lost = if self.budget().is_closed() {
                SessionState::Absent
            } else {
                SessionState::Ended
            };
            self.reporter.set(lost);
        }
        self.ended.send_replace(true);
        self.connection.send_replace(None);
    }

    /// Ends the connection. What was not sent yet never will be.
    pub(crate) fn disconnect(&self) {
        if let Some(connection) = self.connection.send_replace(None) {
            connection.abort();
        }
    }

    /// Publishes why the server is unreachable, or that it answers.
    pub(super) fn set_outage(&self, why: Option<Error>) {
        if self.has_ended() {
            return;
        }
        let state = why
            .as_ref()
            .map_or(SessionState::Connected, |_| SessionState::Suspended);
        self.outage.send_if_modified(|outage| {
            let is_news = outage.is_some() || why.is_some();
            *outage = why;
            is_news
        });
        self.reporter.set(state);
    }

    /// Every critical section leaves its data whole.
    pub(super) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.info.id())
            .field("timeout", &self.timeout)
            .field("ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}

impl From<SessionEnded> for Error {
    fn from(_: SessionEnded) -> Self {
        error::session_ended(None)
    }
}

mod leases;
