//! Calls of the backend: shielded from its panics, and able to outlive their caller.

use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, FutureExt};

use crate::error::{Error, ErrorKind, Result};
use crate::runtime;
use crate::sync::RuntimeId;

/// A call that outlives its caller, on the runtime on which it began; one that panicked is gone.
pub(crate) struct BackendCall<T> {
    future: Option<BoxFuture<'static, Result<T>>>,
    /// The runtime on which the call began: its timers and sockets belong to that one.
    runtime: Option<RuntimeId>,
    pub(crate) is_over: bool,
}

impl<T> BackendCall<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self {
            future: Some(Box::pin(future)),
            runtime: runtime::current_id(),
            is_over: false,
        }
    }

    /// One that was answered, to leave instead of another.
    pub(crate) fn over() -> Self {
        Self {
            future: None,
            runtime: None,
            is_over: true,
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        // Taken out while it is polled, so that a panic takes it along.
        let Some(mut future) = self.future.take() else {
            return Poll::Pending;
        };
        let answer = future.as_mut().poll(context);
        match answer {
            Poll::Pending => self.future = Some(future),
            Poll::Ready(_) => self.is_over = true,
        }
        answer
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.future.is_some()
    }

    /// Whether the call began on the current runtime.
    pub(crate) fn is_here(&self) -> bool {
        self.runtime == runtime::current_id()
    }

    /// The rest of the call, if it can continue on the current runtime.
    pub(crate) fn into_future_here(self) -> Option<BoxFuture<'static, Result<T>>> {
        let is_here = self.is_here();
        self.future.filter(|_| is_here)
    }
}

/// A panic of the backend is one more unknown outcome.
pub(crate) async fn shielded<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(call)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(panicked()))
}

pub(crate) fn panicked() -> Error {
    Error::new(ErrorKind::Unexpected, "the backend panicked").retryable(true)
}
