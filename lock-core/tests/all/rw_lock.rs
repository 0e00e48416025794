//! Readers, writers, and guards that become the one or the other.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use lock_core::backend::{DistributedLock, Mode};
use lock_core::{Locker, MemoryBackend, RwLock};
use tokio::task::yield_now;

use crate::scripted::Scripted;

mod downgrade;
mod semaphore;
mod upgrade;
mod upgrade_given_up;
mod upgrade_undone;

const TTL: Duration = Duration::from_secs(9);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A name in our process and in others, and what our server is told.
struct Processes {
    backend: Scripted,
    locks: Locker,
    ours: RwLock,
}

fn processes() -> Processes {
    with_yields(0)
}

fn with_yields(yields: usize) -> Processes {
    let backend = Scripted::new(MemoryBackend::new().capabilities(), yields);
    let locks = Locker::new(backend.clone()).with_ttl(TTL);
    Processes {
        ours: locks.rw_lock("a"),
        backend,
        locks,
    }
}

impl Processes {
    /// The name in yet another process.
    fn theirs(&self) -> RwLock {
        Locker::new(self.backend.server().clone()).with_ttl(TTL).rw_lock("a")
    }

    async fn modes(&self) -> Vec<Mode> {
        let status = self.backend.status_of("a").await;
        status.holders.iter().filter_map(|holder| holder.mode).collect()
    }
}

/// Until all tasks wait for something.
async fn settle() {
    for _ in 0..30 {
        yield_now().await;
    }
}

/// Polls it so often, then drops it; what it was ready with by then.
async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(output);
        }
        yield_now().await;
    }
    None
}
