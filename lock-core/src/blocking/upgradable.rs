//! The read side for a reader that may become the writer.

use std::ops::Deref;
use std::time::Duration;

use super::call::wait_for;
use super::guard::Guard;
use crate::acquire::shared::Shared;
use crate::acquire::upgrade::upgrade;
use crate::error::Result;
use crate::guard::Release;
use crate::options::wait::WaitLimit;
use crate::sync::Arc;

/// The upgradable read side of a [`RwLock`](super::RwLock), without async: see [`UpgradableLock`](crate::UpgradableLock). Owned
/// and cheap to clone.
#[derive(Clone, Debug)]
pub struct UpgradableLock(crate::UpgradableLock);

impl UpgradableLock {
    pub(super) fn new(lock: crate::UpgradableLock) -> Self {
        Self(lock)
    }

    /// Sets the TTL, as [`Lock::ttl`](super::Lock::ttl) does.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Sets a label, as [`Lock::label`](super::Lock::label) does.
    #[must_use]
    pub fn label(self, label: impl Into<Arc<str>>) -> Self {
        Self(self.0.label(label))
    }

    /// Keeps the lock for at most `maximum`, upgraded or not, as [`Lock::hold_at_most`](super::Lock::hold_at_most) does.
    #[must_use]
    pub fn hold_at_most(self, maximum: Duration) -> Self {
        Self(self.0.hold_at_most(maximum))
    }

    /// Acquires the lock for reading, however long that takes.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`](super::Lock::acquire).
    pub fn acquire(&self) -> Result<UpgradableGuard> {
        let lock = self.0.clone();
        wait_for(async move { Ok(UpgradableGuard::new(lock.acquire().await?)) })
    }

    /// Acquires the lock for reading within `limit`.
    ///
    /// # Errors
    /// Those of [`Lock::acquire_within`](super::Lock::acquire_within).
    pub fn acquire_within(&self, limit: Duration) -> Result<UpgradableGuard> {
        let lock = self.0.clone();
        wait_for(async move { Ok(UpgradableGuard::new(lock.acquire_within(limit).await?)) })
    }

    /// Acquires the lock for reading if that is possible now, and returns `None` otherwise.
    ///
    /// # Errors
    /// Those of [`Lock::try_acquire`](super::Lock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<UpgradableGuard>> {
        let lock = self.0.clone();
        wait_for(async move { Ok(lock.try_acquire().await?.map(UpgradableGuard::new)) })
    }
}

/// A [`Guard`] of an [`UpgradableLock`]: it reads, and may become the writer in place. See
/// [`UpgradableGuard`](crate::UpgradableGuard).
///
/// # Examples
/// ```
/// # use lock_core::{MemoryBackend, blocking::Locker};
/// # use lock_core::backend::Mode;
/// # fn main() -> Result<(), lock_core::Error> {
/// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
/// let mut guard = catalog.upgradable().acquire()?;
/// let read = guard.token();
/// guard.upgrade()?; // waits until the other readers have left
/// assert_eq!(guard.mode(), Mode::Exclusive);
/// assert!(guard.token() > read);
/// guard.release()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a lock is released when its guard is dropped"]
pub struct UpgradableGuard {
    guard: Guard,
    shared: Arc<Shared>,
}

impl Deref for UpgradableGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl crate::UpgradableGuard {
    /// The same hold for code without async: see [`Guard::into_blocking`](crate::Guard::into_blocking). Needs the feature
    /// `blocking`.
    ///
    /// # Errors
    /// Those of [`Guard::into_blocking`](crate::Guard::into_blocking). The guard is then dropped.
    pub fn into_blocking(self) -> Result<UpgradableGuard> {
        let (guard, shared) = self.into_parts();
        let guard = guard.into_blocking()?;
        Ok(UpgradableGuard { guard, shared })
    }
}

impl UpgradableGuard {
    fn new(guard: crate::UpgradableGuard) -> Self {
        let (guard, shared) = guard.into_parts();
        let guard = Guard::new(guard);
        Self { guard, shared }
    }

    /// The same hold for async code.
    pub fn into_async(self) -> crate::UpgradableGuard {
        crate::UpgradableGuard::from_parts(self.guard.into_async(), self.shared)
    }

    /// Goes from reading to writing in place, however long that takes: see
    /// [`UpgradableGuard::upgrade`](crate::UpgradableGuard::upgrade).
    ///
    /// # Errors
    /// Those of [`UpgradableGuard::upgrade`](crate::UpgradableGuard::upgrade). After any error but `Lost` the guard still reads.
    pub fn upgrade(&mut self) -> Result<()> {
        self.ask(WaitLimit::Forever).map(drop)
    }

    /// Goes from reading to writing in place within `limit`. With a limit of zero it tries once.
    ///
    /// # Errors
    /// Those of [`UpgradableGuard::upgrade_within`](crate::UpgradableGuard::upgrade_within). After any error but `Lost` the
    /// guard still reads.
    pub fn upgrade_within(&mut self, limit: Duration) -> Result<()> {
        self.ask(WaitLimit::Within(limit)).map(drop)
    }

    /// Goes from reading to writing in place if nobody else holds the lock, and returns `false` otherwise.
    ///
    /// # Errors
    /// Those of [`UpgradableGuard::try_upgrade`](crate::UpgradableGuard::try_upgrade). After any error but `Lost` the guard
    /// still reads.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let catalog = locks.rw_lock("catalog");
    /// let mut guard = catalog.upgradable().acquire()?;
    /// let reader = catalog.read().acquire()?;
    /// assert!(!guard.try_upgrade()?); // somebody else reads
    /// reader.release()?;
    /// assert!(guard.try_upgrade()?);
    /// guard.release()?;
    /// # Ok(()) }
    /// ```
    pub fn try_upgrade(&mut self) -> Result<bool> {
        self.ask(WaitLimit::Once)
    }

    /// Goes from writing to reading in place, as [`Guard::downgrade`] does. Afterwards the guard is a plain reader.
    ///
    /// # Errors
    /// Those of [`UpgradableGuard::downgrade`](crate::UpgradableGuard::downgrade).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let catalog = locks.rw_lock("catalog");
    /// let mut guard = catalog.upgradable().acquire()?;
    /// guard.upgrade()?;
    /// guard.downgrade()?; // nobody has written in between
    /// let reader = catalog.read().acquire()?;
    /// # reader.release()?;
    /// guard.release()?;
    /// # Ok(()) }
    /// ```
    pub fn downgrade(&mut self) -> Result<()> {
        self.guard.downgrade()
    }

    /// Releases the lock, as [`Guard::release`] does, whether it was upgraded or not.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    pub fn release(self) -> Result<Release> {
        self.guard.release()
    }

    fn ask(&mut self, wait: WaitLimit) -> Result<bool> {
        let (shared, guard) = (self.shared.clone(), self.guard.lend());
        wait_for(async move { upgrade(&shared, guard.share(), wait).await })
    }
}
