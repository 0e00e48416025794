//! A name that a limited number may hold at a time.

use std::time::Duration;

use crate::backend::{LockStatus, Mode, Permits};
use crate::error::Result;
use crate::guard::Guard;
use crate::lock::Lock;

/// A counting semaphore: any number of holders, as long as all their permits together are within the limit. Owned and cheap to
/// clone; made by [`Locker::semaphore`](crate::Locker::semaphore).
///
/// **A semaphore limits, it does not protect.** It keeps the number of concurrent calls down. A resource that breaks if one
/// too many enters needs an exclusive lock and its fencing token: permits have tokens too, but with several holders at a time
/// no resource can tell by them who is late. After the server has lost data, or its clock has been stepped forward, more
/// permits than the limit may be in use until the older ones have ended.
///
/// **Several permits** are acquired all at once or not at all. They are one hold, with one TTL and one token.
///
/// **Order.** All who wait stand in one queue at the server, if the backend is
/// [`fifo`](crate::backend::Capabilities::fifo). So a request for many permits is not starved by requests for few. Its price:
/// while it waits, those behind it wait too, although there may be permits left for them.
///
/// **The limit** is not stored at the server. Each request is admitted by its own limit, counting all permits in use. While
/// processes with two limits are about, as in a deployment, the total never exceeds the larger one. A request with the smaller
/// limit waits until the total is low enough, and holds back those behind it.
/// If a process states two limits for a name that it holds or waits for, polylock logs `semaphore limits differ`, once for
/// each pair.
///
/// The name is shared with all other modes: an exclusive [`lock`](crate::Locker::lock) of the same name waits until no permit
/// is in use, and keeps all permits back.
///
/// # Examples
/// ```
/// # use lock_core::{Locker, MemoryBackend};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// let api = Locker::new(MemoryBackend::new()).semaphore("api", 2); // at most 2 calls at a time, of all processes
/// let first = api.acquire(1).await?;
/// let second = api.acquire(1).await?;
/// assert!(api.try_acquire(1).await?.is_none());
/// first.release().await?;
/// assert!(api.try_acquire(1).await?.is_some());
/// # second.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    lock: Lock,
    limit: u32,
}

impl Semaphore {
    pub(crate) fn new(lock: Lock, limit: u32) -> Self {
        Self { lock, limit }
    }

    /// A lock whose holder has this many permits at once: for a TTL or a label of its own, and for
    /// [`acquire_all`](crate::acquire_all). Does no I/O; `acquire` reports a number that is 0 or above the limit.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let api = Locker::new(MemoryBackend::new()).semaphore("api", 10);
    /// let guard = api.permits(2).ttl(Duration::from_secs(10)).label("import").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn permits(&self, take: u32) -> Lock {
        let mode = Permits::new(take, self.limit).map(Mode::Permits);
        self.lock.clone().with_mode(mode)
    }

    /// Acquires this many permits, however long that takes. Short for `permits(take).acquire()`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) if `take` is 0 or above the limit, and those of
    /// [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// If it is dropped, what was sent is undone in the background.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let api = Locker::new(MemoryBackend::new()).semaphore("api", 10);
    /// let guard = api.acquire(1).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self, take: u32) -> Result<Guard> {
        self.permits(take).acquire().await
    }

    /// Acquires this many permits within `limit`. Short for `permits(take).acquire_within(limit)`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) if `take` is 0 or above the semaphore's limit, and those
    /// of [`Lock::acquire_within`].
    ///
    /// # Cancel safety
    /// If it is dropped, what was sent is undone in the background.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let api = Locker::new(MemoryBackend::new()).semaphore("api", 10);
    /// let _most = api.acquire(9).await?;
    /// let error = api.acquire_within(2, Duration::from_millis(10)).await.unwrap_err();
    /// assert!(error.is_timed_out());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, take: u32, limit: Duration) -> Result<Guard> {
        self.permits(take).acquire_within(limit).await
    }

    /// Acquires this many permits if they are left and nobody waits for them, and returns `None` otherwise. Short for
    /// `permits(take).try_acquire()`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) if `take` is 0 or above the limit, and those of
    /// [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// If it is dropped, what was sent is undone in the background.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let api = Locker::new(MemoryBackend::new()).semaphore("api", 1);
    /// let _guard = api.try_acquire(1).await?.expect("nobody has it");
    /// assert!(api.try_acquire(1).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self, take: u32) -> Result<Option<Guard>> {
        self.permits(take).try_acquire().await
    }

    /// Who holds permits and how many, as the server sees it. For people and dashboards: it may have changed when it arrives.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), or the error of the server.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # use lock_core::backend::Mode;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let api = Locker::new(MemoryBackend::new()).semaphore("api", 10);
    /// let _guard = api.acquire(3).await?;
    /// let Some(Mode::Permits(permits)) = api.status().await?.holders[0].mode else { panic!("it holds permits") };
    /// assert_eq!((permits.take(), permits.of()), (3, 10));
    /// # Ok(()) }
    /// ```
    pub async fn status(&self) -> Result<LockStatus> {
        self.lock.status().await
    }
}
