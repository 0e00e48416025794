//! The read side for a reader that may become the writer.

use std::ops::Deref;
use std::time::Duration;

use crate::acquire::shared::Shared;
use crate::acquire::upgrade::upgrade;
use crate::error::Result;
use crate::guard::{Guard, Release};
use crate::lock::Lock;
use crate::options::wait::WaitLimit;
use crate::sync::Arc;

/// The upgradable read side of a [`RwLock`](crate::RwLock), made by [`RwLock::upgradable`](crate::RwLock::upgradable). Owned
/// and cheap to clone.
///
/// Its holder reads beside other readers, and may [upgrade](UpgradableGuard::upgrade) to write. At most one such holder exists
/// at a time; a second one waits, though plain readers enter.
#[derive(Clone, Debug)]
pub struct UpgradableLock(Lock);

impl UpgradableLock {
    pub(super) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// Sets the TTL, as [`Lock::ttl`] does.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
    /// let guard = catalog.upgradable().ttl(Duration::from_secs(10)).acquire().await?;
    /// assert!(guard.valid_for() <= Duration::from_secs(9));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Sets a label, as [`Lock::label`] does.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let _guard = locks.rw_lock("catalog").upgradable().label("import").acquire().await?;
    /// assert_eq!(locks.status("catalog").await?.holders[0].label.as_deref(), Some("import"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn label(self, label: impl Into<Arc<str>>) -> Self {
        Self(self.0.label(label))
    }

    /// Keeps the lock for at most `maximum`, upgraded or not, as [`Lock::hold_at_most`] does.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, LostCause, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
    /// let mut guard = catalog.upgradable().hold_at_most(Duration::from_millis(50)).acquire().await?;
    /// guard.upgrade().await?;
    /// assert_eq!(guard.lost().await.cause(), LostCause::MaximumHold);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hold_at_most(self, maximum: Duration) -> Self {
        Self(self.0.hold_at_most(maximum))
    }

    /// Acquires the lock for reading, however long that takes.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// If it is dropped, what was sent is undone in the background.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
    /// let guard = catalog.upgradable().acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<UpgradableGuard> {
        Ok(self.guard(self.0.acquire().await?))
    }

    /// Acquires the lock for reading within `limit`, as [`Lock::acquire_within`] does.
    ///
    /// # Errors
    /// Those of [`Lock::acquire_within`].
    ///
    /// # Cancel safety
    /// If it is dropped, what was sent is undone in the background.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
    /// let _first = catalog.upgradable().acquire().await?;
    /// let second = catalog.upgradable().acquire_within(Duration::from_millis(10)).await;
    /// assert!(second.unwrap_err().is_timed_out());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, limit: Duration) -> Result<UpgradableGuard> {
        Ok(self.guard(self.0.acquire_within(limit).await?))
    }

    /// Acquires the lock for reading if that is possible now, and returns `None` otherwise.
    ///
    /// # Errors
    /// Those of [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// If it is dropped, what was sent is undone in the background.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
    /// let _guard = catalog.upgradable().try_acquire().await?.expect("nobody has it");
    /// assert!(catalog.upgradable().try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<UpgradableGuard>> {
        Ok(self.0.try_acquire().await?.map(|guard| self.guard(guard)))
    }

    fn guard(&self, guard: Guard) -> UpgradableGuard {
        UpgradableGuard {
            guard,
            shared: self.0.locker().shared().clone(),
        }
    }
}

/// A [`Guard`] of an [`UpgradableLock`]: it reads, and may become the writer in place.
///
/// After an upgrade, [`mode`](Guard::mode) is [`Exclusive`](crate::backend::Mode::Exclusive), and [`token`](Guard::token) is
/// a new one. Everything else goes on: [`lost`](Guard::lost), [`run`](Guard::run) and each [`Watch`](crate::Watch) see the
/// read and the write as one hold. A watch made before keeps the token of the read.
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

#[cfg(all(feature = "blocking", not(shuttle)))]
impl UpgradableGuard {
    pub(crate) fn from_parts(guard: Guard, shared: Arc<Shared>) -> Self {
        Self { guard, shared }
    }

    pub(crate) fn into_parts(self) -> (Guard, Arc<Shared>) {
        (self.guard, self.shared)
    }
}

