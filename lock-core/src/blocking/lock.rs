//! One lock, to be acquired as often as needed.

use std::time::Duration;

use super::call::wait_for;
use super::guard::Guard;
use crate::backend::options::LockOptions;
use crate::error::Result;
use crate::name::LockName;
use crate::reentry::ReentryKey;
use crate::sync::Arc;

/// A lock's name and options, without async: see [`Lock`](crate::Lock). Owned and cheap to clone; made by
/// [`Locker::lock`](super::Locker::lock).
///
/// Two guards of one exclusive `Lock` exclude each other, on the same thread as well. Threads that wait for one lock share one
/// queue entry at the server, and get it in the order in which they called.
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock);

impl Lock {
    pub(super) fn new(lock: crate::Lock) -> Self {
        Self(lock)
    }

    pub(super) fn into_inner(self) -> crate::Lock {
        self.0
    }

    /// Sets the TTL: see [`Lock::ttl`](crate::Lock::ttl). Defaults to that of the locker.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Sets a label: see [`Lock::label`](crate::Lock::label). Defaults to that of the locker.
    #[must_use]
    pub fn label(self, label: impl Into<Arc<str>>) -> Self {
        Self(self.0.label(label))
    }

    /// Never renews the hold: see [`Lock::fixed_lease`](crate::Lock::fixed_lease). Off by default.
    #[must_use]
    pub fn fixed_lease(self) -> Self {
        Self(self.0.fixed_lease())
    }

    /// Keeps the name taken for at least `minimum`: see [`Lock::hold_at_least`](crate::Lock::hold_at_least). Off by default.
    #[must_use]
    pub fn hold_at_least(self, minimum: Duration) -> Self {
        Self(self.0.hold_at_least(minimum))
    }

    /// Keeps the lock for at most `maximum`, so that hung work cannot keep it for ever: see
    /// [`Lock::hold_at_most`](crate::Lock::hold_at_most). Off by default.
    ///
    /// The loss stops no thread: one that hangs goes on beside the next holder when it wakes up, and only a fence rejects
    /// what it writes then.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{LostCause, MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("report").hold_at_most(Duration::from_millis(50)).acquire()?;
    /// let lost = guard.wait_lost(Duration::from_secs(10))?.expect("it hung");
    /// assert_eq!(lost.cause(), LostCause::MaximumHold);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hold_at_most(self, maximum: Duration) -> Self {
        Self(self.0.hold_at_most(maximum))
    }

    /// Shares the hold of a caller that acquired with the same key: see [`ReentryKey`]. Off by default.
    #[must_use]
    pub fn reentrant(self, key: &ReentryKey) -> Self {
        Self(self.0.reentrant(key))
    }

    /// The lock's name, or `None` if it was invalid.
    pub fn name(&self) -> Option<&LockName> {
        self.0.name()
    }

    /// The options that an acquire of this lock runs with.
    pub fn options(&self) -> LockOptions {
        self.0.options()
    }

    /// Acquires the lock, however long that takes.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").acquire()?;
    /// guard.release()?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Result<Guard> {
        let lock = self.0.clone();
        wait_for(async move { Ok(Guard::new(lock.acquire().await?)) })
    }

    /// Acquires the lock within `limit`, connecting included. With a limit of zero it tries once, and waits for the
    /// server's answer for up to the locker's operation timeout.
    ///
    /// # Errors
    /// Those of [`Lock::acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let lock = locks.lock("a");
    /// let _guard = lock.acquire()?;
    /// let error = lock.acquire_within(Duration::from_millis(10)).unwrap_err();
    /// assert!(error.is_timed_out());
    /// # Ok(()) }
    /// ```
    pub fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        let lock = self.0.clone();
        wait_for(async move { Ok(Guard::new(lock.acquire_within(limit).await?)) })
    }

    /// Acquires the lock if it is free, and returns `None` if it is taken.
    ///
    /// Bind the guard: `if let Some(guard) = lock.try_acquire()? { .. }` holds the lock in the block, `.is_some()` does not.
    ///
    /// # Errors
    /// Those of [`Lock::try_acquire`](crate::Lock::try_acquire).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").try_acquire()?;
    /// assert!(guard.is_some());
    /// assert!(locks.lock("a").try_acquire()?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        let lock = self.0.clone();
        wait_for(async move { Ok(lock.try_acquire().await?.map(Guard::new)) })
    }

    /// Acquires the lock however long that takes, runs `work`, and releases the lock. If `work` panics, the release is posted.
    ///
    /// Nothing can stop a thread: let `work` [check](Guard::check) the guard before each step that must not be done twice.
    ///
    /// # Errors
    /// - Those of [`acquire`](Self::acquire); `work` was not run.
    /// - [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock was lost before `work` returned: somebody else may have had it meanwhile. What `work`
    ///   returned is dropped.
    ///
    /// If only the release fails, the lock counted as held all the time: the result is returned, and the lock frees itself within the TTL.
    /// The result is also returned if the server does not answer to the release before the lease ends.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// # let write = |_part, _token| {};
    /// let written = locks.lock("report").with(|held| {
    ///     for part in 0..3 {
    ///         held.check()?;
    ///         write(part, held.token());
    ///     }
    ///     Ok::<_, Error>(3)
    /// })??; // not acquired or lost; failed
    /// # assert_eq!(written, 3);
    /// # Ok(()) }
    /// ```
    pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        run_and_release(self.acquire()?, work)
    }

    /// Acquires the lock within `limit`, runs `work`, and releases the lock: see [`with`](Self::with). The limit ends with
    /// the acquire.
    ///
    /// # Errors
    /// Those of [`acquire_within`](Self::acquire_within) and of [`with`](Self::with).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let lock = Locker::new(MemoryBackend::new()).lock("a");
    /// let token = lock.with_within(Duration::from_secs(5), |held| held.token())?;
    /// # let _ = token;
    /// # Ok(()) }
    /// ```
    pub fn with_within<T>(&self, limit: Duration, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        run_and_release(self.acquire_within(limit)?, work)
    }
}

fn run_and_release<T>(guard: Guard, work: impl FnOnce(&Guard) -> T) -> Result<T> {
    let result = work(&guard);
    // `work` may have forked: then the hold is the parent's.
    guard.check_process()?;
    match guard.release() {
        Err(error) if error.is_lost() => Err(error),
        _ => Ok(result),
    }
}
