//! Signals between callers and a supervisor, which may be on different runtimes.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// A supervisor that has not answered after this time is not driven.
pub(super) const MOMENT: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct Signals {
    wanted: Notify,
    called: Notify,
    answers: AtomicU64,
}

impl Signals {
    /// Asks for a try to connect.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Waits until somebody asks for a try to connect.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Forgets who asked until now: the try that begins now is theirs.
    pub(super) fn begin_to_serve(&self) {
        pin!(self.wanted.notified()).enable();
    }

    /// Whether the supervisor answers. The caller waits on its own timer, so that a pause of the whole process does not
    /// count.
    pub(super) async fn is_answered(&self) -> bool {
        let before = self.answers.load(Ordering::SeqCst);
        self.called.notify_one();
        sleep(MOMENT).await;
        self.answers.load(Ordering::SeqCst) != before
    }

    /// Answers every caller. The supervisor polls it all the time.
    pub(super) async fn answer(&self) -> Infallible {
        loop {
            self.called.notified().await;
            self.answers.fetch_add(1, Ordering::SeqCst);
        }
    }
}
