//! The guard of a lock, for a thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::call::wait_for;
use super::thread;
use crate::backend::Mode;
use crate::backend::lease::{Ended, HoldState};
use crate::backend::options::LockOptions;
use crate::background::runner::ensure_running;
use crate::error::Result;
use crate::guard::Release;
use crate::lost::Lost;
use crate::name::LockName;
use crate::observe;
use crate::sync::Arc;
use crate::sync::time::timeout;
use crate::token::FencingToken;
use crate::watch::Watch;

/// A lock that is held, without async: see [`Guard`](crate::Guard). The thread `polylock` renews it until it is released,
/// dropped or lost.
///
/// # Drop
/// Dropping the guard posts its release and returns: it never waits and never panics. The lock is free as soon as the server
/// has got the release. [`release`](Self::release) waits for that, and reports whether the lock was held until then.
#[derive(Debug)]
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard(
    /// A call on polylock's thread has a clone of it, but no longer than its caller waits.
    Arc<crate::Guard>,
);

impl crate::Guard {
    /// The same hold for code without async. From here on the thread `polylock` renews it if the runtime of before
    /// ends or is not driven. Blocks until that thread knows of the hold. Needs the feature `blocking`.
    ///
    /// On MySQL and ZooKeeper, the hold stays bound to a connection or session, which ends with the runtime that made it. A
    /// blocking call stops a current-thread runtime, and such a hold may then be lost.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) in a forked child;
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the thread cannot be started. The guard is then dropped.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").acquire().await?.into_blocking()?;
    /// std::thread::spawn(move || guard.release()).join().unwrap()?;
    /// # Ok(()) }
    /// ```
    pub fn into_blocking(self) -> Result<Guard> {
        wait_for(async move {
            ensure_running(self.share().keeper())?;
            Ok(Guard::new(self))
        })
    }
}

impl Guard {
    pub(super) fn new(guard: crate::Guard) -> Self {
        Self(Arc::new(guard))
    }

    /// For a call that its caller waits for.
    pub(super) fn lend(&self) -> Arc<crate::Guard> {
        self.0.clone()
    }

