//! A hold seen from where its guard is not.

use std::time::Duration;

use crate::backend::Lease;
use crate::backend::lease::{Ended, HoldState};
use crate::error::Lost;
use crate::name::LockName;
use crate::token::FencingToken;

/// Tells other tasks how a hold fares, and keeps nothing alive: neither the hold nor its renewal.
///
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
}

impl Watch {
    pub(crate) fn new(name: LockName, token: FencingToken, lease: Lease) -> Self {
        Self { name, token, lease }
    }

    /// What is locked.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The hold's fencing token.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// What is known of the hold now, by this process's clock and without any network.
    pub fn state(&self) -> HoldState {
        self.lease.state()
    }

    /// Whether the hold has not been lost.
    ///
    /// # Errors
    /// [`Lost`], from the moment that it was.
    pub fn check(&self) -> Result<(), Lost> {
        match self.lease.state() {
            HoldState::Lost(lost) => Err(lost),
            _ => Ok(()),
        }
    }

    /// How long the hold may still be believed in if nothing renews it; zero when it has ended.
    pub fn valid_for(&self) -> Duration {
        self.lease.valid_for()
    }

    /// Waits until the hold was released or lost.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Panics
    /// Outside a tokio runtime, for want of a timer.
    pub async fn ended(&self) -> Ended {
        self.lease.ended().await
    }
}
