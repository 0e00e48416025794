//! When the server answered last.

use std::sync::{Mutex, PoisonError};

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
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn at(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