    /// The same hold for async code. It is renewed as before.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").acquire()?.into_async();
    /// guard.run(async { 6 * 7 }).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn into_async(self) -> crate::Guard {
        Arc::into_inner(self.0).expect("a call lets go of the guard before its caller goes on")
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// The hold's fencing token: larger than the tokens of all earlier holds of this name.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.0.token()
    }

    /// Returns the mode in which the guard holds the name: see [`Guard::mode`](crate::Guard::mode).
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.mode()
    }

    /// The options that the hold runs with.
    pub fn options(&self) -> LockOptions {
        self.0.options()
    }

    /// The hold's state now, by this process's clock and without any network.
    pub fn state(&self) -> HoldState {
        self.0.state()
    }

    /// Checks that the lock is still held, without any network. Call it before each step that must not be done twice.
    ///
    /// # Errors
    /// [`Lost`], if the hold was lost. A lost hold stays lost.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let guard = Locker::new(server.clone()).lock("a").acquire()?;
    /// guard.check()?;
    /// server.take_away("a")?;
    /// assert!(guard.check().is_err());
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Lost> {
        self.0.check()
    }

    /// Returns the time for which the hold lasts if nothing renews it, by this process's clock. Zero if it was lost.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// Returns the time for which the lock has been held: see [`Guard::held_for`](crate::Guard::held_for).
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.0.held_for()
    }

    /// A view of this hold for other threads and tasks. It does not keep the lock.
    pub fn watch(&self) -> Watch {
        self.0.watch()
    }

    /// Waits for at most `limit` until the lock is lost. `None` if it is still held then.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) in a forked child.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{LostCause, MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let guard = Locker::new(server.clone()).lock("a").acquire()?;
    /// assert!(guard.wait_lost(Duration::from_millis(10))?.is_none());
    /// server.take_away("a")?;
    /// let lost = guard.wait_lost(Duration::from_secs(10))?.expect("it was taken away");
    /// assert_eq!(lost.cause(), LostCause::NotHeld);
    /// # Ok(()) }
    /// ```
    pub fn wait_lost(&self, limit: Duration) -> Result<Option<Lost>> {
        let guard = self.lend();
        guard.share().keeper().check_process()?;
        wait_for(async move { Ok(timeout(limit, guard.lost()).await.ok()) })
    }

    /// Calls `callback` as soon as the lock is lost; not if it is released.
    ///
    /// The callback runs on a thread of its own. It may call polylock, block, and take long: nothing waits for it. If it panics,
    /// polylock logs that. It cannot stop the thread that works with the lock, which has to [check](Self::check).
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) in a forked child.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::mpsc::channel;
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let guard = Locker::new(server.clone()).lock("a").acquire()?;
    /// let (tell, told) = channel();
    /// guard.on_lost(move |lost| tell.send(lost).expect("somebody listens"))?;
    /// server.take_away("a")?;
    /// assert_eq!(told.recv().unwrap().name().as_str(), "a");
    /// # Ok(()) }
    /// ```
    pub fn on_lost(&self, callback: impl FnOnce(Lost) + Send + 'static) -> Result<()> {
        self.check_process()?;
        let watch = self.watch();
        thread::runtime()?.spawn(async move {
            let Ended::Lost(lost) = watch.ended().await else { return };
            // Not on polylock's thread, which it might block, nor on Tokio's for blocking work, whose number is limited.
            let name = watch.name().clone();
            let call = move || {
                if catch_unwind(AssertUnwindSafe(|| callback(lost))).is_err() {
                    observe::callback_panicked(&name);
                }
            };
            let started = std::thread::Builder::new().name("polylock-callback".into()).spawn(call);
            if started.is_err() {
                observe::callback_not_started(watch.name());
            }
        });
        Ok(())
    }

    /// Fails in a forked child, whose parent's the hold is.
    pub(super) fn check_process(&self) -> Result<()> {
        self.0.share().keeper().check_process()
    }

    /// Keeps the lock for at least `ttl` from now: see [`Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    /// Those of [`Guard::extend`](crate::Guard::extend).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire()?;
    /// guard.extend(Duration::from_secs(600))?;
    /// assert!(guard.valid_for() > Duration::from_secs(500));
    /// # Ok(()) }
    /// ```
    pub fn extend(&self, ttl: Duration) -> Result<()> {
        let guard = self.lend();
        wait_for(async move { guard.extend(ttl).await })
    }

    /// Goes from writing to reading in place: see [`Guard::downgrade`](crate::Guard::downgrade).
    ///
    /// # Errors
    /// Those of [`Guard::downgrade`](crate::Guard::downgrade).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let catalog = Locker::new(MemoryBackend::new()).rw_lock("catalog");
    /// let mut guard = catalog.write().acquire()?;
    /// guard.downgrade()?;
    /// assert!(catalog.read().try_acquire()?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn downgrade(&mut self) -> Result<()> {
        let guard = self.lend();
        wait_for(async move { guard.share().downgrade().await })
    }

    /// Releases the lock, and reports whether it was held until now: see [`Guard::release`](crate::Guard::release). Waits for
    /// the server's answer for up to the locker's operation timeout.
    ///
    /// # Errors
    /// Those of [`Guard::release`](crate::Guard::release): [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the hold had ended before this was called.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let guard = Locker::new(server.clone()).lock("a").acquire()?;
    /// server.take_away("a")?; // an operator deletes the key
    /// let error = guard.release().unwrap_err();
    /// assert!(error.is_lost()); // another holder may have had it
    /// # Ok(()) }
    /// ```
    pub fn release(self) -> Result<Release> {
        let guard = self.into_async();
        wait_for(async move { guard.release().await })
    }
}
