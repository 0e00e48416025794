//! One session: the locks that it carries, and until when it is known to live.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lock_core::backend::{Armed, HolderId, Lease, LostCause, SentAt, rules};
use lock_core::{Error, ErrorKind, HoldState, LockName, Result};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::error::SqlError;
use crate::protocol::session_setup::Identity;

/// What nobody has undone for so long, everybody has forgotten: an acquire without an answer, or the claims of a session that ended.
const FORGOTTEN: Duration = Duration::from_secs(60);

pub(super) struct Session {
    pub(super) connection: Arc<Connection>,
    pub(super) identity: Identity,
    pub(super) timeout: Duration,
    /// From when on the server may grant locks; unset until it was asked.
    pub(super) grants_from: OnceLock<Instant>,
    /// Held by whoever ends it at the server.
    pub(super) ending: tokio::sync::Mutex<Ending>,
    state: Mutex<State>,
}

/// The end of a session at the server.
#[derive(Debug, Default)]
pub(super) enum Ending {
    #[default]
    Unasked,
    /// When, and why.
    Failed(Instant, Error),
    Over,
}

/// The moment at which a request was sent, by two clocks that count alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Instant,
    pub(super) sent: SentAt,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self::of(SentAt::now())
    }

    pub(super) fn of(sent: SentAt) -> Self {
        Self {
            at: Instant::now(),
            sent,
        }
    }
}

struct State {
    /// What it may have locked, for whom, and since when.
    names: HashMap<LockName, (HolderId, Instant)>,
    leases: HashMap<HolderId, Bound>,
    /// Who waits in it: it can carry nothing else until the server answers.
    waiting: Option<HolderId>,
    /// The latest request that was answered.
    proven: Moment,
    idle_since: Instant,
    ended: Option<Instant>,
    /// That of a further session, until it ends.
    permit: Option<OwnedSemaphorePermit>,
}

/// A lease that the session keeps.
struct Bound {
    lease: Lease,
    /// Heartbeats renew it. Otherwise it ends by itself.
    is_renewed: bool,
    /// Its hold was dropped, so that nobody else unlocks the name.
    is_dropped: bool,
}

impl Session {
    pub(super) fn new(
        connection: Arc<Connection>,
        identity: Identity,
        timeout: Duration,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let now = Instant::now();
        let proven = Moment {
            at: now,
            sent: connection.sent,
        };
        Self {
            connection,
            identity,
            timeout,
            grants_from: OnceLock::new(),
            ending: tokio::sync::Mutex::default(),
            state: Mutex::new(State {
                names: HashMap::new(),
                leases: HashMap::new(),
                waiting: None,
                proven,
                idle_since: now,
                ended: None,
                permit,
            }),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended.is_some() || self.connection.has_ended()
    }

    /// Has it carry this name for this id, if it can. `waits`: for a wait, which nothing else may be in its way.
    pub(super) fn reserve(&self, name: &LockName, holder: HolderId, waits: bool) -> bool {
        let mut state = self.state.lock();
        let is_free = match waits {
            true => state.names.is_empty(),
            false => !state.names.contains_key(name),
        };
        if !is_free || state.ended.is_some() || state.waiting.is_some() || self.connection.has_ended() {
            return false;
        }
        state.names.insert(name.clone(), (holder, Instant::now()));
        state.waiting = waits.then_some(holder);
        true
    }

    /// Nothing of this id is locked in it any more.
    pub(super) fn forget(&self, name: &LockName, holder: HolderId) {
        let mut state = self.state.lock();
        if state.names.get(name).is_some_and(|(of, _)| *of == holder) {
            state.names.remove(name);
        }
        let lease = state.leases.remove(&holder);
        if state.waiting == Some(holder) {
            state.waiting = None;
        }
        state.idle_since = Instant::now();
        drop(state);
        drop(lease);
    }

    /// The wait is over, and the session carries what it waited for.
    pub(super) fn has_waited(&self, proven: Moment) {
        let mut state = self.state.lock();
        state.waiting = None;
        for (_, since) in state.names.values_mut() {
            *since = Instant::now();
        }
        state.prove(proven);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state.lock().waiting.is_some()
    }

    /// Whether it carries nothing but this.
    pub(super) fn carries_only(&self, holder: HolderId) -> bool {
        self.state.lock().names.values().all(|(of, _)| *of == holder)
    }

    /// For how long it has carried nothing.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.names.is_empty().then(|| state.idle_since.elapsed())
    }

