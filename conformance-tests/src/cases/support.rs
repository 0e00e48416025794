//! What several cases need.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::job::write_number;
use crate::verdict::{OrFail, Stop};

/// Long enough for others to run meanwhile.
pub(crate) const LITTLE: Duration = Duration::from_millis(2);

/// Polls a future so many times at the most, and then drops it unfinished.
pub(crate) struct Polls<F> {
    future: Pin<Box<F>>,
    left: u32,
}

impl<F> Polls<F> {
    pub(crate) fn new(future: F, polls: u32) -> Self {
        Self {
            future: Box::pin(future),
            left: polls,
        }
    }
}

impl<F: Future> Future for Polls<F> {
    /// `None`: it was not done after that many polls.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// A file that is gone with this value.
#[derive(Debug)]
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    pub(crate) fn with_number(number: u64) -> Result<Self, Stop> {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let file = format!(
            "conformance-{}-{}",
            std::process::id(),
            FILES.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(file);
        write_number(&path, number).or_fail("write the counter")?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Only a leftover in the directory for leftovers, where it fails.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether a future is still pending after this time.
pub(crate) async fn is_pending<F: Future + Unpin>(future: &mut F, time: Duration) -> bool {
    tokio::time::timeout(time, future).await.is_err()
}
