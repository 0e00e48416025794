//! How long to rest between two attempts at a connection, by who waits for one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// From the beginning of one attempt to the next, whoever asks.
pub(crate) const SHORTEST: Duration = Duration::from_millis(50);
/// The longest rest, jitter apart.
pub(crate) const LONGEST: Duration = Duration::from_secs(2);
/// The longest rest while somebody waits.
const WHILE_AWAITED: Duration = Duration::from_millis(250);

/// The longest rests after failed attempts in a row: doubling up to `longest`, with jitter that adds up to as much again.
pub(crate) fn rests(longest: Duration) -> impl Iterator<Item = Duration> + Send {
    let rests = ExponentialBuilder::default()
        .with_min_delay(SHORTEST)
        .with_max_delay(longest.clamp(SHORTEST, LONGEST))
        .with_jitter()
        .without_max_times();
    rests.build()
}

/// The requests that wait for a connection.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    waiting: AtomicUsize,
    asked: Notify,
}

impl Wanted {
    /// Counts a request, which shortens the rest, until it is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.asked.notify_one();
        Waiting(self)
    }

    /// Rests, after an attempt that began at `began`.
    pub(crate) async fn rest(&self, began: Instant, longest: Duration) {
        let asked = async {
            self.asked.notified().await;
            sleep_until(began + SHORTEST).await;
        };
        let awaited = async {
            loop {
                sleep(WHILE_AWAITED).await;
                if self.waiting.load(Ordering::SeqCst) > 0 {
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
pub(crate) struct Waiting<'a>(&'a Wanted);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(2);

    async fn rest(wanted: &Wanted) -> Duration {
        let began = Instant::now();
        wanted.rest(began, LONG).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_shortens_the_rest_to_the_shortest() {
        let wanted = Wanted::default();
        assert_eq!(rest(&wanted).await, LONG);
        let waiting = wanted.wait();
        assert_eq!(rest(&wanted).await, SHORTEST);
        assert_eq!(rest(&wanted).await, WHILE_AWAITED);
        let another = async {
            sleep(SHORTEST * 2).await;
            wanted.wait()
        };
        let (rested, another) = tokio::join!(rest(&wanted), another);
        assert_eq!(rested, SHORTEST * 2);
        drop((waiting, another));
        assert_eq!(rest(&wanted).await, LONG);
    }
}