impl UpgradableGuard {
    /// Goes from reading to writing in place, however long that takes: waits until the other readers have left. It passes all
    /// waiting writers. New readers wait behind it, except those that [share](super::RwLock) the hold of a reader in another
    /// process. Nobody writes between the read and the write, so what was read is still
    /// true. Does nothing if the guard writes already.
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`] if the hold was lost, also while this waits.
    /// - [`ErrorKind::Misconfigured`] if the guard was downgraded. It is then a plain reader.
    /// - [`ErrorKind::ShutDown`], and errors of the server that waiting cannot cure.
    ///
    /// After any error but `Lost` the guard still reads.
    ///
    /// [`ErrorKind::Lost`]: crate::ErrorKind::Lost
    /// [`ErrorKind::Misconfigured`]: crate::ErrorKind::Misconfigured
    /// [`ErrorKind::ShutDown`]: crate::ErrorKind::ShutDown
    ///
    /// # Cancel safety
    /// If it is dropped, the guard still reads. What was sent is undone in the background.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # use lock_core::backend::Mode;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
    /// let mut guard = catalog.upgradable().acquire().await?;
    /// let read = guard.token();
    /// guard.upgrade().await?;
    /// assert_eq!(guard.mode(), Mode::Exclusive);
    /// assert!(guard.token() > read);
    /// # Ok(()) }
    /// ```
    pub async fn upgrade(&mut self) -> Result<()> {
        self.wait(WaitLimit::Forever).await
    }

    /// Goes from reading to writing in place within `limit`. With a limit of zero it tries once. See
    /// [`upgrade`](Self::upgrade).
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`] if the server last answered that others hold the lock too.
    /// - [`ErrorKind::Unavailable`] if the last attempt failed or was not answered.
    /// - Those of [`upgrade`](Self::upgrade).
    ///
    /// After any error but `Lost` the guard still reads.
    ///
    /// [`ErrorKind::TimedOut`]: crate::ErrorKind::TimedOut
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    ///
    /// # Cancel safety
    /// If it is dropped, the guard still reads. What was sent is undone in the background.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{HoldState, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let (catalog, elsewhere) = (Locker::new(server.clone()).rw_lock("a"), Locker::new(server).rw_lock("a"));
    /// let mut guard = catalog.upgradable().acquire().await?;
    /// let _reader = elsewhere.read().acquire().await?;
    /// let error = guard.upgrade_within(Duration::from_millis(10)).await.unwrap_err();
    /// assert!(error.is_timed_out());
    /// assert_eq!(guard.state(), HoldState::Held); // it still reads
    /// # Ok(()) }
    /// ```
    pub async fn upgrade_within(&mut self, limit: Duration) -> Result<()> {
        self.wait(WaitLimit::Within(limit)).await
    }

    /// Goes from reading to writing in place if nobody else holds the lock, and returns `false` otherwise. See
    /// [`upgrade`](Self::upgrade).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the server did not answer within the locker's operation timeout, and those of
    /// [`upgrade`](Self::upgrade). After any error but `Lost` the guard still reads.
    ///
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    ///
    /// # Cancel safety
    /// If it is dropped, the guard still reads. What was sent is undone in the background.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
    /// let mut guard = catalog.upgradable().acquire().await?;
    /// assert!(guard.try_upgrade().await?); // no other reader is there
    /// # Ok(()) }
    /// ```
    pub async fn try_upgrade(&mut self) -> Result<bool> {
        upgrade(&self.shared, self.guard.share(), WaitLimit::Once).await
    }

    /// Goes from writing to reading in place, as [`Guard::downgrade`] does. Afterwards the guard is a plain reader: it cannot
    /// be upgraded again.
    ///
    /// # Errors
    /// Those of [`Guard::downgrade`], and [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) if the guard was not
    /// upgraded.
    ///
    /// # Cancel safety
    /// If it is dropped, the guard counts as shared.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # use lock_core::backend::Mode;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
    /// let mut guard = catalog.upgradable().acquire().await?;
    /// guard.upgrade().await?;
    /// guard.downgrade().await?;
    /// assert_eq!(guard.mode(), Mode::Shared);
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(&mut self) -> Result<()> {
        self.guard.downgrade().await
    }

    /// Releases the lock, as [`Guard::release`] does, whether it was upgraded or not.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// If it is dropped, the release finishes in the background.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.rw_lock("catalog").upgradable().acquire().await?;
    /// guard.release().await?;
    /// assert!(!locks.status("catalog").await?.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<Release> {
        self.guard.release().await
    }

    async fn wait(&mut self, wait: WaitLimit) -> Result<()> {
        let upgraded = upgrade(&self.shared, self.guard.share(), wait).await?;
        debug_assert!(upgraded, "whoever waits has it, or an error");
        Ok(())
    }
}
