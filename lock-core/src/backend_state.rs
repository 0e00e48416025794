//! The backend as core keeps it.

use crate::backend::{Capabilities, DistributedLock};
use crate::sync::{Arc, AtomicBool, Ordering};

/// What a locker, its acquires and its holds share. A hold may outlive all lockers.
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

    /// The server has answered, or there was a connection to it.
    pub(crate) fn note_reached(&self) {
        // Written once: all workers of the runtime read what is beside it.
        if !self.was_reached() {
            self.reached.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was there once, so that it is worth waiting for.
    pub(crate) fn was_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }
}
