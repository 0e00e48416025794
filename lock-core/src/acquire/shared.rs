//! The state that the clones of a locker share.

use super::caller::Caller;
use std::fmt;

use super::differing_limits::DifferingLimits;
use super::refusals::Refusals;
use crate::backend_state::BackendState;
use crate::background::keeper::Keeper;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::observe;
use crate::queue::Queues;
use crate::sync::{Arc, AtomicBool, Notify, Ordering};

pub(crate) struct Shared {
    pub(crate) backend: Arc<BackendState>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) queues: Arc<Queues<Caller>>,
    pub(crate) refusals: Refusals,
    differing_limits: DifferingLimits,
    pub(crate) closing: Notify,
    closed: AtomicBool,
}

impl Shared {
    pub(crate) fn new(backend: BackendState) -> Self {
        Self {
            backend: Arc::new(backend),
            keeper: Arc::new(Keeper::new()),
            queues: Arc::default(),
            refusals: Refusals::default(),
            differing_limits: DifferingLimits::default(),
            closing: Notify::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Refuses new acquires and ends those that wait.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::SeqCst) {
            true => Err(self.shut_down()),
            false => Ok(()),
        }
    }

    /// A request states this limit of a semaphore: logged if an earlier one, of a caller that holds or waits, stated another.
    pub(super) fn state_limit(&self, name: &LockName, limit: u32) {
        if let Some(other) = self.queues.state_limit(name, limit)
            && other != limit
            && self.differing_limits.note(name, limit, other)
        {
            observe::limits_differ(name, limit, other);
        }
    }

    pub(crate) fn shut_down(&self) -> Error {
        Error::new(ErrorKind::ShutDown, "this locker was shut down")
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("backend", &self.backend.lock)
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.keeper.has_forked() {
            // All of it is the parent's: nothing may be taken down, and no lock be taken.
            std::mem::forget((self.backend.clone(), self.keeper.clone(), self.queues.clone()));
        } else {
            self.keeper.close();
        }
    }
}
