//! The backend as core keeps it.

use std::time::Duration;

use crate::backend::{Capabilities, DistributedLock};
use crate::error::Result;
use crate::guarantee::{Guarantee, Required, Verdict};
use crate::sync::time::Instant;
use crate::sync::{Arc, AsyncMutex, AtomicBool, Ordering};

/// The backend, as a locker, its acquires and its holds share it. A hold may outlive all lockers.
#[derive(Debug)]
pub(crate) struct BackendState {
    pub(crate) lock: Arc<dyn DistributedLock>,
    pub(crate) capabilities: Capabilities,
    reached: AtomicBool,
    /// When it last connected again, since a required guarantee was missed.
    connected_again: AsyncMutex<Option<Instant>>,
}

/// How often it does so at most.
const CONNECT_AGAIN_EVERY: Duration = Duration::from_secs(1);

impl BackendState {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>) -> Self {
        Self {
            capabilities: backend.capabilities(),
            lock: backend,
            reached: AtomicBool::new(false),
            connected_again: AsyncMutex::default(),
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

    /// Connects again since a required guarantee is missed, at most once a second. Whoever comes meanwhile waits for that, and connects
    /// only if the guarantee is missed all the same.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the next one to come connects, after a second.
    pub(crate) async fn connect_again(&self, is_kept: impl Fn() -> bool) {
        let mut last = self.connected_again.lock().await;
        let is_early = |last: Instant| Instant::now().saturating_duration_since(last) < CONNECT_AGAIN_EVERY;
        if is_kept() || last.is_some_and(is_early) {
            return;
        }
        *last = Some(Instant::now());
        // If it fails, what is known counts.
        let _ = self.lock.connect().await;
        *last = Some(Instant::now());
    }

    /// Returns whether the server ever answered, so that waiting for it makes sense.
    pub(crate) fn was_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }
}
