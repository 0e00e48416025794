//! One ZooKeeper session: its heartbeats, the leases that live by it, and its end.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::backend::{Armed, HolderId, Lease, LostCause, Sent};
use lock_core::{Error, Result};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use zookeeper_client::{Client, Error as Driver, SessionState};

use crate::error;
use crate::heartbeat::{Beat, Heartbeats};

/// The driver restores its watches after a reconnect in one request of up to 128 KiB of paths; a second one would
/// carry the same number, and the answer to it ends the connection, again and again until the session expires.
const WATCHED_BYTES: usize = 120 * 1024;

/// A session, shared by all that lives by it. The driver closes it when the last one is dropped.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The session timeout that the server granted.
    pub(crate) timeout: Duration,
    /// Where the driver's task runs. Whatever must not outlive the session's answers runs there too.
    pub(crate) runtime: Handle,
    root: String,
    vital: Mutex<Vital>,
    over: watch::Sender<bool>,
    beats: watch::Sender<()>,
    watched_bytes: AtomicUsize,
}

struct Vital {
    heartbeats: Heartbeats,
    leases: HashMap<HolderId, Lease>,
    connected: bool,
    over: bool,
}

/// The session has ended.
#[derive(Debug)]
pub(crate) struct Over;

impl Session {
    /// A session that was asked for at `connect`.
    pub(crate) fn new(client: Client, connect: Beat, root: String) -> Self {
        let timeout = client.session_timeout();
        Self {
            client,
            timeout,
            runtime: Handle::current(),
            root,
            vital: Mutex::new(Vital {
                heartbeats: Heartbeats::new(connect, Instant::now(), timeout),
                leases: HashMap::new(),
                connected: true,
                over: false,
            }),
            over: watch::Sender::new(false),
            beats: watch::Sender::new(()),
            watched_bytes: AtomicUsize::new(0),
        }
    }

    /// Whether this session owns a node.
    pub(crate) fn owns(&self, stat: &zookeeper_client::Stat) -> bool {
        stat.ephemeral_owner == self.client.session_id().0
    }

    /// Counts a lease among those that the heartbeats arm, and arms it: for the session timeout from what the
    /// heartbeats have proven, or, if it is fixed, for its own term.
    pub(crate) fn admit(&self, holder: HolderId, lease: &Lease, fixed: Option<(Sent, Duration)>) -> Result<Armed> {
        let mut vital = self.vital();
        if vital.over {
            return Err(error::session_ended());
        }
        let session = (vital.heartbeats.base().sent, self.timeout);
        lease.carry(session.0, session.1);
        let (sent, ttl) = fixed.unwrap_or(session);
        let armed = lease.arm(sent, ttl)?;
        if !vital.connected {
            lease.suspect();
        }
        vital.leases.insert(holder, lease.clone());
        Ok(armed)
    }

    /// Arms a lease no more; it ends by itself.
    pub(crate) fn forget(&self, holder: HolderId) {
        self.vital().leases.remove(&holder);
    }

    /// Waits until requests can be sent. The driver would queue them without bound.
    pub(crate) async fn connected(&self) -> Result<(), Over> {
        if self.is_over() {
            return Err(Over);
        }
        let mut states = self.client.state_watcher();
        if states.state() == SessionState::SyncConnected {
            return Ok(());
        }
        let connected = async { while states.changed().await != SessionState::SyncConnected {} };
        tokio::select! {
            () = connected => Ok(()),
            () = self.over() => Err(Over),
        }
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

    /// Sends a `sync`, at once, whose answer counts as a heartbeat. What is read on this session after it is not
    /// older than what the leader had.
    pub(crate) fn sync(&self) -> impl Future<Output = Result<(), Driver>> + Send + '_ {
        let beat = Beat::now();
        let sync = self.client.sync(&self.root);
        async move {
            sync.await?;
            self.acknowledge(beat);
            Ok(())
        }
    }

    /// Room for one more watch on a path of so many bytes, if there is.
    pub(crate) fn reserve_watch(self: &Arc<Self>, bytes: usize) -> Option<WatchRoom> {
        self.reserve(bytes, WATCHED_BYTES)
    }

    /// The same for a node of our own: half of the room is for waiters, who need it more.
    pub(crate) fn reserve_own_watch(self: &Arc<Self>, bytes: usize) -> Option<WatchRoom> {
        self.reserve(bytes, WATCHED_BYTES / 2)
    }

    fn reserve(self: &Arc<Self>, bytes: usize, limit: usize) -> Option<WatchRoom> {
        let add = |used: usize| Some(used + bytes).filter(|used| *used <= limit);
        let reserved = self
            .watched_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        reserved.ok().map(|_| WatchRoom(self.clone(), bytes))
    }

    /// The time between two heartbeats.
    pub(crate) fn interval(&self) -> Duration {
        self.vital().heartbeats.interval()
    }

    /// Sends heartbeats, arms and suspects leases, until the session has ended; says how.
    pub(crate) async fn keep_alive(&self) -> SessionState {
        let mut states = self.client.state_watcher();
        let mut state = states.state();
        loop {
            if state.is_terminated() {
                return state;
            }
            let connected = state == SessionState::SyncConnected;
            self.vital().connected = connected;
            state = tokio::select! {
                state = states.changed() => state,
                never = self.beat(), if connected => match never {},
            };
            self.suspect();
        }
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
    }

    /// Sends them at their times, whether the last ones are answered or not: a slow way takes nothing from a lease but
    /// its delay.
    async fn beat(&self) -> Infallible {
        let mut unanswered = FuturesUnordered::new();
        let mut next = Instant::now();
        loop {
            tokio::select! {
                () = sleep_until(next) => {
                    if unanswered.len() >= 4 {
                        self.suspect();
                    }
                    next = Instant::now() + self.interval();
                    unanswered.push(self.sync());
                }
                Some(answer) = unanswered.next() => {
                    if answer.is_err() {
                        self.suspect();
                    }
                }
            }
        }
    }

    fn acknowledge(&self, beat: Beat) {
        let mut vital = self.vital();
        if vital.over || !vital.heartbeats.acknowledge(beat, Instant::now()) {
            return;
        }
        let base = vital.heartbeats.base();
        for lease in vital.leases.values() {
            lease.carry(base.sent, self.timeout);
            // One that has ended stays ended: its owner takes the node away.
            let _ = lease.arm(base.sent, self.timeout);
        }
        drop(vital);
        self.beats.send_replace(());
    }

    fn suspect(&self) {
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
            .field("id", &self.client.session_id())
            .field("timeout", &self.timeout)
            .field("over", &self.is_over())
            .finish_non_exhaustive()
    }
}

/// A watch's share of what the driver can restore.
#[derive(Debug)]
pub(crate) struct WatchRoom(Arc<Session>, usize);

impl Drop for WatchRoom {
    fn drop(&mut self) {
        self.0.watched_bytes.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl From<Over> for Error {
    fn from(Over: Over) -> Self {
        error::session_ended()
    }
}
