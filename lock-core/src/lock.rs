//! One lock, to be acquired as often as needed.

use std::time::Duration;

use crate::acquire::acquire;
use crate::backend::options::LockOptions;
use crate::backend::{Change, LockStatus, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::locker::Locker;
use crate::name::LockName;
use crate::options::CheckedLock;
use crate::options::wait::WaitLimit;
use crate::reentry::ReentryKey;
use crate::sync::Arc;

/// A lock's name and options. Owned and cheap to clone; made by [`Locker::lock`].
///
/// Every acquire is a separate hold, unless it shares one: by a [`ReentryKey`], or as one of several readers of this process.
/// So two guards of one exclusive `Lock` exclude each other.
///
/// An acquire that is neither polled nor dropped keeps its entry in this process's queue, and blocks the callers behind it.
/// Do not keep one while you await something else.
#[derive(Clone, Debug)]
pub struct Lock {
    locker: Locker,
    name: Result<LockName>,
    options: LockOptions,
    /// Why the mode is invalid, if it is.
    mode_error: Option<Error>,
}

impl Lock {
    pub(crate) fn new(locker: Locker, name: Result<LockName>, options: LockOptions) -> Self {
        Self {
            locker,
            name,
            options,
            mode_error: None,
        }
    }

    /// The same lock in another mode.
    pub(crate) fn with_mode(mut self, mode: Result<Mode>) -> Self {
        match mode {
            Ok(mode) => self.options.mode = mode,
            Err(error) => self.mode_error = Some(error),
        }
        self
    }

    /// The same lock, whose token anybody can learn from the server while it is held.
    pub(crate) fn with_token_shown(mut self) -> Self {
        self.options.shows_token = true;
        self
    }

    /// Sets the TTL: how long the lock stays taken after its process died. Defaults to that of the locker. While the process
    /// lives, the lock is renewed every third of the TTL.
    ///
    /// On ZooKeeper and with PostgreSQL's `strategy=session`, the session timeout of the backend counts instead: the lock lasts as
    /// long as its session, and heartbeats of the session renew it. A shorter TTL is refused, and a longer one keeps the lock no
    /// longer. Only a [fixed lease](Self::fixed_lease) ends after its TTL there.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").ttl(Duration::from_secs(10)).acquire().await?;
    /// assert!(guard.valid_for() <= Duration::from_secs(9)); // a tenth less, since clocks differ
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Sets a label, shown to anyone who asks who holds the lock: at most 255 bytes, of which a quorum
    /// shows 245. Defaults to that of the locker.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let lock = locks.lock("a").label("nightly report");
    /// let _guard = lock.acquire().await?;
    /// let error = lock.acquire_within(Duration::ZERO).await.unwrap_err();
    /// assert_eq!(error.holder(), Some("nightly report"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.options.label = Some(label.into());
        self
    }

    /// Never renews the hold: unless released before, it is lost after its TTL, less a tenth. Off by default.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, LostCause, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").ttl(Duration::from_millis(50)).fixed_lease().acquire().await?;
    /// assert_eq!(guard.lost().await.cause(), LostCause::Expired); // after 45 ms
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fixed_lease(mut self) -> Self {
        self.options.fixed_lease = true;
        self
    }

    /// Keeps the name taken for at least `minimum` after the acquire, even if the guard is released earlier or the process
    /// exits. For a job that every host starts at the same time by its own clock, and that must run once. A release still
    /// returns at once. Off by default.
    ///
    /// If the process dies, the name stays taken for the longer of TTL and minimum. Needs the capability
    /// [`minimum_hold`](crate::backend::Capabilities::minimum_hold) of the backend.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let lock = locks.lock("nightly report").hold_at_least(Duration::from_secs(60));
    /// lock.acquire().await?.release().await?; // the job took no time
    /// assert!(lock.try_acquire().await?.is_none()); // another host comes a second later
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hold_at_least(mut self, minimum: Duration) -> Self {
        self.options.minimum_hold = Some(minimum);
        self
    }

    /// Keeps the lock for at most `maximum` after it was acquired, so that hung work cannot keep it for ever. If the guard
    /// is not released by then, it is lost with [`LostCause::MaximumHold`](crate::LostCause::MaximumHold): renewals stop, and
    /// the name is released at the server. If the server does not answer then, the name frees itself within the TTL.
    /// Off by default.
    ///
    /// The loss stops no work by itself: run the work with [`Guard::run`]. A thread that hangs goes on beside the next holder
    /// when it wakes up, and only a fence rejects what it writes then.
    ///
    /// The time counts by this process's clock, from the grant. Guards that share a hold by a [`ReentryKey`] share its
    /// maximum too, and an upgrade or downgrade does not begin it anew. A reader with a maximum has a hold of its own.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, LostCause, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let lock = locks.lock("report").hold_at_most(Duration::from_millis(50));
    /// let guard = lock.acquire().await?;
    /// let hung = std::future::pending::<()>();
    /// assert_eq!(guard.run(hung).await.unwrap_err().cause(), LostCause::MaximumHold);
    /// lock.acquire().await?.release().await?; // the next one has it
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hold_at_most(mut self, maximum: Duration) -> Self {
        self.options.maximum_hold = Some(maximum);
        self
    }

    /// Shares the hold of a caller that acquired with the same key, instead of waiting for it. Off by default. Holders of one
    /// key do not exclude each other: see [`ReentryKey`].
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend, ReentryKey};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let lock = locks.lock("a").reentrant(&ReentryKey::new());
    /// let outer = lock.acquire().await?;
    /// let inner = lock.acquire().await?; // does not wait
    /// assert_eq!(inner.token(), outer.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reentrant(mut self, key: &ReentryKey) -> Self {
        self.options.reentry_key = Some(key.clone());
        self
    }

    /// The lock's name, or `None` if it was invalid.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// assert_eq!(locks.lock("a").name().unwrap().as_str(), "a");
    /// assert!(locks.lock("").name().is_none());
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> Option<&LockName> {
        self.name.as_ref().ok()
    }

    /// The options that an acquire of this lock runs with.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let options = locks.lock("a").fixed_lease().options();
    /// assert!(options.fixed_lease);
    /// assert_eq!(options.ttl.as_secs(), 30); // the locker's default
    /// # Ok(()) }
    /// ```
    pub fn options(&self) -> LockOptions {
        self.options.clone()
    }

    /// Acquires the lock, however long that takes.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if no connection to the server was ever made. Otherwise errors that waiting cannot cure:
    /// [`ErrorKind::Denied`], [`ErrorKind::Misconfigured`], [`ErrorKind::InvalidName`], [`ErrorKind::Unsupported`],
    /// [`ErrorKind::ShutDown`], and [`ErrorKind::Unexpected`] if the server or the backend breaks the protocol.
    ///
    /// # Cancel safety
    /// If it is dropped, what was sent is undone in the background. [`Locker::shutdown`] waits for that.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Guard> {
        self.wait(WaitLimit::Forever).await
    }

    /// Acquires the lock within `limit`, connecting included. With a limit of zero it tries once, and waits for the server's
    /// answer for up to the locker's operation timeout.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`] if the server last answered that the lock is taken. [`Error::holder`] is the holder's label,
    ///   if known.
    /// - [`ErrorKind::Unavailable`] if the last attempt failed or was not answered, or if the connection over which it waits
    ///   is down. [`Error::cause`] says why.
    /// - The errors of [`acquire`](Self::acquire).
    ///
    /// A web service answers 409 to the first and 503 to the second.
    ///
    /// # Cancel safety
    /// If it is dropped, what was sent is undone in the background. [`Locker::shutdown`] waits for that.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let lock = locks.lock("a");
    /// let _guard = lock.acquire().await?;
    /// let error = lock.acquire_within(Duration::from_millis(10)).await.unwrap_err();
    /// assert!(error.is_timed_out());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        self.wait(WaitLimit::Within(limit)).await
    }

    /// Acquires the lock if it is free, and returns `None` if it is taken.
    ///
    /// Bind the guard: `if let Some(guard) = lock.try_acquire().await? { .. }` holds the lock in the block. With
    /// `if lock.try_acquire().await?.is_some() { .. }` it is released before the block begins, as the guard is a temporary value of
    /// the condition.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the server did not answer within the locker's operation timeout, and the errors of
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// If it is dropped, what was sent is undone in the background. [`Locker::shutdown`] waits for that.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// # async fn send_the_report() {}
    /// let lock = locks.lock("report");
    /// if let Some(guard) = lock.try_acquire().await? {
    ///     send_the_report().await;
    ///     assert!(lock.try_acquire().await?.is_none()); // it is taken
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        let share = acquire(self.locker.shared(), &self.checked()?, WaitLimit::Once).await?;
        Ok(share.map(Guard::new))
    }

    /// Returns the holders of the lock, as the server sees them.
    pub(crate) async fn status(&self) -> Result<LockStatus> {
        self.locker.status(self.name.as_ref().map_err(Error::clone)?).await
    }

    /// The same, and what completes when this may have changed.
    pub(crate) async fn follow(&self) -> Result<(LockStatus, Change)> {
        self.locker.follow(self.name.as_ref().map_err(Error::clone)?).await
    }

    pub(crate) async fn wait(&self, limit: WaitLimit) -> Result<Guard> {
        let share = acquire(self.locker.shared(), &self.checked()?, limit).await?;
        let given_up = || Error::new(ErrorKind::Unexpected, "the backend gave up waiting");
        share.map(Guard::new).ok_or_else(given_up)
    }

    pub(crate) fn locker(&self) -> &Locker {
        &self.locker
    }

    /// # Errors
    /// If it can never be acquired, or not together with others.
    pub(crate) fn check_in_plan(&self) -> Result<()> {
        let lock = self.checked()?;
        if lock.options.minimum_hold.is_some() {
            // Given back unused, it would stay taken.
            let message = "a minimum hold cannot be acquired together with other locks: leave out `hold_at_least`";
            return Err(Error::new(ErrorKind::Misconfigured, message).with_name(&lock.name));
        }
        if lock.options.maximum_hold.is_some() {
            // It would count from the first grant, and be over while the next lock is waited for, again and again.
            let message = "a maximum hold cannot be acquired together with other locks: leave out `hold_at_most`";
            return Err(Error::new(ErrorKind::Misconfigured, message).with_name(&lock.name));
        }
        Ok(())
    }

    /// # Errors
    /// If it can never be acquired.
    pub(crate) fn check(&self) -> Result<()> {
        self.checked().map(drop)
    }

    fn checked(&self) -> Result<CheckedLock> {
        let name = self.name.clone()?;
        if let Some(error) = &self.mode_error {
            return Err(error.clone());
        }
        self.locker.checked(name, self.options.clone())
    }
}
