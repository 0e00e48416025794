//! One of the servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{Capabilities, DistributedLock};
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) struct Node {
    pub(crate) backend: Arc<dyn DistributedLock>,
    pub(crate) capabilities: Capabilities,
    /// What sort of backend it is, as its `Debug` begins.
    kind: String,
    suspected_until: Mutex<Option<Instant>>,
    /// How long its last answer took.
    round_trip: Mutex<Option<Duration>>,
}

impl Node {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>) -> Self {
        let shown = format!("{backend:?}");
        let kind: String = shown.chars().take_while(char::is_ascii_alphanumeric).collect();
        Self {
            capabilities: backend.capabilities(),
            kind,
            backend,
            suspected_until: Mutex::new(None),
            round_trip: Mutex::new(None),
        }
    }

    /// The kind of its backend, without its address.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether it was silent, or could not be asked, a short time ago.
    pub(crate) fn is_suspected(&self) -> bool {
        self.suspected_until.lock().is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn suspect(&self, time: Duration) {
        let until = Instant::now().checked_add(time);
        let mut suspected = self.suspected_until.lock();
        *suspected = until.max(*suspected);
    }

    pub(crate) fn has_answered(&self) {
        *self.suspected_until.lock() = None;
    }

    /// It has answered a request, which did not wait in its queue, after so long.
    pub(crate) fn answered_after(&self, time: Duration) {
        *self.round_trip.lock() = Some(time);
    }

    /// How long its last answer took. `None` before the first.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        *self.round_trip.lock()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)
    }
}
