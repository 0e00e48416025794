//! A lock server as an application sees it.

use std::fmt;
use std::time::Duration;

use crate::acquire::shared::Shared;
use crate::backend::lease::HoldState;
use crate::backend::options::LockOptions;
use crate::backend::{Capabilities, Change, DistributedLock, LockStatus};
use crate::backend_state::BackendState;
use crate::background::runner::ensure_running;
use crate::error::{Error, ErrorKind, Result};
use crate::guarantee::Required;
use crate::label::default_label;
use crate::lock::Lock;
use crate::name::LockName;
use crate::observe::{self, BackendRequest};
use crate::options::CheckedLock;
use crate::options::limits::Limits;
use crate::own_hold::OwnHold;
use crate::runtime;
use crate::sync::Arc;
use crate::sync::time::timeout;
use crate::time::within;

mod guarantees;
mod list;
mod options;
mod revoke;

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the locks of one backend. Cheap to clone: an application keeps one.
///
/// # Runtimes
/// A locker may be used from any number of Tokio runtimes, and it outlives each of them. Its background work (renewals,
/// releases of dropped guards) runs on one of the runtimes that acquired a lock. If that runtime ends, the work moves to
/// another one at once. On MySQL and ZooKeeper, a hold also ends with the runtime on which its connection or session runs: see
/// their pages. If nothing drives that runtime (a current-thread runtime outside `block_on`), the work moves
/// within 1.5 s. If no runtime is driven, nothing is renewed until the next acquire. A hold that expires meanwhile says so:
/// see [`Lost::error`](crate::Lost::error). The event `hold lost` is recorded once a runtime is driven again, or by the release.
///
/// An acquire or release runs in the task that awaits it. On a runtime that is not driven it makes no progress, and other
/// callers that wait for the same name wait behind it.
///
/// # Forks
/// A locker belongs to the process that made it. In a forked child, every use of it returns
/// [`ErrorKind::Misconfigured`], since its connections and its background work belong to the parent. Make a new
/// runtime and a new locker in the child.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use lock_core::{Locker, MemoryBackend};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// let locks = Locker::new(MemoryBackend::new()).with_label("worker 7");
/// let lock = locks.lock("orders/42").ttl(Duration::from_secs(10));
/// let guard = lock.acquire_within(Duration::from_secs(5)).await?;
/// assert!(lock.try_acquire().await?.is_none());
/// guard.release().await?;
/// locks.shutdown().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locker {
    shared: Arc<Shared>,
    /// Those of its locks, unless they set their own.
    options: LockOptions,
    /// Whether the user chose the TTL. If not, `connect` does not check it: the user may still set a better one.
    ttl_is_chosen: bool,
    limits: Limits,
    required: Option<Arc<Required>>,
}

