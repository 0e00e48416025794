//! A name that many may read together and one may write alone.

use super::lock::Lock;
use super::upgradable::UpgradableLock;

/// A reader-writer lock, without async: see [`RwLock`](crate::RwLock). Owned and cheap to clone; made by
/// [`Locker::rw_lock`](super::Locker::rw_lock).
///
/// # Examples
/// ```
/// # use lock_core::{MemoryBackend, blocking::Locker};
/// # fn main() -> Result<(), lock_core::Error> {
/// let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
/// let reader = catalog.read().acquire()?;
/// assert!(catalog.write().try_acquire()?.is_none());
/// reader.release()?;
/// catalog.write().acquire()?.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock(crate::RwLock);

impl RwLock {
    pub(super) fn new(lock: crate::RwLock) -> Self {
        Self(lock)
    }

    /// The read side: its holders hold the name together.
    #[must_use]
    pub fn read(&self) -> Lock {
        Lock::new(self.0.read())
    }

    /// The write side: its holder holds the name alone.
    #[must_use]
    pub fn write(&self) -> Lock {
        Lock::new(self.0.write())
    }

    /// The read side for one reader at a time that may become the writer: see [`RwLock::upgradable`](crate::RwLock::upgradable).
    #[must_use]
    pub fn upgradable(&self) -> UpgradableLock {
        UpgradableLock::new(self.0.upgradable())
    }
}
