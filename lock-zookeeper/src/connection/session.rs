//! One ZooKeeper session: the leases that live by it, its connection, and its end.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::{Armed, HolderId, Lease, LostCause, SentAt};
use lock_core::{Error, Result};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use zookeeper_client::{Error as Driver, SessionInfo, Stat};

use super::driver::Connection;
use super::heartbeat::{self, Answerer, Beat, Heartbeats};
use super::runtime_check::Pulse;
use crate::error;

/// A delete that was sent already.
pub(crate) type Delete = Pin<Box<dyn Future<Output = Result<(), Driver>> + Send>>;

/// A session, shared by all that lives by it.
pub(crate) struct Session {
    pub(crate) info: SessionInfo,
    /// The session timeout that the server granted.
    pub(crate) timeout: Duration,
    /// Where the driver's tasks run. Whatever must not outlive the session's answers runs there too.
    pub(crate) runtime: Handle,
    /// Asks whether that runtime is driven.
    pub(crate) pulse: Arc<Pulse>,
    pub(super) root: String,
    vital: Mutex<Vital>,
    /// `None` while there is none, and after the session's end.
    pub(super) connection: watch::Sender<Option<Arc<Connection>>>,
    over: watch::Sender<bool>,
    beats: watch::Sender<()>,
    /// Why the server cannot be asked at the moment, if so.
    pub(super) outage: watch::Sender<Option<Error>>,
}

struct Vital {
    heartbeats: Heartbeats,
    leases: HashMap<HolderId, Lease>,
    over: bool,
}

/// The session has ended.
#[derive(Debug)]
pub(crate) struct Over;

impl Session {
    /// A session that was asked for at `connect`.
    pub(crate) fn new(connection: Connection, connect: Beat, root: String, pulse: Arc<Pulse>) -> Self {
        let timeout = connection.client.session_timeout();
        Self {
            info: connection.client.session().clone(),
            timeout,
            runtime: Handle::current(),
            pulse,
            root,
            vital: Mutex::new(Vital {
                heartbeats: Heartbeats::new(connect, Instant::now(), timeout),
                leases: HashMap::new(),
                over: false,
            }),
            connection: watch::Sender::new(Some(Arc::new(connection))),
            over: watch::Sender::new(false),
            beats: watch::Sender::new(()),
            outage: watch::Sender::new(None),
        }
    }

    /// Whether this session owns a node.
    pub(crate) fn owns(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.info.id().0
    }

    /// Counts a lease among those that the heartbeats arm, and arms it: for the session timeout from what the
    /// heartbeats have proven, or, if it is fixed, for its own term.
    pub(crate) fn admit(&self, holder: HolderId, lease: &Lease, fixed: Option<(SentAt, Duration)>) -> Result<Armed> {
        let mut vital = self.vital();
        if vital.over {
            return Err(error::session_ended(None));
        }
        let session = (vital.heartbeats.base().sent, self.timeout);
        lease.bind_to_session(session.0, session.1);
        let (sent, ttl) = fixed.unwrap_or(session);
        let armed = lease.arm(sent, ttl)?;
        if self.connection.borrow().is_none() {
            lease.suspect();
        }
        vital.leases.insert(holder, lease.clone());
        Ok(armed)
    }

    /// Arms a lease no more; it ends by itself.
    pub(crate) fn forget(&self, holder: HolderId) {
        self.vital().leases.remove(&holder);
    }

    /// Waits for a connection to send requests over.
    pub(crate) async fn connected(&self) -> Result<Arc<Connection>, Over> {
        let mut connection = self.connection.subscribe();
        tokio::select! {
            biased;
            () = self.over() => Err(Over),
            // The sender lives as long as `self`.
            found = connection.wait_for(Option::is_some) => found.ok().and_then(|found| found.clone()).ok_or(Over),
        }
    }

    /// Why the server cannot be asked at the moment: its connection has ended, or brings no answers.
    pub(crate) fn outage(&self) -> Option<Error> {
        self.outage.borrow().clone()
    }

