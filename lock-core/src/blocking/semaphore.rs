//! A name that a limited number may hold at a time.

use std::time::Duration;

use super::call::wait_for;
use super::guard::Guard;
use super::lock::Lock;
use crate::backend::LockStatus;
use crate::error::Result;

/// A counting semaphore, without async: see [`Semaphore`](crate::Semaphore). Owned and cheap to clone; made by
/// [`Locker::semaphore`](super::Locker::semaphore).
///
/// # Examples
/// ```
/// # use lock_core::{MemoryBackend, blocking::Locker};
/// # fn main() -> Result<(), lock_core::Error> {
/// let api = Locker::new(MemoryBackend::new()).semaphore("api", 2); // at most 2 calls at a time, of all processes
/// let first = api.acquire(1)?;
/// let second = api.acquire(1)?;
/// assert!(api.try_acquire(1)?.is_none());
/// first.release()?;
/// assert!(api.try_acquire(1)?.is_some());
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

    /// Acquires this many permits, however long that takes.
    ///
    /// # Errors
    /// Those of [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire(&self, take: u32) -> Result<Guard> {
        self.permits(take).acquire()
    }

    /// Acquires this many permits within `limit`.
    ///
    /// # Errors
    /// Those of [`Semaphore::acquire_within`](crate::Semaphore::acquire_within).
    pub fn acquire_within(&self, take: u32, limit: Duration) -> Result<Guard> {
        self.permits(take).acquire_within(limit)
    }

    /// Acquires this many permits if they are left and nobody waits for them, and returns `None` otherwise.
    ///
    /// # Errors
    /// Those of [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_acquire(&self, take: u32) -> Result<Option<Guard>> {
        self.permits(take).try_acquire()
    }

    /// Who holds permits and how many, as the server sees it. For people and dashboards: it may have changed when it arrives.
    ///
    /// # Errors
    /// Those of [`Semaphore::status`](crate::Semaphore::status).
    pub fn status(&self) -> Result<LockStatus> {
        let semaphore = self.0.clone();
        wait_for(async move { semaphore.status().await })
    }
}
