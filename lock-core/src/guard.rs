//! The guard of one acquired lock.

use std::fmt;
use std::time::Duration;

use crate::acquire::caller::Caller;
use crate::backend::Mode;
use crate::backend::lease::HoldState;
use crate::backend::options::LockOptions;
use crate::error::Result;
use crate::hold::{ActiveHold, Share};
use crate::lost::Lost;
use crate::name::LockName;
use crate::run::run_while_held;
use crate::sync::Arc;
use crate::token::FencingToken;
use crate::watch::Watch;

mod requests;

/// A lock that is held. It is renewed in the background until it is released, dropped or lost.
///
/// [`release`](Self::release) ends the hold and reports whether it lasted until then. Dropping the guard releases it in
/// the background: this never blocks and never panics, but nobody learns how it went.
///
/// **When a process exits**, its background work ends with its runtime. A hold whose guard was dropped just before may
/// then stay at the server until its ttl ends, and on a current-thread runtime it always does. Before `main` returns,
/// release the guards and await [`Locker::shutdown`](crate::Locker::shutdown).
///
/// A guard knows by its own clock when it was lost, [suspended time](https://docs.rs/lock-core/latest/lock_core/#what-is-promised)
/// included; no network is needed. It cannot stop a process that is paused: a process that resumes late may act before it checks. Give
/// [`token`](Self::token) to the resource that the lock protects, before the first read and with each write, and have it reject any
/// token lower than the highest it has seen.
///
/// After a fork, a guard belongs to the parent process. In the child it counts as lost, by
/// [`LostCause::Forked`](crate::LostCause::Forked); dropping it does nothing, and releasing it is an error. Read its token and its
/// mode before the fork: in the child these two, its options, a new [`watch`](Self::watch) and its `Debug` may wait for ever for a
/// thread of the parent.
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard(Share<Caller>);

/// The result of releasing a [`Guard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// The hold has ended.
    Released,
    /// Other guards with the same [`ReentryKey`](crate::ReentryKey) still hold the lock.
    StillShared,
}

impl Guard {
    pub(crate) fn new(share: Share<Caller>) -> Self {
        Self(share)
    }

    pub(crate) fn share(&self) -> &Share<Caller> {
        &self.0
    }

    fn hold(&self) -> &Arc<ActiveHold<Caller>> {
        self.0.hold()
    }

    /// The lock's name.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// assert_eq!(guard.name().as_str(), "a");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &LockName {
        &self.hold().lock.name
    }

    /// The hold's fencing token: larger than the tokens of all earlier holds of this name.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let first = locks.lock("a").acquire().await?;
    /// let token = first.token();
    /// first.release().await?;
    /// assert!(locks.lock("a").acquire().await?.token() > token);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold().token()
    }

    /// Returns the mode in which the guard holds the name: as acquired, or as later [downgraded](Self::downgrade) or
    /// [upgraded](crate::UpgradableGuard::upgrade). If such a change was not answered, this is the weaker mode.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # use lock_core::backend::Mode;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.rw_lock("catalog").read().acquire().await?;
    /// assert_eq!(guard.mode(), Mode::Shared);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.hold().mode()
    }

    /// The options that the hold runs with.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// assert_eq!(guard.options().ttl.as_secs(), 30);
    /// # Ok(()) }
    /// ```
    pub fn options(&self) -> LockOptions {
        LockOptions {
            mode: self.mode(),
            ..self.hold().lock.options.clone()
        }
    }

    /// The hold's state now, by this process's clock and without any network.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{HoldState, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let guard = Locker::new(server.clone()).lock("a").acquire().await?;
    /// assert_eq!(guard.state(), HoldState::Held);
    /// server.take_away("a")?;
    /// assert!(matches!(guard.state(), HoldState::Lost(_)));
    /// # Ok(()) }
    /// ```
    pub fn state(&self) -> HoldState {
        self.0.state()
    }

    /// Checks that the lock is still held. Call it before each step that must not be done twice.
    ///
    /// # Errors
    /// [`Lost`], if the hold was lost. A lost hold stays lost.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let guard = Locker::new(server.clone()).lock("a").acquire().await?;
    /// guard.check()?;
    /// server.take_away("a")?;
    /// assert!(guard.check().is_err());
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Lost> {
        self.0.check()
    }

    /// Returns the time for which the hold lasts if nothing renews it, by this process's clock. Zero if it was lost.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").ttl(Duration::from_secs(10)).acquire().await?;
    /// assert!(guard.valid_for() > Duration::from_secs(8));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// Returns the time for which this guard, or the guards that share its hold, have held the lock. Time for which the
    /// machine was suspended counts. If another caller of this process passed the hold on, the time begins with that
    /// pass.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let guard = locks.lock("a").acquire().await?;
    /// tokio::time::sleep(Duration::from_secs(3)).await;
    /// assert!(guard.held_for() >= Duration::from_secs(3));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.hold().held_for()
    }

    /// Waits until the lock is lost. If it never is, this never returns.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, LostCause, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let guard = Locker::new(server.clone()).lock("a").acquire().await?;
    /// server.take_away("a")?;
    /// assert_eq!(guard.lost().await.cause(), LostCause::NotHeld);
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Lost {
        self.0.lost().await
    }

    /// A view of this hold for other tasks. It does not keep the lock.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Ended, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// let watch = guard.watch();
    /// let supervisor = tokio::spawn(async move { watch.ended().await });
    /// guard.release().await?;
    /// assert_eq!(supervisor.await.unwrap(), Ended::Released);
    /// # Ok(()) }
    /// ```
    pub fn watch(&self) -> Watch {
        let (hold, process) = (self.hold(), self.0.keeper().process);
        Watch::new(hold.lock.name.clone(), hold.token(), hold.lease.clone(), process)
    }

    /// Runs a future while the lock is held, and drops it when the lock is lost. The lock is checked before each poll: if the
    /// whole process was paused, the future does not go on after the pause.
    ///
    /// This stops only the future, not tasks, threads or requests that it started. A result that is ready is returned, even
    /// if the lock was lost meanwhile.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let locks = Locker::new(server.clone());
    /// let guard = locks.lock("report").acquire().await?;
    /// assert_eq!(guard.run(async { 6 * 7 }).await, Ok(42));
    /// server.take_away("report")?;
    /// assert!(guard.run(async { 6 * 7 }).await.is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Lost`], if the lock was lost before the future was ready.
    ///
    /// # Cancel safety
    /// Dropping it drops the future. The lock stays held.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        run_while_held(|| self.check(), self.lost(), future).await
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("hold", &self.0).finish_non_exhaustive()
    }
}
