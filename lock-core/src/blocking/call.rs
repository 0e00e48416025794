//! A call that a thread waits for, while polylock's own thread does it.

use std::sync::mpsc::{Receiver, sync_channel};

use tokio::task::AbortHandle;
use tracing::Instrument;

use super::thread;
use crate::error::{Error, ErrorKind, Result};

/// Has polylock's thread do this, and waits for its end.
pub(super) fn wait_for<T: Send + 'static>(future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    Call::start(future)?.wait()?
}

/// A future on polylock's thread. If its caller unwinds before it has ended, it is dropped there, which undoes it.
pub(super) struct Call<T> {
    result: Receiver<T>,
    task: AbortHandle,
}

impl<T: Send + 'static> Call<T> {
    pub(super) fn start(future: impl Future<Output = T> + Send + 'static) -> Result<Self> {
        // Not one of tokio's channels, which refuse to block inside async code.
        let (sender, result) = sync_channel(1);
        let done = async move {
            // If the caller has gone, the result is dropped here: a guard releases its lock.
            let _ = sender.send(future.await);
        };
        let task = thread::runtime()?.spawn(done.in_current_span()).abort_handle();
        Ok(Self { result, task })
    }

    pub(super) fn wait(self) -> Result<T> {
        self.result.recv().map_err(|_| {
            let message = "the call panicked on the thread `polylock`";
            Error::new(ErrorKind::Unexpected, message)
        })
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        // Does nothing to one that has ended.
        self.task.abort();
    }
}
