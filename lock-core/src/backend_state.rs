//! The backend as core keeps it.

use crate::backend::{Capabilities, DistributedLock};
use crate::error::Result;
use crate::guarantee::{Guarantee, Required, Verdict};
use crate::sync::{Arc, AtomicBool, Ordering};

/// The backend, as a locker, its acquires and its holds share it. A hold may outlive all lockers.
#[derive(Debug)]
pub(crate) struct BackendState {
    pub(crate) lock: Arc<dyn DistributedLock>,
    pub(crate) capabilities: Capabilities,
    reached: AtomicBool,
}

impl BackendState {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>) -> Self {
        Self {
            capabilities: backend.capabilities(),
            lock: backend,
            reached: AtomicBool::new(false),
        }
    }

    /// Notes that the server answered, or that there was a connection to it.
    pub(crate) fn note_reached(&self) {
        // Written once, since all workers of the runtime read the fields beside it.
        if !self.was_reached() {
            self.reached.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the backend's verdict on a guarantee, from its capabilities or its server.
    pub(crate) fn verdict(&self, guarantee: Guarantee) -> Verdict {
        match (self.capabilities.verdict(guarantee), guarantee) {
            // The server may have granted less than the backend can do.
            (Some(Verdict::Yes), Guarantee::Ttl(ttl)) => match self.lock.check_ttl(ttl) {
                Ok(()) => Verdict::Yes,
                Err(error) => Verdict::no(error.to_string(), "choose another TTL, or another server"),
            },
            (Some(verdict), _) => verdict,
            (None, guarantee) => self.lock.keeps(guarantee),
        }
    }

    /// # Errors
    /// [`Misconfigured`](crate::ErrorKind::Misconfigured) with all that is missed.
    pub(crate) fn check_required(&self, required: Option<&Arc<Required>>) -> Result<()> {
        match required {
            None => Ok(()),
            Some(required) => required.check(|guarantee| self.verdict(guarantee)),
        }
    }

    /// Returns whether the server ever answered, so that waiting for it makes sense.
    pub(crate) fn was_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }
}
