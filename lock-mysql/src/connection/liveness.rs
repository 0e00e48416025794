//! The moment of the server's last answer.

use parking_lot::Mutex;
use tokio::time::Instant;

/// The moment of the last answer over any connection.
#[derive(Debug)]
pub(crate) struct LastAnswer(Mutex<Instant>);

impl LastAnswer {
    /// Starts with now.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// The server answers now.
    pub(crate) fn note(&self) {
        *self.0.lock() = Instant::now();
    }

    pub(crate) fn at(&self) -> Instant {
        *self.0.lock()
    }
}