impl Locker {
    /// A locker for this backend. Does no I/O.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new());
    /// locks.lock("a").acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn new(backend: impl DistributedLock) -> Self {
        Self::from_backend(Arc::new(backend))
    }

    /// A locker for a shared backend. Does no I/O.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use lock_core::backend::DistributedLock;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let backend: Arc<dyn DistributedLock> = Arc::new(MemoryBackend::new());
    /// let (ours, theirs) = (Locker::from_backend(backend.clone()), Locker::from_backend(backend));
    /// let _guard = ours.lock("a").acquire().await?;
    /// assert!(theirs.lock("a").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn from_backend(backend: Arc<dyn DistributedLock>) -> Self {
        observe::describe();
        let limits = Limits::new(backend.capabilities());
        Self {
            shared: Arc::new(Shared::new(BackendState::new(backend))),
            options: LockOptions {
                label: Some(default_label()),
                ..LockOptions::default()
            },
            ttl_is_chosen: false,
            limits,
            required: None,
        }
    }

    /// Returns what the backend can do beyond the minimum.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// assert!(locks.capabilities().extend);
    /// # Ok(()) }
    /// ```
    pub fn capabilities(&self) -> Capabilities {
        self.shared.backend.capabilities
    }

    /// Connects to the server. Checks that the backend can keep locks with this locker's TTL and label, and that the server keeps
    /// what is [required](Self::require). Optional: the first acquire connects and checks as well; but only this compares the nodes of a
    /// quorum, with each other and with those of other processes. A TTL that was not chosen by [`with_ttl`](Self::with_ttl) is checked by
    /// the acquires alone, so that you may choose it after connecting.
    ///
    /// As long as no connection was ever made, an acquire that cannot connect fails. After the first connection, acquires
    /// wait through outages, up to their time limit.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Denied`] or [`ErrorKind::Misconfigured`]. The message says what to do.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// locks.connect().await?; // at start-up, so that a wrong setting shows at once
    /// # Ok(()) }
    /// ```
    pub async fn connect(&self) -> Result<()> {
        self.shared.check_open()?;
        self.shared.keeper.check_process()?;
        runtime::current()?;
        if self.ttl_is_chosen {
            self.limits.check_own_ttl(self.options.ttl)?;
        }
        if let Some(label) = &self.options.label {
            Limits::check_label(label)?;
        }
        self.limits.check_operation_timeout()?;
        let backend = &self.shared.backend;
        backend.lock.connect().await?;
        backend.note_reached();
        // Asked in any case: it may warn.
        let checked = backend.lock.check_ttl(self.options.ttl);
        if self.ttl_is_chosen {
            checked?;
        }
        backend.check_required(self.required.as_ref())
    }

    /// The lock with this name, which may be acquired any number of times. Does no I/O; `acquire` reports an invalid name.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.clone(), LockName::new(name), self.options.clone())
    }

    /// Returns the holders of this name and their modes, as the server sees them. For people and dashboards: the answer
    /// may be outdated when it arrives.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], or the error of the server.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # use lock_core::backend::Mode;
    /// # let locks = Locker::new(MemoryBackend::new());
    /// assert!(!locks.status("orders/42").await?.is_held());
    /// let _guard = locks.rw_lock("catalog").read().acquire().await?;
    /// assert_eq!(locks.status("catalog").await?.holders[0].mode, Some(Mode::Shared));
    /// # Ok(()) }
    /// ```
    pub async fn status(&self, name: impl AsRef<str>) -> Result<LockStatus> {
        let name = LockName::new(name)?;
        self.ask(&name, self.shared.backend.lock.status(&name)).await
    }

    /// The same, and what completes when this may have changed.
    pub(crate) async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        self.ask(name, self.shared.backend.lock.follow(name)).await
    }

    /// The server's answer to a question about who holds a name.
    async fn ask<T>(&self, name: &LockName, asking: impl Future<Output = Result<T>>) -> Result<T> {
        self.shared.keeper.check_process()?;
        runtime::current()?;
        observe::requested(BackendRequest::Status);
        self.answered(asking).await.map_err(|error| error.about(name))
    }

    /// The server's answer, which comes within the operation timeout.
    async fn answered<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = timeout(self.limits.operation_timeout, request)
            .await
            .unwrap_or_else(|_| {
                let message = format!(
                    "the lock server did not answer {}",
                    within(self.limits.operation_timeout)
                );
                Err(Error::new(ErrorKind::Unavailable, message))
            })?;
        self.shared.backend.note_reached();
        Ok(answer)
    }

    /// Returns the holds of this locker and its clones, in the order of their names. Sends nothing. A hold that was
    /// lost, or whose release has begun, is not listed.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] in a forked child: the holds are its parent's.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// for hold in locks.holds()? {
    ///     println!("{} with token {}, for {:?}", hold.name, hold.token, hold.held_for);
    /// }
    /// # assert_eq!(locks.holds()?[0].token, guard.token());
    /// # Ok(()) }
    /// ```
    pub fn holds(&self) -> Result<Vec<OwnHold>> {
        self.shared.keeper.check_process()?;
        let mut holds = self.shared.keeper.holds();
        holds.retain(|hold| !matches!(hold.state, HoldState::Lost(_)));
        holds.sort_by(|one, other| (&one.name, one.token).cmp(&(&other.name, other.token)));
        Ok(holds)
    }

    /// Refuses new acquires, ends waiting ones, and waits until all background work is done: the releases of dropped
    /// guards and the clean-up of cancelled acquires. Guards that are still held are renewed as before. Then closes the
    /// backend's sessions that carry nothing, and waits for the server's answer.
    ///
    /// Does not wait for guards that are still held. A Tokio task that was aborted keeps its guards until its `JoinHandle` has
    /// returned. So await the handles of aborted tasks first, or call `JoinSet::shutdown`.
    ///
    /// Call it at the end of `main`: a runtime that ends stops the background work.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if not all work was done within 10 s, or if a session could not be closed within another
    /// 10 s. The rest goes on, and you may call it again.
    /// [`ErrorKind::Misconfigured`] outside a Tokio runtime.
    ///
    /// # Cancel safety
    /// If it is dropped, the locker stays shut down and the work goes on.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{ErrorKind, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// drop(locks.lock("a").acquire().await?); // released in the background
    /// locks.shutdown().await?; // waits for that
    /// assert_eq!(locks.lock("a").acquire().await.unwrap_err().kind(), ErrorKind::ShutDown);
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self) -> Result<()> {
        self.shared.keeper.check_process()?;
        self.shared.close();
        ensure_running(&self.shared.keeper)?;
        let keeper = &self.shared.keeper;
        let drained = timeout(SHUTDOWN_TIMEOUT, keeper.drained()).await;
        if drained.is_err()
            && let Some(unfinished) = unfinished(keeper.pending())
        {
            return Err(Error::new(ErrorKind::Unavailable, unfinished));
        }
        timeout(SHUTDOWN_TIMEOUT, self.shared.backend.lock.close())
            .await
            .unwrap_or_else(|_| {
                let message = format!("the server did not answer within {SHUTDOWN_TIMEOUT:?} that a session is closed");
                Err(Error::new(ErrorKind::Unavailable, message))
            })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// # Errors
    /// If an acquire with these options can never succeed, whatever the server keeps.
    pub(crate) fn checked(&self, name: LockName, options: LockOptions) -> Result<CheckedLock> {
        // First: in a forked child, what the backend knows of the server may be locked for ever. The acquire relies on it.
        self.shared.keeper.check_process()?;
        CheckedLock::new(name, options, self.limits, self.required.clone())
    }
}

/// What a shutdown has waited for in vain; `None` if it ended just now.
fn unfinished(pending: (usize, usize)) -> Option<String> {
    let what = match pending {
        (0, 0) => return None,
        (locks, 0) => format!("locks not released: {locks}; they end with their ttl"),
        (0, calls) => format!("acquires and releases neither polled to the end nor dropped: {calls}"),
        (locks, calls) => format!(
            "locks not released: {locks}; they end with their ttl; acquires and releases neither polled to the end nor dropped: {calls}"
        ),
    };
    Some(format!("not finished within {SHUTDOWN_TIMEOUT:?}: {what}"))
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker")
            .field("backend", &self.shared.backend.lock)
            .finish_non_exhaustive()
    }
}
