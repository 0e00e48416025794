//! What these tests share: a backend that yields before and after every effect, runtimes, and futures that are dropped.

pub(crate) use std::collections::VecDeque;
pub(crate) use std::future::poll_fn;
pub(crate) use std::pin::pin;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::task::Poll;
pub(crate) use std::time::Duration;

pub(crate) use async_trait::async_trait;
pub(crate) use futures_util::FutureExt;
pub(crate) use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, Lease, LockStatus};
pub(crate) use lock_core::{
    Ended, Error, ErrorKind, FencingToken, HoldState, LockName, Locker, LostCause, MemoryBackend, Result,
};
pub(crate) use testbed_steady::blocking::receives;
pub(crate) use testbed_steady::{AT_MOST, LONG_TTL, assert_safe, eventually, happens, in_some_run};
pub(crate) use tokio::runtime::Handle;
pub(crate) use tokio::task::yield_now;
pub(crate) use tokio::time::{Instant, sleep, timeout};

pub(crate) use crate::scripted::{Answer, Pass, Request, Scripted};

pub(crate) const TTL: Duration = Duration::from_secs(9);

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn hostile() -> (Scripted, Locker) {
    let backend = Scripted::new(MemoryBackend::new().capabilities(), 1);
    let locks = Locker::new(backend.clone()).with_ttl(TTL);
    (backend, locks)
}

/// Polls it so often, then drops it; true when it was ready by then.
pub(crate) async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let ready = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = ready {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

/// One that is driven all the time.
pub(crate) fn driven() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// One that is driven while something blocks on it.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}
