//! What callers say to a supervisor, perhaps on another runtime: that they want a connection, or whether it is there.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// So soon a supervisor answers, unless nobody drives its runtime.
pub(super) const MOMENT: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct Signals {
    wanted: Notify,
    called: Notify,
    answers: AtomicU64,
}

impl Signals {
    /// Somebody waits for a try to connect.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Returns as soon as somebody waits for a try to connect.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whoever waited until now is served by the try that begins now.
    pub(super) fn begin_to_serve(&self) {
        pin!(self.wanted.notified()).enable();
    }

    /// Whether the supervisor is there. It may have been kept from answering while this process stood still, so it is
    /// the caller's own time that counts.
    pub(super) async fn is_answered(&self) -> bool {
        let before = self.answers.load(Ordering::SeqCst);
        self.called.notify_one();
        sleep(MOMENT).await;
        self.answers.load(Ordering::SeqCst) != before
    }

    /// Answers for as long as it is polled.
    pub(super) async fn answer(&self) -> Infallible {
        loop {
            self.called.notified().await;
            self.answers.fetch_add(1, Ordering::SeqCst);
        }
    }
}
