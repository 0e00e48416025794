//! What callers and the supervisor share: the state of the connection, and the leases of the holds that it serves.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::{HolderId, Lease};
use lock_core::{Error, ErrorKind};
use redis::RedisError;
use tokio::runtime::Id;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::dial::Dial;
use super::inbox::Inbox;
use super::session::Session;
use super::signals::Signals;
use crate::error::{explain, is_final};

/// What callers and supervisor share.
pub(super) struct Shared {
    pub(super) dialer: Box<dyn Dial>,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    pub(super) state: watch::Sender<State>,
    pub(super) leases: Leases,
    pub(super) inbox: Arc<Inbox>,
}

impl Shared {
    /// Somebody waits for a connection until then.
    pub(super) fn want(&self, deadline: Instant) {
        self.state.send_if_modified(|state| {
            state.wanted_until = state.wanted_until.max(deadline);
            if let Some(supervisor) = &state.supervisor {
                supervisor.signals.want();
            }
            false
        });
    }

    /// Nothing more is to be sent over this connection.
    pub(super) fn end(&self, session: &Session, why: &Error) {
        if session.end(why.clone()) {
            self.leases.suspect();
        }
    }

    pub(super) fn explain(&self, error: RedisError) -> Error {
        explain(error, &self.dialer)
    }

    pub(super) fn unreached(&self) -> Error {
        let what = format!("Redis at {} was not reached in time", self.dialer);
        match self.state.borrow().trouble.clone() {
            // It says what to do.
            Some(cause) => Error::new(ErrorKind::Unavailable, what).with_source(cause),
            None => {
                let what = format!("{what}: check that it runs and that the address is right");
                Error::new(ErrorKind::Unavailable, what)
            }
        }
    }
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// Counts supervisors: only the newest may change the state.
    pub(super) reign: u64,
    pub(super) supervisor: Option<Supervisor>,
    /// Counts connections.
    pub(super) generation: u64,
    /// When the newest connection was made.
    pub(super) connected: Option<Instant>,
    /// Counts tries to connect.
    pub(super) dials: u64,
    /// When the newest of them began.
    pub(super) last_dial: Option<Instant>,
    /// Which was the newest that failed.
    pub(super) failed_dial: u64,
    /// How many of them failed in a row; a connection that ended at once is a failure too.
    pub(super) failures: u32,
    /// What went wrong since the newest connection was made.
    pub(super) trouble: Option<Error>,
    /// Until when somebody waits for the first contact.
    pub(super) wanted_until: Instant,
}

pub(super) enum Phase {
    /// Nobody connects: nothing was asked yet, the server was not to be had in time, or the runtime has gone.
    Idle,
    Connecting,
    Up(Session),
}

/// The task that connects, and where it lives.
pub(super) struct Supervisor {
    pub(super) task: AbortHandle,
    pub(super) runtime: Id,
    pub(super) signals: Arc<Signals>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Idle,
            reign: 0,
            supervisor: None,
            generation: 0,
            connected: None,
            dials: 0,
            last_dial: None,
            failed_dial: 0,
            failures: 0,
            trouble: None,
            wanted_until: Instant::now(),
        }
    }

    /// The connection, if it can serve.
    pub(super) fn session(&self) -> Option<&Session> {
        match &self.phase {
            Phase::Up(session) if !session.is_over() => Some(session),
            _ => None,
        }
    }

    /// Whether there is no supervisor, or it died with its runtime.
    pub(super) fn is_unattended(&self) -> bool {
        let is_over = |supervisor: &Supervisor| supervisor.task.is_finished();
        matches!(self.phase, Phase::Idle) || self.supervisor.as_ref().is_none_or(is_over)
    }

    /// The error for a caller that waits for a connection, if it need not wait any longer. `dial` is the number of the first
    /// try to connect that begins after the caller came.
    pub(super) fn failure(&self, dial: u64) -> Option<Error> {
        let error = self.trouble.as_ref().filter(|_| self.failed_dial >= dial)?;
        // A server that may be just starting is waited for.
        (self.connected.is_some() || is_final(error)).then(|| error.clone())
    }

    /// Leaves the connection, if there is one, and returns it: it has ended, or its supervisor has gone.
    ///
    /// A connection that ended at once counts as a failure to connect, since the next one is likely to do the same.
    pub(super) fn leave(&mut self, next: Phase, why: Error) -> Option<Session> {
        const A_WHILE: Duration = Duration::from_secs(1);
        self.trouble = Some(why);
        let Phase::Up(session) = std::mem::replace(&mut self.phase, next) else {
            return None;
        };
        let served = self.connected.is_some_and(|since| since.elapsed() >= A_WHILE);
        self.failures = if served { 0 } else { self.failures.saturating_add(1) };
        Some(session)
    }
}

/// Those that a connection that ends makes suspect.
#[derive(Clone, Default)]
pub(super) struct Leases(Arc<Mutex<HashMap<HolderId, Entry>>>);

struct Entry {
    lease: Lease,
    /// How many holds there are of it: an acquire that is repeated gives another one.
    holds: usize,
}

/// A lease is told of for as long as this lives.
pub(crate) struct Watched {
    leases: Leases,
    holder: HolderId,
}

impl Leases {
    pub(super) fn add(&self, holder: HolderId, lease: &Lease) -> Watched {
        let entry = |lease: &Lease| Entry {
            lease: lease.clone(),
            holds: 0,
        };
        self.lock().entry(holder).or_insert_with(|| entry(lease)).holds += 1;
        Watched {
            leases: self.clone(),
            holder,
        }
    }

    pub(super) fn suspect(&self) {
        for entry in self.lock().values() {
            entry.lease.suspect();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HolderId, Entry>> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut leases = self.leases.lock();
        if let Some(entry) = leases.get_mut(&self.holder) {
            entry.holds -= 1;
            if entry.holds == 0 {
                leases.remove(&self.holder);
            }
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.holder).finish()
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
        let (first, second) = (leases.add(holder, &lease), leases.add(holder, &lease));
        drop(first);
        leases.suspect();
        assert_eq!(lease.state(), HoldState::Suspect);
        drop(second);
        assert!(leases.lock().is_empty());
    }
}
