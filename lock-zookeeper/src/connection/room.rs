//! The part of a session's budget that one acquisition takes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::session::Session;

/// Room for one node in a session. It is given back when this is dropped.
pub(crate) struct Room {
    session: Arc<Session>,
    directory: String,
    leaving: AtomicBool,
}

impl Room {
    /// For a node that the session's budget counts already.
    pub(super) fn new(session: Arc<Session>, directory: String) -> Self {
        Self {
            session,
            directory,
            leaving: AtomicBool::new(false),
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The node's delete was sent, or is about to be.
    pub(crate) fn leave(&self) {
        if !self.leaving.swap(true, Ordering::SeqCst) {
            self.session.budget().leave(&self.directory);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let was_leaving = self.leaving.load(Ordering::SeqCst);
        self.session.budget().give_back(&self.directory, was_leaving);
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}
