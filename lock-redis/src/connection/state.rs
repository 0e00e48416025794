//! The state of the connection that callers and the supervisor share.

use std::sync::Arc;
use std::time::Duration;

use lock_core::Error;
use tokio::runtime::Id;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::session::Session;
use super::signals::Signals;
use crate::error::is_final;

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
