//! Limits the number of connections in use.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The permits to have a connection in use.
///
/// Not a semaphore that serves its waiters in order: it would reserve a permit for a waiter whose runtime nobody drives
/// any more.
#[derive(Debug)]
pub(super) struct PoolPermits {
    all: usize,
    counts: Mutex<Counts>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    taken: usize,
    /// The number of those on connections that wait in the server.
    waiting: usize,
}

/// The right to wait for a row; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct WaitPermit(Arc<PoolPermits>);

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
            counts: Mutex::default(),
            freed: Notify::new(),
        })
    }

    pub(super) fn all(&self) -> usize {
        self.all
    }

    pub(super) fn taken(&self) -> usize {
        self.counts.lock().taken
    }

    /// `None` while so many wait that only a quarter of all is left, for those whose name may be free.
    pub(super) fn try_wait(self: &Arc<Self>) -> Option<WaitPermit> {
        let mut counts = self.counts.lock();
        if counts.waiting >= self.all - self.all / 4 {
            return None;
        }
        counts.waiting += 1;
        Some(WaitPermit(self.clone()))
    }

    pub(super) fn try_take(self: &Arc<Self>) -> Option<PoolPermit> {
        let mut counts = self.counts.lock();
        if counts.taken == self.all {
            return None;
        }
        counts.taken += 1;
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
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        self.0.counts.lock().taken -= 1;
        self.0.freed.notify_waiters();
    }
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.0.counts.lock().waiting -= 1;
    }
}

impl PermitSlot {
    pub(super) fn put(&self, permit: PoolPermit) {
        // The one before goes outside the lock.
        let before = self.0.lock().replace(permit);
        drop(before);
    }

    pub(super) fn take(&self) -> Option<PoolPermit> {
        self.0.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn waiters_leave_a_quarter() {
        for (all, waiting) in [(1, 1), (3, 3), (4, 3), (8, 6), (64, 48)] {
            let permits = PoolPermits::new(all);
            let mut waiters: Vec<_> = std::iter::from_fn(|| permits.try_wait()).collect();
            assert_eq!(waiters.len(), waiting);
            waiters.pop();
            assert!(permits.try_wait().is_some());
        }
    }

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
