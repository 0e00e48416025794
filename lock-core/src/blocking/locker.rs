//! A lock server as an application without async sees it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::call::wait_for;
use super::election::Election;
use super::lock::Lock;
use super::rw_lock::RwLock;
use super::semaphore::Semaphore;
use crate::backend::{Capabilities, DistributedLock, ListFrom, ListPage, LockStatus, Revoke, Revoked};
use crate::error::Result;
use crate::guarantee::{Guarantee, Verdict};
use crate::own_hold::OwnHold;
use crate::sync::Arc;
use crate::token::FencingToken;

/// Makes the locks of one backend, without async: see [`Locker`](crate::Locker). Cheap to clone: an application keeps one.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use lock_core::MemoryBackend;
/// use lock_core::blocking::Locker;
///
/// # fn main() -> Result<(), lock_core::Error> {
/// let locks = Locker::new(MemoryBackend::new()).with_label("worker 7");
/// let lock = locks.lock("orders/42").ttl(Duration::from_secs(10));
/// let guard = lock.acquire_within(Duration::from_secs(5))?;
/// assert!(lock.try_acquire()?.is_none());
/// guard.release()?;
/// locks.shutdown()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locker(crate::Locker);

impl crate::Locker {
    /// The same locker without async. Both share the backend, the queue of this process and the background work. Needs
    /// the feature `blocking`.
    ///
    /// Connections stay on the runtime that made them until it ends, or is not driven. So if blocking calls stop a
    /// current-thread runtime, connect for them apart: holds that are bound to a connection or session may be lost.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new()).blocking();
    /// locks.lock("a").acquire()?.release()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn blocking(&self) -> Locker {
        Locker(self.clone())
    }
}

impl Locker {
    /// A locker for this backend: see [`Locker::new`](crate::Locker::new). Does no I/O.
    pub fn new(backend: impl DistributedLock) -> Self {
        Self(crate::Locker::new(backend))
    }

    /// A locker for a shared backend: see [`Locker::from_backend`](crate::Locker::from_backend). Does no I/O.
    pub fn from_backend(backend: Arc<dyn DistributedLock>) -> Self {
        Self(crate::Locker::from_backend(backend))
    }

