//! The delay between two attempts at a connection: shorter while requests wait for one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_kit::backoff::{DIAL_SPACING, pauses};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// The longest delay, without jitter.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(2);
/// The longest delay while a request waits.
const MAX_DELAY_WHILE_REQUESTED: Duration = Duration::from_millis(250);

/// The delays after failed attempts in a row: they double up to `longest`; jitter adds up to as much again.
pub(crate) fn delays(longest: Duration) -> impl Iterator<Item = Duration> + Send {
    pauses(DIAL_SPACING, longest.clamp(DIAL_SPACING, MAX_DELAY))
}

/// Counts the requests that wait for a connection.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    pending: AtomicUsize,
    asked: Notify,
}

impl Backoff {
    /// Counts a request until the guard is dropped. It shortens the delay.
    pub(crate) fn add_request(&self) -> PendingRequest<'_> {
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.asked.notify_one();
        PendingRequest(self)
    }

    /// True if a request waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.pending.load(Ordering::SeqCst) > 0
    }

    /// Waits after an attempt that began at `began`.
    pub(crate) async fn wait(&self, began: Instant, longest: Duration) {
        let asked = async {
            self.asked.notified().await;
            sleep_until(began + DIAL_SPACING).await;
        };
        let awaited = async {
            loop {
                sleep(MAX_DELAY_WHILE_REQUESTED).await;
                if self.is_awaited() {
                    return;
                }
            }
        };
        tokio::select! {
            () = sleep(longest) => {}
            () = asked => {}
            () = awaited => {}
        }
    }
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct PendingRequest<'a>(&'a Backoff);

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(2);

    async fn delay(backoff: &Backoff) -> Duration {
        let began = Instant::now();
        backoff.wait(began, LONG).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_shortens_the_delay_to_the_shortest() {
        let backoff = Backoff::default();
        assert_eq!(delay(&backoff).await, LONG);
        let pending = backoff.add_request();
        assert_eq!(delay(&backoff).await, DIAL_SPACING);
        assert_eq!(delay(&backoff).await, MAX_DELAY_WHILE_REQUESTED);
        let another = async {
            sleep(DIAL_SPACING * 2).await;
            backoff.add_request()
        };
        let (waited, another) = tokio::join!(delay(&backoff), another);
        assert_eq!(waited, DIAL_SPACING * 2);
        drop((pending, another));
        assert_eq!(delay(&backoff).await, LONG);
    }
}
