//! State shared by callers and the supervisor: the connection, and the leases of the holds that it serves.

use std::collections::{HashMap, hash_map};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use foldhash::fast::RandomState;
use lock_core::backend::{HolderId, Lease};
use lock_core::{Error, ErrorKind};
use lock_kit::runtime::RuntimeCheck;
use parking_lot::Mutex;
use redis::RedisError;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::dial::Dial;
use super::inbox::Inbox;
use super::session::Session;
use crate::error::{is_permanent, lock_error};
use crate::protocol::PubSub;

/// State shared by callers and the supervisor.
pub(super) struct Shared {
    pub(super) dialer: Box<dyn Dial>,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    pub(super) state: watch::Sender<State>,
    pub(super) leases: Leases,
    pub(super) inbox: Arc<Inbox>,
    /// Counts connections: of a whole backend, so that no two have one number.
    pub(super) generations: Arc<AtomicU64>,
    pub(super) wakes: PubSub,
}

impl Shared {
    /// Notes that somebody waits for a connection until then, and requests a try to connect.
    pub(super) fn request_connection(&self, deadline: Instant) {
        self.state.send_if_modified(|state| {
            state.wanted_until = state.wanted_until.max(deadline);
            if let Some(supervisor) = &state.supervisor {
                supervisor.dial_requested.notify_one();
            }
            false
        });
    }

    /// True if this process has a hold or waits for one, so that it must soon notice the loss of the server.
    pub(super) fn is_needed(&self) -> bool {
        !self.leases.is_empty() || self.inbox.is_awaited()
    }

    /// Nothing more is to be sent over this connection.
    pub(super) fn end(&self, session: &Session, why: &Error) {
        if session.end(why.clone()) {
            self.leases.suspect();
        }
    }

    pub(super) fn lock_error(&self, error: RedisError) -> Error {
        lock_error(error, &self.dialer)
    }

    pub(super) fn unreached(&self) -> Error {
        match self.state.borrow().last_error.clone() {
            // It says which server, and what to do.
            Some(cause) => Error::new(ErrorKind::Unavailable, "there was no connection in time").with_source(cause),
            None => {
                let what = format!(
                    "Redis at {} was not reached in time: check that it runs and that the address is right",
                    self.dialer
                );
                Error::new(ErrorKind::Unavailable, what)
            }
        }
    }
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// Counts supervisors: only the newest may change the state.
    pub(super) epoch: u64,
    pub(super) supervisor: Option<SupervisorHandle>,
    /// The generation of the newest connection.
    pub(super) generation: u64,
    /// The moment when the newest connection was made.
    pub(super) connected: Option<Instant>,
    /// Counts tries to connect.
    pub(super) dials: u64,
    /// The moment when the newest dial began.
    pub(super) last_dial: Option<Instant>,
    /// The newest dial that failed.
    pub(super) failed_dial: u64,
    /// The number of dials that failed in a row. A connection that ended at once counts as a failure.
    pub(super) failures: u32,
    /// The last error since the newest connection was made.
    pub(super) last_error: Option<Error>,
    /// Until when somebody waits for the first connection.
    pub(super) wanted_until: Instant,
}

pub(super) enum Phase {
    /// Nobody connects: nothing was requested yet, the server was not reached in time, or the runtime has ended.
    Idle,
    Connecting,
    Up(Session),
}

/// The task that connects.
pub(super) struct SupervisorHandle {
    pub(super) task: AbortHandle,
    pub(super) runtime_check: Arc<RuntimeCheck>,
    pub(super) dial_requested: Arc<Notify>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Idle,
            epoch: 0,
            supervisor: None,
            generation: 0,
            connected: None,
            dials: 0,
            last_dial: None,
            failed_dial: 0,
            failures: 0,
            last_error: None,
            wanted_until: Instant::now(),
        }
    }

    /// The connection, if it can serve.
    pub(super) fn session(&self) -> Option<&Session> {
        match &self.phase {
            Phase::Up(session) if !session.has_ended() => Some(session),
            _ => None,
        }
    }

    /// True if there is no supervisor, or it ended with its runtime.
    pub(super) fn lacks_supervisor(&self) -> bool {
        let has_ended = |supervisor: &SupervisorHandle| supervisor.task.is_finished();
        matches!(self.phase, Phase::Idle) || self.supervisor.as_ref().is_none_or(has_ended)
    }

    /// The error for a caller that waits for a connection, if it need not wait any longer. `dial` is the number of the first
    /// try to connect that begins after the caller came.
    pub(super) fn failure(&self, dial: u64) -> Option<Error> {
        let error = self.last_error.as_ref().filter(|_| self.failed_dial >= dial)?;
        // A server that may be just starting is waited for.
        (self.connected.is_some() || is_permanent(error)).then(|| error.clone())
    }

    /// Gives the connection up and returns it, if there is one: it has ended, or its supervisor has.
    ///
    /// A connection that ended at once counts as a failure to connect, since the next one is likely to do the same.
    pub(super) fn disconnect(&mut self, next: Phase, why: Error) -> Option<Session> {
        const A_WHILE: Duration = Duration::from_secs(1);
        self.last_error = Some(why);
        let Phase::Up(session) = std::mem::replace(&mut self.phase, next) else {
            return None;
        };
        let served = self.connected.is_some_and(|since| since.elapsed() >= A_WHILE);
        self.failures = if served { 0 } else { self.failures.saturating_add(1) };
        Some(session)
    }
}

