//! A name that many may read together and one may write alone.

use crate::backend::Mode;
use crate::lock::Lock;

/// A reader-writer lock: any number of readers hold it together, and a writer holds it alone. Owned and cheap to clone; made by
/// [`Locker::rw_lock`](crate::Locker::rw_lock).
///
/// The write side *is* the exclusive lock of the same name: [`write`](Self::write) and
/// [`Locker::lock`](crate::Locker::lock) exclude each other and all readers.
///
/// # Examples
/// ```
/// # use lock_core::{Locker, MemoryBackend};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
/// let reader = catalog.read().acquire().await?;
/// assert!(catalog.write().try_acquire().await?.is_none());
/// reader.release().await?;
/// catalog.write().acquire().await?.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock(Lock);

impl RwLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// The read side: its holders hold the name together.
    #[must_use]
    pub fn read(&self) -> Lock {
        self.0.clone().with_mode(Ok(Mode::Shared))
    }

    /// The write side: its holder holds the name alone.
    #[must_use]
    pub fn write(&self) -> Lock {
        self.0.clone()
    }
}
