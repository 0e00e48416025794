//! How many connections may be in use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The permits to have a connection in use.
///
/// Not a semaphore that serves its waiters in order: it would reserve a permit for a waiter whose runtime nobody drives
/// any more.
#[derive(Debug)]
pub(super) struct PoolPermits {
    all: usize,
    taken: Mutex<usize>,
    freed: Notify,
}

/// One permit; dropping it gives it back.
#[derive(Debug)]
pub(super) struct PoolPermit(Arc<PoolPermits>);

/// The permit of a connection. It is given back when the connection ends, even while somebody keeps its handle.
#[derive(Debug, Default)]
pub(super) struct PermitSlot(Mutex<Option<PoolPermit>>);

impl PoolPermits {
    pub(super) fn new(all: usize) -> Arc<Self> {
        Arc::new(Self {
            all,
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    pub(super) fn all(&self) -> usize {
        self.all
    }

    pub(super) fn taken(&self) -> usize {
        *self.lock()
    }

    pub(super) fn try_take(self: &Arc<Self>) -> Option<PoolPermit> {
        let mut taken = self.lock();
        if *taken == self.all {
            return None;
        }
        *taken += 1;
        Some(PoolPermit(self.clone()))
    }

    /// Waits for a permit.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(super) async fn take(self: &Arc<Self>) -> PoolPermit {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(permit) = self.try_take() {
                return permit;
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.freed.notify_waiters();
    }
}

impl PermitSlot {
    pub(super) fn put(&self, permit: PoolPermit) {
        // The one before goes outside the lock.
        let before = self.lock().replace(permit);
        drop(before);
    }

    pub(super) fn take(&self) -> Option<PoolPermit> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<PoolPermit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_waiter_that_is_not_polled_blocks_nobody() {
        let permits = PoolPermits::new(1);
        let permit = permits.take().await;
        assert!(permits.try_take().is_none());
        let mut stuck = Box::pin(permits.take());
        assert!(stuck.as_mut().now_or_never().is_none());
        let mut waiting = Box::pin(permits.take());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(permit);
        let permit = waiting.await;
        assert_eq!(permits.taken(), 1);
        drop(permit);
        drop(stuck.await);
        assert_eq!(permits.taken(), 0);
    }
}
