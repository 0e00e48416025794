//! Several locks at once.

use std::time::Duration;

use lock_core::{Locker, MultiGuard};
use tokio::task::yield_now;

use crate::scripted::Scripted;

mod all_or_none;
mod failures;
mod held;
mod orders;

const TTL: Duration = Duration::from_secs(9);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn scripted() -> (Scripted, Locker) {
    let backend = Scripted::default();
    let locks = Locker::new(backend.clone()).with_ttl(TTL);
    (backend, locks)
}

/// Until all tasks wait for something.
async fn settle() {
    for _ in 0..30 {
        yield_now().await;
    }
}

fn names(guard: &MultiGuard) -> Vec<&str> {
    guard.guards().iter().map(|guard| guard.name().as_str()).collect()
}
