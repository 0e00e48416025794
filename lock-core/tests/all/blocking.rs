//! The API without async.

use std::time::Duration;

use lock_core::MemoryBackend;
use lock_core::blocking::Locker;

mod conversions;
mod elections;
mod ends;
mod places;
mod types;

/// How long a busy machine may take until something has happened that has no limit of its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two lockers of one server, as of two processes.
fn two() -> (Locker, Locker) {
    let server = MemoryBackend::new();
    (Locker::new(server.clone()), Locker::new(server))
}
