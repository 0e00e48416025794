//! The schedule of deletions of unneeded data, such as rows of names that were not used for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{ErrorKind, Result};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The time between two clean-ups in the background, and so much more by chance, so that processes take turns.
const INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// Decides when the next clean-up in the background is due.
///
/// # Examples
/// ```
/// # use lock_kit::clean_up::Schedule;
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let clean_ups = Schedule::new();
/// // After each grant. The first one is due after some time, at most an hour.
/// clean_ups.run_if_due(|| async { Ok(()) });
/// # }
/// ```
#[derive(Debug)]
pub struct Schedule(Arc<State>);

#[derive(Debug)]
struct State {
    due: Mutex<Instant>,
    is_denied: AtomicBool,
}

impl Schedule {
    /// The first one comes within an hour.
    #[expect(clippy::new_without_default, reason = "it is by chance when the first one comes")]
    pub fn new() -> Self {
        let first = Duration::from_secs(3600).mul_f64(rand::random());
        Self(Arc::new(State {
            due: Mutex::new(Instant::now() + first),
            is_denied: AtomicBool::new(false),
        }))
    }

    /// Begins a clean-up in the background if one is due, and none once the server has denied one. Outside a runtime it does
    /// nothing.
    pub fn run_if_due<F, T>(&self, clean_up: impl FnOnce() -> F)
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send,
    {
        if let Ok(runtime) = Handle::try_current()
            && self.0.is_due(Instant::now())
        {
            let (state, clean_up) = (self.0.clone(), clean_up());
            runtime.spawn(async move {
                if clean_up
                    .await
                    .err()
                    .is_some_and(|error| error.kind() == ErrorKind::Denied)
                {
                    state.is_denied.store(true, Ordering::Relaxed);
                }
            });
        }
    }
}

impl State {
    /// True if a clean-up is due now. The next one is then due after the interval.
    fn is_due(&self, now: Instant) -> bool {
        if self.is_denied.load(Ordering::Relaxed) {
            return false;
        }
        let mut due = self.due.lock();
        let is_due = *due <= now;
        if is_due {
            *due = now + INTERVAL + INTERVAL.mul_f64(rand::random());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Error;

    use super::*;

    #[test]
    fn it_is_due_within_an_hour_and_then_a_few_times_a_day() {
        let (schedule, start) = (Schedule::new().0, Instant::now());
        let hour = Duration::from_secs(3600);
        assert!(schedule.is_due(start + hour));
        assert!(!schedule.is_due(start + 6 * hour));
        assert!(schedule.is_due(start + 14 * hour));
        schedule.is_denied.store(true, Ordering::Relaxed);
        assert!(!schedule.is_due(start + 99 * hour));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_denied_is_the_last() {
        let schedule = Schedule::new();
        let (begun, mut ran) = tokio::sync::mpsc::unbounded_channel();
        for kind in [ErrorKind::Unavailable, ErrorKind::Denied, ErrorKind::Unavailable] {
            tokio::time::advance(2 * INTERVAL).await;
            schedule.run_if_due(|| {
                let begun = begun.clone();
                async move {
                    begun.send(kind).unwrap();
                    Err::<(), _>(Error::new(kind, "refused"))
                }
            });
            tokio::task::yield_now().await;
        }
        drop(begun);
        assert_eq!(ran.recv().await, Some(ErrorKind::Unavailable));
        assert_eq!(ran.recv().await, Some(ErrorKind::Denied));
        assert_eq!(ran.recv().await, None);
    }
}
