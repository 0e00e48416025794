//! A name that a limited number may hold at a time.

use super::lock::Lock;

/// A counting semaphore, without async: see [`Semaphore`](crate::Semaphore). Owned and cheap to clone; made by
/// [`Locker::semaphore`](super::Locker::semaphore).
///
/// # Examples
/// ```
/// # use lock_core::{MemoryBackend, blocking::Locker};
/// # fn main() -> Result<(), lock_core::Error> {
/// let api = Locker::new(MemoryBackend::new()).semaphore("api", 2); // at most 2 calls at a time, of all processes
/// let first = api.permits(1).acquire()?;
/// let second = api.permits(1).acquire()?;
/// assert!(api.permits(1).try_acquire()?.is_none());
/// first.release()?;
/// assert!(api.permits(1).try_acquire()?.is_some());
/// # second.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore(crate::Semaphore);

impl Semaphore {
    pub(super) fn new(semaphore: crate::Semaphore) -> Self {
        Self(semaphore)
    }

    /// A lock whose holder has this many permits at once: see [`Semaphore::permits`](crate::Semaphore::permits).
    #[must_use]
    pub fn permits(&self, take: u32) -> Lock {
        Lock::new(self.0.permits(take))
    }
}
