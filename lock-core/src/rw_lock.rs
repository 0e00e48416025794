//! A name that many may read together and one may write alone.

use self::upgradable::UpgradableLock;
use crate::backend::Mode;
use crate::lock::Lock;
use crate::locker::Locker;

pub(crate) mod upgradable;

/// A reader-writer lock: any number of readers hold it together, and a writer holds it alone. Owned and cheap to clone; made by
/// [`Locker::rw_lock`](crate::Locker::rw_lock).
///
/// The write side *is* the exclusive lock of the same name: [`write`](Self::write) and
/// [`Locker::lock`](crate::Locker::lock) exclude each other and all readers.
///
/// **Nobody starves.** All who wait stand in one queue at the server, if the backend is
/// [`fifo`](crate::backend::Capabilities::fifo). Readers that wait side by side enter together. A reader that comes after a
/// waiting writer waits behind it, with two exceptions, since readers of one process share a hold:
///
/// - A reader may join a hold of its process, before a writer that waits in another process.
/// - Readers of one process that wait have one place in the queue, that of the first.
///
/// Both are for at most 16 readers of a hold ([`with_passes`](crate::Locker::with_passes)), and joins are for the first third of
/// its TTL.
///
/// **Reading again.** A task with a read guard that acquires another one may wait for itself, behind a writer that waits for the
/// first. With a [`ReentryKey`](crate::ReentryKey) it does not.
///
/// **Fencing.** Readers have tokens too, each larger than all earlier tokens of the name. The protected resource must see both
/// kinds: a writer must not go on after a reader with a larger token has read, nor a reader after a writer with a larger token
/// has written.
///
/// **No plain read guard is upgraded.** Two readers that wait to become writers would wait for each other. At most one guard
/// of [`upgradable`](Self::upgradable) exists at a time.
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

impl Locker {
    /// The reader-writer lock with this name. Does no I/O; `acquire` reports an invalid name, and a backend without shared holds.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.rw_lock("catalog").read().acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.lock(name))
    }
}

impl RwLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// The read side: its holders hold the name together.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let catalog = locks.rw_lock("catalog");
    /// let guard = catalog.read().ttl(Duration::from_secs(10)).acquire().await?;
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn read(&self) -> Lock {
        self.0.clone().with_mode(Ok(Mode::Shared))
    }

    /// The write side: its holder holds the name alone.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.rw_lock("catalog").write().acquire().await?;
    /// assert!(locks.lock("catalog").try_acquire().await?.is_none()); // the same lock
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn write(&self) -> Lock {
        self.0.clone()
    }

    /// The read side for one reader at a time that may become the writer, without letting another writer in between. Other
    /// readers hold the name beside it.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// # let is_stale = || true;
    /// let mut guard = locks.rw_lock("catalog").upgradable().acquire().await?;
    /// if is_stale() {
    ///     guard.upgrade().await?; // waits until the other readers have left
    ///     // write
    /// }
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn upgradable(&self) -> UpgradableLock {
        UpgradableLock::new(self.0.clone().with_mode(Ok(Mode::Upgradable)))
    }
}
