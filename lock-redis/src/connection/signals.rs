//! Signals between callers and a supervisor, which may be on different runtimes.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// If a supervisor does not respond within this time, nobody drives its runtime.
pub(super) const RESPONSE_TIME: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct Signals {
    dial_requested: Notify,
    called: Notify,
    responses: AtomicU64,
}

impl Signals {
    /// Requests a try to connect.
    pub(super) fn request_dial(&self) {
        self.dial_requested.notify_one();
    }

    /// Waits until somebody requests a try to connect.
    pub(super) async fn dial_requested(&self) {
        self.dial_requested.notified().await;
    }

    /// Forgets the requests until now: the try that begins now is for them.
    pub(super) fn clear_requests(&self) {
        pin!(self.dial_requested.notified()).enable();
    }

    /// Whether the supervisor responds. The caller waits on its own timer, so that a pause of the whole process does not
    /// count.
    pub(super) async fn responds(&self) -> bool {
        let before = self.responses.load(Ordering::SeqCst);
        self.called.notify_one();
        sleep(RESPONSE_TIME).await;
        self.responses.load(Ordering::SeqCst) != before
    }

    /// Responds to every caller. The supervisor polls it all the time.
    pub(super) async fn respond(&self) -> Infallible {
        loop {
            self.called.notified().await;
            self.responses.fetch_add(1, Ordering::SeqCst);
        }
    }
}
