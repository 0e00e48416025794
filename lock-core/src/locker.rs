//! A lock server as an application sees it.

use std::fmt;
use std::time::Duration;

use crate::acquire::limits::Limits;
use crate::acquire::shared::Shared;
use crate::backend::{Capabilities, DistributedLock, LockStatus};
use crate::backend_state::BackendState;
use crate::background::runner::ensure_running;
use crate::error::{Error, ErrorKind, Result};
use crate::label::default_label;
use crate::lock::Lock;
use crate::name::LockName;
use crate::observe::{self, BackendRequest};
use crate::runtime;
use crate::sync::Arc;
use crate::sync::time::timeout;

const DEFAULT_TTL: Duration = Duration::from_secs(30);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_HAND_OVERS: u32 = 16;
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes locks of one backend. Cheap to clone; an application keeps one.
///
/// # Runtimes
/// It may be used from any number of tokio runtimes, and outlives each of them. Its background work runs on one runtime
/// that acquired. If that runtime ends, the work moves to another one at once; if nobody drives it (a current-thread
/// runtime outside `block_on`), within 1.5 s. If none of them is driven, nothing is renewed until the next acquire.
/// An acquire or release that a task awaits runs in that task: on a runtime that is not driven it stands still, and those
/// who wait behind it for the same name wait on.
///
/// # Forks
/// A locker belongs to the process that made it. After a fork, every use of it in the child is an error of the kind
/// [`ErrorKind::Misconfigured`]: its connections and its background work are the parent's. Make a locker, and a
/// runtime, in the child.
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
    ttl: Duration,
    label: Option<Arc<str>>,
    connect_timeout: Duration,
    hand_overs: u32,
}

impl Locker {
    /// A locker over this backend. Does no I/O.
    pub fn new(backend: impl DistributedLock) -> Self {
        Self::from_backend(Arc::new(backend))
    }

    /// A locker over a backend that is shared.
    pub fn from_backend(backend: Arc<dyn DistributedLock>) -> Self {
        observe::describe();
        Self {
            shared: Arc::new(Shared::new(BackendState::new(backend))),
            ttl: DEFAULT_TTL,
            label: Some(default_label()),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            hand_overs: DEFAULT_HAND_OVERS,
        }
    }

    /// Sets how long a hold of this locker may survive its process. Defaults to 30 s.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets a label, shown to anyone who asks who holds a lock: at most 255 bytes. Defaults to `host:pid`.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new()).with_label("worker 7");
    /// let _guard = locks.lock("a").acquire().await?;
    /// assert_eq!(locks.status("a").await?.holders[0].label.as_deref(), Some("worker 7"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Stores no label with the locks, so that nobody learns the name of this host.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new()).without_label();
    /// let _guard = locks.lock("a").acquire().await?;
    /// assert_eq!(locks.status("a").await?.holders[0].label, None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn without_label(mut self) -> Self {
        self.label = None;
        self
    }

    /// Sets how long to wait for a server that does not answer: the whole of a `try_acquire`, a status, and a release
    /// that its caller waits for. Defaults to 5 s. How long reaching the server may take is the backend's own setting.
    #[must_use]
    pub fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets how many times in a row a lock passes from one waiter of this process to the next without being offered to
    /// waiters elsewhere. Defaults to 16; 0 offers it at every release. More is faster where many tasks of one process
    /// want one lock, and lets other processes wait longer.
    #[must_use]
    pub fn with_hand_overs(mut self, at_most: u32) -> Self {
        self.hand_overs = at_most;
        self
    }

    /// What the backend promises beyond the minimum.
    pub fn capabilities(&self) -> Capabilities {
        self.shared.backend.capabilities
    }

    /// Reaches the server, or says why not. Optional: the first acquire does it as well.
    ///
    /// Until the server has been reached once, an acquire fails when it cannot be; from then on it outlasts outages
    /// for as long as it may wait. A connection that was made and cut again counts.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Denied`] or [`ErrorKind::Misconfigured`], with what to do.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn connect(&self) -> Result<()> {
        self.shared.check_open()?;
        self.shared.keeper.check_process()?;
        runtime::current()?;
        self.shared.backend.lock.connect().await?;
        self.shared.backend.note_reached();
        Ok(())
    }

    /// A lock of this name, to be acquired as often as needed. Does no I/O; a bad name is told by the acquire.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.clone(), LockName::new(name), self.ttl, self.label.clone())
    }

    /// Who has this name, as the server sees it: for people, not for decisions.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], or what the server says.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn status(&self, name: impl AsRef<str>) -> Result<LockStatus> {
        let name = LockName::new(name)?;
        self.shared.keeper.check_process()?;
        runtime::current()?;
        observe::requested(BackendRequest::Status);
        let status = timeout(self.connect_timeout, self.shared.backend.lock.status(&name))
            .await
            .unwrap_or_else(|_| {
                let message = format!("the lock server did not answer within {:?}", self.connect_timeout);
                Err(Error::new(ErrorKind::Unavailable, message))
            });
        let status = status.map_err(|error| error.about(&name))?;
        self.shared.backend.note_reached();
        Ok(status)
    }

    /// Refuses new acquires, ends those that wait, and waits until all that was left to the background is done:
    /// releases of dropped guards and acquires to be undone. Guards that are still held go on being renewed.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when not all was done within 10 s: the rest goes on, and it may be called again.
    /// [`ErrorKind::Misconfigured`] outside a tokio runtime.
    ///
    /// # Cancel safety
    /// When it is dropped the locker stays shut down.
    pub async fn shutdown(&self) -> Result<()> {
        self.shared.keeper.check_process()?;
        self.shared.close();
        ensure_running(&self.shared.keeper)?;
        timeout(SHUTDOWN_TIMEOUT, self.shared.keeper.drained())
            .await
            .map_err(|_| {
                let pending = self.shared.keeper.pending();
                let message =
                    format!("{pending} locks were not given back within {SHUTDOWN_TIMEOUT:?}; they end with their ttl");
                Error::new(ErrorKind::Unavailable, message)
            })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            capabilities: self.shared.backend.capabilities,
            patience: self.connect_timeout,
            hand_overs: self.hand_overs,
        }
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker")
            .field("backend", &self.shared.backend.lock)
            .finish_non_exhaustive()
    }
}
