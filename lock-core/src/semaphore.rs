//! A name that a limited number may hold at a time.

use crate::backend::{Mode, Permits};
use crate::lock::Lock;
use crate::locker::Locker;

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
/// let first = api.permits(1).acquire().await?;
/// let second = api.permits(1).acquire().await?;
/// assert!(api.permits(1).try_acquire().await?.is_none());
/// first.release().await?;
/// assert!(api.permits(1).try_acquire().await?.is_some());
/// # second.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    lock: Lock,
    limit: u32,
}

impl Locker {
    /// The semaphore with this name, whose holders together take at most `limit` permits. Does no I/O; `acquire` reports an
    /// invalid name, and a backend without semaphores.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let two = locks.semaphore("api", 10).permits(2).acquire().await?;
    /// two.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore::new(self.lock(name), limit)
    }
}

impl Semaphore {
    pub(crate) fn new(lock: Lock, limit: u32) -> Self {
        Self { lock, limit }
    }

    /// A lock whose holder has this many permits at once. Does no I/O. Its `acquire` fails as
    /// [`Misconfigured`](crate::ErrorKind::Misconfigured) if the number is 0 or above the limit.
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
}
