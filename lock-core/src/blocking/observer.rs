//! Observers of an election, without async.

use std::time::Duration;

use super::call::wait_for;
use crate::election::observer::Leader;
use crate::error::Result;
use crate::sync::Arc;
use crate::sync::time::timeout;

/// Follows the leaders of an election, without async: see [`Observer`](crate::Observer). Made by
/// [`Election::observe`](super::Election::observe).
#[derive(Debug)]
pub struct Observer {
    /// A call uses it on polylock's thread, and its caller waits meanwhile.
    observer: Arc<tokio::sync::Mutex<crate::Observer>>,
    latest: Option<Leader>,
}

impl Observer {
    pub(super) fn new(observer: crate::Observer) -> Self {
        Self {
            observer: Arc::new(tokio::sync::Mutex::new(observer)),
            latest: None,
        }
    }

    /// Waits for a leader of a later term than any that this observer has returned: see
    /// [`Observer::changed`](crate::Observer::changed).
    ///
    /// # Errors
    /// Those of [`Observer::changed`](crate::Observer::changed).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let term = locks.election("scheduler").value("node-1").campaign()?;
    /// let mut seen = locks.election("scheduler").observe();
    /// assert_eq!(seen.changed()?.value(), Some("node-1"));
    /// term.resign()?;
    /// # Ok(()) }
    /// ```
    pub fn changed(&mut self) -> Result<Leader> {
        let observer = self.observer.clone();
        let leader = wait_for(async move { observer.lock().await.changed().await })?;
        Ok(self.latest.insert(leader).clone())
    }

    /// Waits for at most `limit` for a leader of a later term. `None` if there is none by then.
    ///
    /// # Errors
    /// Those of [`changed`](Self::changed).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let mut seen = locks.election("scheduler").observe();
    /// assert!(seen.changed_within(Duration::from_millis(10))?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn changed_within(&mut self, limit: Duration) -> Result<Option<Leader>> {
        let observer = self.observer.clone();
        let changed = async move {
            let mut observer = observer.lock().await;
            timeout(limit, observer.changed()).await.ok().transpose()
        };
        let leader = wait_for(changed)?;
        if let Some(leader) = &leader {
            self.latest = Some(leader.clone());
        }
        Ok(leader)
    }

    /// The leader that was returned last.
    pub fn current(&self) -> Option<&Leader> {
        self.latest.as_ref()
    }
}