    /// The same locker for async code.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.to_async().lock("a").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn to_async(&self) -> crate::Locker {
        self.0.clone()
    }

    /// Sets the TTL, 30 s by default: see [`with_ttl`](crate::Locker::with_ttl).
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self(self.0.with_ttl(ttl))
    }

    /// Sets a label, `host:pid` by default: see [`with_label`](crate::Locker::with_label).
    #[must_use]
    pub fn with_label(self, label: impl Into<Arc<str>>) -> Self {
        Self(self.0.with_label(label))
    }

    /// Stores no label with the locks: see [`without_label`](crate::Locker::without_label).
    #[must_use]
    pub fn without_label(self) -> Self {
        Self(self.0.without_label())
    }

    /// Sets the operation timeout, 5 s by default: see [`with_operation_timeout`](crate::Locker::with_operation_timeout).
    #[must_use]
    pub fn with_operation_timeout(self, limit: Duration) -> Self {
        Self(self.0.with_operation_timeout(limit))
    }

    /// Sets how many times in a row a lock may pass between threads of this process, up to 16, which is the default: see
    /// [`with_passes`](crate::Locker::with_passes).
    #[must_use]
    pub fn with_passes(self, at_most: u32) -> Self {
        Self(self.0.with_passes(at_most))
    }

    /// Grants only tokens above `floor`, none by default: see [`with_token_floor`](crate::Locker::with_token_floor).
    #[must_use]
    pub fn with_token_floor(self, floor: FencingToken) -> Self {
        Self(self.0.with_token_floor(floor))
    }

    /// Requires that the server keeps these guarantees: see [`require`](crate::Locker::require).
    #[must_use]
    pub fn require(self, guarantees: impl IntoIterator<Item = Guarantee>) -> Self {
        Self(self.0.require(guarantees))
    }

    /// Takes an operator's word for these guarantees where the server cannot be asked: see
    /// [`trusting`](crate::Locker::trusting).
    #[must_use]
    pub fn trusting(self, guarantees: impl IntoIterator<Item = Guarantee>) -> Self {
        Self(self.0.trusting(guarantees))
    }

    /// Says of each guarantee whether the server keeps it: see [`guarantees`](crate::Locker::guarantees).
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), but for a guarantee that is missed.
    pub fn guarantees(&self) -> Result<Vec<(Guarantee, Verdict)>> {
        let locker = self.0.clone();
        wait_for(async move { locker.guarantees().await })
    }

    /// Returns what the backend can do beyond the minimum.
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    /// Connects to the server, and checks the settings: see [`Locker::connect`](crate::Locker::connect). Optional, but for a
    /// quorum: the first acquire connects and checks as well.
    ///
    /// # Errors
    /// Those of [`Locker::connect`](crate::Locker::connect).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// locks.connect()?; // at start-up, so that a wrong setting shows at once
    /// # Ok(()) }
    /// ```
    pub fn connect(&self) -> Result<()> {
        let locker = self.0.clone();
        wait_for(async move { locker.connect().await })
    }

    /// The lock with this name, which may be acquired any number of times. Does no I/O; `acquire` reports an invalid name.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.0.lock(name))
    }

    /// The reader-writer lock with this name: see [`Locker::rw_lock`](crate::Locker::rw_lock). Does no I/O.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.0.rw_lock(name))
    }

    /// The semaphore with this name, of at most `limit` permits: see [`Locker::semaphore`](crate::Locker::semaphore). Does
    /// no I/O.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore::new(self.0.semaphore(name, limit))
    }

    /// The election with this name: see [`Locker::election`](crate::Locker::election). Does no I/O.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.0.election(name))
    }

    /// Returns the holders of this name, as the server sees them. For people and dashboards: the answer may be outdated
    /// when it arrives.
    ///
    /// # Errors
    /// Those of [`Locker::status`](crate::Locker::status).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// assert!(!locks.status("orders/42")?.is_held());
    /// # Ok(()) }
    /// ```
    pub fn status(&self, name: impl AsRef<str>) -> Result<LockStatus> {
        let (locker, name) = (self.0.clone(), name.as_ref().to_owned());
        wait_for(async move { locker.status(name).await })
    }

    /// A page of the names that somebody holds or waits for: see [`Locker::list`](crate::Locker::list).
    ///
    /// # Errors
    /// Those of [`Locker::list`](crate::Locker::list).
    pub fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let (locker, from) = (self.0.clone(), from.clone());
        wait_for(async move { locker.list(&from, at_most).await })
    }

    /// Ends the hold of this name with this token, whoever has it: see [`Locker::revoke`](crate::Locker::revoke).
    ///
    /// # Errors
    /// Those of [`Locker::revoke`](crate::Locker::revoke).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # use lock_core::backend::{Revoke, Revoked};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").acquire()?;
    /// let revoked = locks.revoke("a", guard.token(), Revoke::Now)?;
    /// assert!(matches!(revoked, Revoked::Done { .. }));
    /// assert!(guard.check().is_err());
    /// # Ok(()) }
    /// ```
    pub fn revoke(&self, name: impl AsRef<str>, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let (locker, name) = (self.0.clone(), name.as_ref().to_owned());
        wait_for(async move { locker.revoke(name, token, how).await })
    }

    /// Returns the holds of this locker and its clones: see [`Locker::holds`](crate::Locker::holds). Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) in a forked child.
    pub fn holds(&self) -> Result<Vec<OwnHold>> {
        self.0.holds()
    }

    /// Refuses new acquires, ends waiting ones, and waits for the releases of dropped guards: see
    /// [`Locker::shutdown`](crate::Locker::shutdown). Call it at the end of `main`, or use [`scope`](Self::scope).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if not all work was done within 10 s, or if a session could
    /// not be closed within another 10 s. The rest goes on, and you may call it again.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{ErrorKind, MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// drop(locks.lock("a").acquire()?); // its release is posted
    /// locks.shutdown()?; // waits for that
    /// assert_eq!(locks.lock("a").acquire().unwrap_err().kind(), ErrorKind::ShutDown);
    /// # Ok(()) }
    /// ```
    pub fn shutdown(&self) -> Result<()> {
        let locker = self.0.clone();
        wait_for(async move { locker.shutdown().await })
    }

    /// Runs `work` with this locker, and [shuts it down](Self::shutdown) afterwards, also if `work` panics. So no lock of a
    /// guard that was dropped in it stays taken when the process ends.
    ///
    /// # Errors
    /// Those of [`shutdown`](Self::shutdown). What `work` returned is dropped then.
    ///
    /// # Panics
    /// Panics if `work` panics, after the shutdown.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), Error> {
    /// Locker::new(MemoryBackend::new()).scope(|locks| {
    ///     let _guard = locks.lock("a").acquire()?;
    ///     Ok::<_, Error>(()) // the guard is dropped, and its release is posted
    /// })?
    /// # }
    /// ```
    pub fn scope<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T> {
        // The panic goes on, so nothing that it left broken is seen.
        let done = catch_unwind(AssertUnwindSafe(|| work(&self)));
        let shut_down = self.shutdown();
        match done {
            Ok(result) => shut_down.map(|()| result),
            Err(panic) => resume_unwind(panic),
        }
    }
}
