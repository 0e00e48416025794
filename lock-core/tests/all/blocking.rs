//! The API without async.

use std::time::Duration;

use lock_core::MemoryBackend;
use lock_core::blocking::Locker;

mod conversions;
mod elections;
mod ends;
mod places;
mod types;

/// The limit of a wait whose end the test needs.
const PATIENCE: Duration = testbed_steady::AT_MOST;

/// Two lockers of one server, as of two processes.
fn two() -> (Locker, Locker) {
    let server = MemoryBackend::new();
    (Locker::new(server.clone()), Locker::new(server))
}
