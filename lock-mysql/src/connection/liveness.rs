//! Who is silent: when the server answered last, and whether anybody drives the runtime of a connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Tells a task that waits for its server from one whose runtime nobody drives.
#[derive(Debug, Default)]
pub(super) struct PollMonitor {
    waker: AtomicWaker,
    polled: Notify,
}

impl PollMonitor {
    /// Runs the task.
    pub(super) async fn watch(&self, task: impl Future<Output = ()>) {
        let mut task = pin!(task);
        poll_fn(|context| {
            self.waker.register(context.waker());
            self.polled.notify_waiters();
            task.as_mut().poll(context)
        })
        .await;
    }

    /// Wakes the task and returns whether it was polled within `limit`.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(super) async fn is_polled(&self, limit: Duration) -> bool {
        let polled = self.polled.notified();
        tokio::pin!(polled);
        polled.as_mut().enable();
        self.waker.wake();
        timeout(limit, polled).await.is_ok()
    }
}

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

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_task_is_driven_while_its_runtime_is() {
        let [home, elsewhere] = [(); 2].map(|()| Builder::new_current_thread().enable_time().build().unwrap());
        let driven = Arc::new(PollMonitor::default());
        let task = driven.clone();
        home.spawn(async move { task.watch(pending()).await });
        home.block_on(async {
            assert!(driven.is_polled(Duration::from_secs(30)).await);
        });
        elsewhere.block_on(async {
            assert!(!driven.is_polled(Duration::from_millis(1)).await);
        });
        home.block_on(async {
            assert!(driven.is_polled(Duration::from_secs(30)).await);
        });
    }
}
