//! A hold seen from where its guard is not.

use std::time::Duration;

use crate::backend::Lease;
use crate::backend::lease::{Ended, HoldState};
use crate::lost::Lost;
use crate::name::LockName;
use crate::token::FencingToken;

/// A view of a hold for other tasks. It keeps neither the hold nor its renewals alive. In a forked child the hold counts as
/// lost, as it does to a [`Guard`](crate::Guard) there.
///
/// # Examples
/// ```
/// # use lock_core::{Ended, Locker, MemoryBackend};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// let guard = locks.lock("report").acquire().await?;
/// let watch = guard.watch();
/// let supervisor = tokio::spawn(async move { watch.ended().await });
/// guard.release().await?;
/// assert_eq!(supervisor.await.unwrap(), Ended::Released);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Watch {
    name: LockName,
    token: FencingToken,
    lease: Lease,
    /// The process that has the hold.
    process: u32,
}

impl Watch {
    pub(crate) fn new(name: LockName, token: FencingToken, lease: Lease, process: u32) -> Self {
        Self {
            name,
            token,
            lease,
            process,
        }
    }

    /// In a forked child, the hold is the parent's: the locks of its lease must not be touched.
    fn check_process(&self) -> Result<(), Lost> {
        match std::process::id() == self.process {
            true => Ok(()),
            false => Err(Lost::by_fork(&self.name)),
        }
    }

    /// The lock's name.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// let watch = guard.watch();
    /// assert_eq!(watch.name(), guard.name());
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The hold's fencing token.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// let watch = guard.watch();
    /// assert_eq!(watch.token(), guard.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The hold's state now, by this process's clock and without any network.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{HoldState, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// let watch = guard.watch();
    /// guard.release().await?;
    /// assert_eq!(watch.state(), HoldState::Released);
    /// # Ok(()) }
    /// ```
    pub fn state(&self) -> HoldState {
        match self.check_process() {
            Ok(()) => self.lease.state(),
            Err(lost) => HoldState::Lost(lost),
        }
    }

    /// Returns `true` if the hold still counts as held, by this process's clock: it was neither released nor lost. Work
    /// that may outlive its guard calls this, since [`check`](Self::check) succeeds after a release.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// let watch = guard.watch();
    /// assert!(watch.is_held());
    /// guard.release().await?;
    /// assert!(!watch.is_held());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state(), HoldState::Held | HoldState::Suspect)
    }

    /// Checks that the hold was not lost. A released hold was not lost: see [`is_held`](Self::is_held).
    ///
    /// # Errors
    /// [`Lost`], if it was. A lost hold stays lost.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let guard = Locker::new(server.clone()).lock("a").acquire().await?;
    /// let watch = guard.watch();
    /// watch.check()?;
    /// server.take_away("a")?;
    /// assert!(watch.check().is_err());
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Lost> {
        match self.state() {
            HoldState::Lost(lost) => Err(lost),
            _ => Ok(()),
        }
    }

    /// Returns the time for which the hold lasts if nothing renews it, by this process's clock. Zero if it has ended.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// let watch = guard.watch();
    /// assert!(watch.valid_for() > Duration::ZERO);
    /// guard.release().await?;
    /// assert_eq!(watch.valid_for(), Duration::ZERO);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        match self.check_process() {
            Ok(()) => self.lease.valid_for(),
            Err(_) => Duration::ZERO,
        }
    }

    /// Waits until the hold is released or lost.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Ended, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// let watch = guard.watch();
    /// guard.release().await?;
    /// assert_eq!(watch.ended().await, Ended::Released);
    /// # Ok(()) }
    /// ```
    pub async fn ended(&self) -> Ended {
        match self.check_process() {
            Ok(()) => self.lease.ended().await,
            Err(lost) => Ended::Lost(lost),
        }
    }
}