    /// Adds a lease to those that its heartbeats renew, and arms it: for the session timeout from what is proven, or for its own
    /// term if it is fixed.
    pub(super) fn bind(
        &self,
        holder: HolderId,
        lease: &Lease,
        proven: Moment,
        fixed: Option<(SentAt, Duration)>,
    ) -> Result<Armed> {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return Err(self.end_error());
        }
        state.prove(proven);
        let of_session = (state.proven.sent, self.timeout);
        lease.bind_to_session(of_session.0, of_session.1);
        let (sent, ttl) = fixed.unwrap_or(of_session);
        let armed = lease.arm(sent, ttl)?;
        let bound = Bound {
            lease: lease.clone(),
            is_renewed: true,
            is_dropped: false,
        };
        state.leases.insert(holder, bound);
        Ok(armed)
    }

    /// From here on heartbeats renew `next` in place of the lease of this id. False if they renew none.
    pub(super) fn replace_lease(&self, holder: HolderId, next: &Lease) -> bool {
        let mut state = self.state.lock();
        let is_ended = state.ended.is_some();
        match state.leases.get_mut(&holder) {
            Some(bound) if bound.is_renewed && !is_ended => {
                bound.lease = next.clone();
                true
            }
            _ => false,
        }
    }

    /// The hold of a lease was dropped: when the lease has ended, the name is unlocked. A fixed lease lasts for its own term.
    pub(super) fn drop_hold(&self, holder: HolderId, is_fixed: bool) {
        if let Some(bound) = self.state.lock().leases.get_mut(&holder) {
            bound.is_dropped = true;
            bound.is_renewed &= is_fixed;
        }
    }

    /// The server has answered a request: the session lived when that was sent.
    pub(super) fn prove(&self, proven: Moment) {
        let mut state = self.state.lock();
        if state.ended.is_some() || !state.prove(proven) {
            return;
        }
        let is_live =
            |bound: &&Bound| bound.is_renewed && matches!(bound.lease.state(), HoldState::Held | HoldState::Suspect);
        for bound in state.leases.values().filter(is_live) {
            bound.lease.bind_to_session(proven.sent, self.timeout);
            // One that has ended stays ended: the next heartbeat unlocks its name.
            let _ = bound.lease.arm(proven.sent, self.timeout);
        }
    }

    /// Whether it has holds, and its client cannot count on them any more.
    pub(super) fn has_lapsed(&self) -> bool {
        let state = self.state.lock();
        !state.leases.is_empty() && state.proven.at.elapsed() >= rules::lease_time(self.timeout)
    }

    pub(super) fn suspect(&self, why: &Error) {
        for bound in self.state.lock().leases.values() {
            bound.lease.suspect_because(why.clone());
        }
    }

    /// Those whose locks nobody wants any more: their leases have ended, or nobody has undone them.
    pub(super) fn over(&self) -> Vec<HolderId> {
        let state = self.state.lock();
        let is_over = |holder: &HolderId, since: Instant| match state.leases.get(holder) {
            Some(bound) => match bound.lease.state() {
                HoldState::Lost(_) => true,
                HoldState::Released => bound.is_dropped,
                _ => false,
            },
            None => state.waiting.is_none() && since.elapsed() > FORGOTTEN.max(2 * self.timeout),
        };
        let over = state.names.values().filter(|(holder, since)| is_over(holder, *since));
        over.map(|(holder, _)| *holder).collect()
    }

    /// It has ended, and all its holds with it.
    pub(super) fn end(&self) {
        let (leases, permit, error) = {
            let mut state = self.state.lock();
            state.ended.get_or_insert_with(Instant::now);
            (std::mem::take(&mut state.leases), state.permit.take(), self.end_error())
        };
        drop(permit);
        for bound in leases.into_values() {
            bound.lease.lose_because(LostCause::Disconnected, error.clone());
        }
    }

    /// Whether it ended so long ago that the server has ended it too, and nobody asks for its claims any more.
    pub(super) fn is_forgotten(&self) -> bool {
        let ended = self.state.lock().ended;
        ended.is_some_and(|ended| ended.elapsed() > FORGOTTEN.max(2 * self.timeout))
    }

    /// Why it has ended.
    pub(super) fn end_error(&self) -> Error {
        match self.connection.end_error() {
            SqlError::Disconnected(None) => Error::new(
                ErrorKind::Unavailable,
                "the connection to the PostgreSQL server has ended",
            ),
            error => error.into_lock_error(),
        }
    }
}

impl State {
    /// Returns whether it is news.
    fn prove(&mut self, proven: Moment) -> bool {
        let is_later = self.proven.at < proven.at;
        if is_later {
            self.proven = proven;
        }
        is_later
    }
}

/// Its task reads on until the server has answered, so that a wait would keep its place in the queue.
impl Drop for Session {
    fn drop(&mut self) {
        if self.state.get_mut().waiting.is_some() {
            self.connection.abort();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("identity", &self.identity)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