    /// The same, as it changes.
    pub(crate) fn outages(&self) -> watch::Receiver<Option<Error>> {
        self.outage.subscribe()
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits until the session has ended.
    pub(crate) async fn over(&self) {
        let mut over = self.over.subscribe();
        // The sender lives as long as `self`.
        let _ = over.wait_for(|over| *over).await;
    }

    /// Whether enough of the session's life is known to begin a hold.
    pub(crate) fn is_fresh(&self) -> bool {
        self.vital().heartbeats.is_fresh(Instant::now())
    }

    /// Waits until it is.
    pub(crate) async fn fresh(&self) -> Result<(), Over> {
        while !self.is_fresh() {
            self.next_beat().await?;
        }
        Ok(())
    }

    /// Waits for the next heartbeat that arms leases.
    pub(crate) async fn next_beat(&self) -> Result<(), Over> {
        let mut beats = self.beats.subscribe();
        tokio::select! {
            // The sender lives as long as `self`.
            _ = beats.changed() => Ok(()),
            () = self.over() => Err(Over),
        }
    }

    /// Sends a `sync`, at once, whose answer counts as a heartbeat. What is read over this connection after it is not
    /// older than what the leader had.
    pub(crate) fn sync<'a>(
        &'a self,
        connection: &'a Connection,
    ) -> impl Future<Output = Result<(), Driver>> + Send + use<'a> {
        let beat = Beat::now();
        let sync = connection.client.sync(&self.root);
        async move {
            sync.await?;
            self.acknowledge(beat, Answerer::PerhapsFollower);
            Ok(())
        }
    }

    /// Deletes a node: at once where there is a connection, so that whatever this process sends afterwards comes after
    /// it.
    pub(crate) fn delete(self: &Arc<Self>, path: &str) -> Delete {
        if let Some(connection) = &*self.connection.borrow() {
            return Box::pin(connection.client.delete(path, None));
        }
        let (session, path) = (self.clone(), path.to_owned());
        Box::pin(async move {
            let connection = session.connected().await.map_err(|Over| Driver::SessionExpired)?;
            connection.client.delete(&path, None).await
        })
    }

    /// The time between two heartbeats.
    pub(crate) fn interval(&self) -> Duration {
        heartbeat::interval(self.timeout)
    }

    /// The session has ended, or nobody keeps it any more.
    pub(crate) fn end(&self) {
        let mut vital = self.vital();
        vital.over = true;
        for (_, lease) in vital.leases.drain() {
            lease.lose(LostCause::Disconnected);
        }
        drop(vital);
        self.over.send_replace(true);
        self.connection.send_replace(None);
    }

    /// Ends its connection, and whatever was not sent yet with it.
    pub(crate) fn cut(&self) {
        if let Some(connection) = self.connection.send_replace(None) {
            connection.cut();
        }
    }

    pub(super) fn acknowledge(&self, beat: Beat, by: Answerer) {
        let mut vital = self.vital();
        if vital.over || !vital.heartbeats.acknowledge(beat, Instant::now(), by) {
            return;
        }
        let base = vital.heartbeats.base();
        for lease in vital.leases.values() {
            lease.bind_to_session(base.sent, self.timeout);
            // One that has ended stays ended: its owner takes the node away.
            let _ = lease.arm(base.sent, self.timeout);
        }
        drop(vital);
        self.beats.send_replace(());
    }

    pub(super) fn suspect(&self) {
        for lease in self.vital().leases.values() {
            lease.suspect();
        }
    }

    /// Every critical section leaves its data whole.
    fn vital(&self) -> MutexGuard<'_, Vital> {
        self.vital.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.info.id())
            .field("timeout", &self.timeout)
            .field("over", &self.is_over())
            .finish_non_exhaustive()
    }
}

impl From<Over> for Error {
    fn from(Over: Over) -> Self {
        error::session_ended(None)
    }
}
