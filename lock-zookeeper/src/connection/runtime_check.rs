//! Checks whether anybody drives the runtime on which a session is kept.

use std::convert::Infallible;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

/// How long an answer counts.
const FRESH: Duration = Duration::from_secs(1);
/// How long a runtime may be busy with something else.
const RESPONSE_LIMIT: Duration = Duration::from_millis(1500);

/// A request to the task that keeps a session. The task responds as soon as its runtime runs it.
#[derive(Debug)]
pub(crate) struct RuntimeCheck {
    /// The task's runtime.
    home: Id,
    requested: Notify,
    responded: watch::Sender<Instant>,
}

impl RuntimeCheck {
    /// For a task on the runtime of the caller.
    pub(crate) fn new() -> Self {
        Self {
            home: Handle::current().id(),
            requested: Notify::new(),
            responded: watch::Sender::new(Instant::now()),
        }
    }

    /// Responds to every request.
    pub(crate) async fn respond(&self) -> Infallible {
        loop {
            self.requested.notified().await;
            self.respond_now();
        }
    }

    /// Responds without a request.
    pub(crate) fn respond_now(&self) {
        self.responded.send_replace(Instant::now());
    }

    /// Whether the task's runtime is driven: asks unless the task has responded within the last second, or the caller
    /// runs there itself.
    pub(crate) async fn is_driven(&self) -> bool {
        if Handle::current().id() == self.home {
            return true;
        }
        let mut answers = self.responded.subscribe();
        if answers.borrow_and_update().elapsed() < FRESH {
            return true;
        }
        self.requested.notify_one();
        // The sender lives as long as `self`.
        timeout(RESPONSE_LIMIT, answers.changed()).await.is_ok()
    }

    /// Returns when the task no longer responds.
    pub(crate) async fn undriven(&self) {
        while self.is_driven().await {
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
        let runtime_check = home.block_on(async { Arc::new(RuntimeCheck::new()) });
        home.spawn({
            let runtime_check = runtime_check.clone();
            async move { runtime_check.respond().await }
        });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let driving = std::thread::spawn(move || {
            let _ = home.block_on(stopped);
            home
        });
        elsewhere.block_on(async {
            assert!(timeout(FRESH * 3 / 2, runtime_check.undriven()).await.is_err());
            drop(stop);
            runtime_check.undriven().await;
        });
        driving
            .join()
            .unwrap()
            .block_on(async { assert!(runtime_check.is_driven().await) });
    }
}