/// The leases of the holds: a connection that ends makes them suspect.
#[derive(Clone, Default)]
pub(crate) struct Leases {
    entries: Arc<Mutex<HashMap<HolderId, Entry, RandomState>>>,
    /// Returns whether a connection serves a hash slot. `None`: it serves all.
    serves: Option<Arc<dyn Fn(u16) -> bool + Send + Sync>>,
}

struct Entry {
    lease: Lease,
    /// The hash slot of its name, in a cluster.
    slot: u16,
    /// The number of holds with this id: a repeated acquire makes another one.
    holds: usize,
}

/// Keeps a lease registered for as long as this lives.
pub(crate) struct LeaseRegistration {
    leases: Leases,
    holder: HolderId,
}

impl Leases {
    /// The same leases, seen from a connection that serves some hash slots.
    pub(crate) fn of_slots(&self, serves: impl Fn(u16) -> bool + Send + Sync + 'static) -> Self {
        Self {
            entries: self.entries.clone(),
            serves: Some(Arc::new(serves)),
        }
    }

    pub(crate) fn register(&self, slot: u16, holder: HolderId, lease: &Lease) -> LeaseRegistration {
        let entry = |lease: &Lease| Entry {
            lease: lease.clone(),
            slot,
            holds: 0,
        };
        self.entries.lock().entry(holder).or_insert_with(|| entry(lease)).holds += 1;
        LeaseRegistration {
            leases: self.clone(),
            holder,
        }
    }

    /// The same, and from here on `next` is the lease of this holder.
    pub(crate) fn pass(&self, slot: u16, holder: HolderId, next: &Lease) -> LeaseRegistration {
        let registration = self.register(slot, holder, next);
        if let Some(entry) = self.entries.lock().get_mut(&holder) {
            entry.lease = next.clone();
        }
        registration
    }

    fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }

    pub(super) fn suspect(&self) {
        self.suspect_in(|slot| self.serves.as_ref().is_none_or(|serves| serves(slot)));
    }

    /// Makes those of some hash slots suspect.
    pub(crate) fn suspect_in(&self, is_one: impl Fn(u16) -> bool) {
        for entry in self.entries.lock().values() {
            if is_one(entry.slot) {
                entry.lease.suspect();
            }
        }
    }
}

impl Drop for LeaseRegistration {
    fn drop(&mut self) {
        let mut leases = self.leases.entries.lock();
        if let hash_map::Entry::Occupied(mut entry) = leases.entry(self.holder) {
            entry.get_mut().holds -= 1;
            if entry.get().holds == 0 {
                entry.remove();
            }
        }
    }
}

impl fmt::Debug for LeaseRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeaseRegistration").field(&self.holder).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::backend::SentAt;
    use lock_core::{HoldState, LockName};

    use super::*;

    #[test]
    fn as_long_as_any_hold_of_it_lives() {
        let (leases, holder) = (Leases::default(), HolderId::random());
        let lease = Lease::new(LockName::new("a").unwrap());
        lease.arm(SentAt::now(), Duration::from_secs(60)).unwrap();
        let (first, second) = (leases.register(7, holder, &lease), leases.register(7, holder, &lease));
        drop(first);
        leases.suspect();
        assert_eq!(lease.state(), HoldState::Suspect);
        let next = Lease::new(LockName::new("a").unwrap());
        next.arm(SentAt::now(), Duration::from_secs(60)).unwrap();
        let passed = leases.pass(7, holder, &next);
        drop(second);
        leases.of_slots(|slot| slot != 7).suspect();
        assert_eq!(next.state(), HoldState::Held);
        leases.of_slots(|slot| slot == 7).suspect();
        assert_eq!(next.state(), HoldState::Suspect);
        drop(passed);
        assert!(leases.entries.lock().is_empty());
    }
}
