//! One of the servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{Capabilities, DistributedLock};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::protocol::Known;

pub(crate) struct Node {
    pub(crate) backend: Arc<dyn DistributedLock>,
    pub(crate) capabilities: Capabilities,
    /// The kind of backend: the word with which its `Debug` begins.
    kind: String,
    number: usize,
    known: Arc<Mutex<Known>>,
}

impl Node {
    /// The node with this number, from 0, of those that are known.
    pub(crate) fn new(backend: Arc<dyn DistributedLock>, number: usize, known: &Arc<Mutex<Known>>) -> Self {
        let shown = format!("{backend:?}");
        let kind: String = shown.chars().take_while(char::is_ascii_alphanumeric).collect();
        Self {
            capabilities: backend.capabilities(),
            kind,
            backend,
            number,
            known: known.clone(),
        }
    }

    /// The kind of its backend, without its address.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether the node was silent, or could not be asked, a short time ago.
    pub(crate) fn is_suspected(&self) -> bool {
        self.known.lock().is_suspected(self.number, now())
    }

    pub(crate) fn suspect(&self, time: Duration) {
        self.known.lock().suspect(self.number, now(), time);
    }

    pub(crate) fn has_answered(&self) {
        self.known.lock().has_answered(self.number);
    }

    /// It has answered a request, which did not wait in its queue, after so long.
    pub(crate) fn answered_after(&self, time: Duration) {
        self.known.lock().answered_after(self.number, time);
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)
    }
}
