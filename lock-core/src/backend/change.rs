//! The signal that a name may have changed hands.

use std::fmt;
use std::future::pending;

use futures_util::future::BoxFuture;

/// Completes when a name may have changed hands since the answer with which it came: see
/// [`DistributedLock::follow`](super::DistributedLock::follow). Keeps no connection and no session alive.
///
/// It may complete although nothing has changed, and it may miss a change. An observer that needs every change also
/// polls.
pub struct Change(BoxFuture<'static, ()>);

impl Change {
    /// A change that completes with this future.
    pub fn new(happens: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(happens))
    }

    /// A change that never completes, for backends that are not notified.
    pub fn never() -> Self {
        Self::new(pending())
    }

    /// Waits until the name may have changed hands. Do not call it again after that: ask the server.
    ///
    /// # Cancel safety
    /// May be dropped at any point, and called again.
    pub async fn happened(&mut self) {
        self.0.as_mut().await;
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").finish_non_exhaustive()
    }
}
