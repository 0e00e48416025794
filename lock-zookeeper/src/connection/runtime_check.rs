//! Whether anybody drives the runtime on which a session is kept.

use std::convert::Infallible;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

/// For how long an answer counts.
const FRESH: Duration = Duration::from_secs(1);
/// For how long a runtime may be busy with something else.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A question to the task that keeps a session, which it answers as soon as its runtime runs it.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// The task's runtime.
    home: Id,
    asked: Notify,
    answered: watch::Sender<Instant>,
}

impl Pulse {
    /// For a task on the runtime of the caller.
    pub(crate) fn new() -> Self {
        Self {
            home: Handle::current().id(),
            asked: Notify::new(),
            answered: watch::Sender::new(Instant::now()),
        }
    }

    /// Answers all that is asked.
    pub(crate) async fn answer(&self) -> Infallible {
        loop {
            self.asked.notified().await;
            self.answer_now();
        }
    }

    /// Answers without being asked.
    pub(crate) fn answer_now(&self) {
        self.answered.send_replace(Instant::now());
    }

    /// Whether the task's runtime is driven: asks unless the task has answered within the last second, or the caller
    /// runs there itself.
    pub(crate) async fn is_there(&self) -> bool {
        if Handle::current().id() == self.home {
            return true;
        }
        let mut answers = self.answered.subscribe();
        if answers.borrow_and_update().elapsed() < FRESH {
            return true;
        }
        self.asked.notify_one();
        // The sender lives as long as `self`.
        timeout(PATIENCE, answers.changed()).await.is_ok()
    }

    /// Returns when the task answers no more.
    pub(crate) async fn stopped(&self) {
        while self.is_there().await {
            sleep(FRESH).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_task_answers_as_long_as_its_runtime_is_driven() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (home, elsewhere) = (runtime(), runtime());
        let pulse = home.block_on(async { Arc::new(Pulse::new()) });
        home.spawn({
            let pulse = pulse.clone();
            async move { pulse.answer().await }
        });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let driving = std::thread::spawn(move || {
            let _ = home.block_on(stopped);
            home
        });
        elsewhere.block_on(async {
            assert!(timeout(3 * FRESH, pulse.stopped()).await.is_err());
            drop(stop);
            pulse.stopped().await;
        });
        driving
            .join()
            .unwrap()
            .block_on(async { assert!(pulse.is_there().await) });
    }
}
