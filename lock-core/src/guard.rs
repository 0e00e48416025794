//! What a caller keeps while it has a lock.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::acquire::pending::Caller;
use crate::backend::lease::{Ended, HoldState};
use crate::background::runner::ensure_running;
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::hold::release::release_share;
use crate::hold::renewal::RenewedBy;
use crate::hold::{ActiveHold, Share};
use crate::name::LockName;
use crate::sync::Arc;
use crate::token::FencingToken;
use crate::watch::Watch;

/// A lock that is held. It is renewed in the background until it is released, dropped or lost.
///
/// [`release`](Self::release) ends the hold and reports whether it lasted until then. Dropping the guard releases it in
/// the background: this never blocks and never panics, but nobody learns how it went.
///
/// **When a process exits**, its background work ends with its runtime. A hold whose guard was dropped just before may
/// then stay at the server until its ttl ends, and on a current-thread runtime it always does. Before `main` returns,
/// release the guards and await [`Locker::shutdown`](crate::Locker::shutdown).
///
/// A guard knows by its own clock when it was lost, [suspended time](crate#what-is-promised) included; no network is
/// needed. It cannot stop a process that is paused: a process that resumes late may act before it checks. Give
/// [`token`](Self::token) to the resource that the lock protects, and have that reject smaller ones.
///
/// After a fork, a guard belongs to the parent process. In the child, dropping it does nothing and releasing it is an
/// error.
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard(Share<Caller>);

/// What releasing a [`Guard`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// The hold has ended.
    Released,
    /// Other guards of the same [`ReentryKey`](crate::ReentryKey) go on holding.
    StillShared,
}

impl Guard {
    pub(crate) fn new(share: Share<Caller>) -> Self {
        Self(share)
    }

    fn hold(&self) -> &Arc<ActiveHold<Caller>> {
        self.0.hold()
    }

    /// What is locked.
    pub fn name(&self) -> &LockName {
        &self.hold().options.name
    }

    /// The hold's fencing token: larger than that of every earlier hold of this name.
    pub fn token(&self) -> FencingToken {
        self.hold().token
    }

    /// What is known of the hold now, by this process's clock and without any network.
    pub fn state(&self) -> HoldState {
        self.hold().lease.state()
    }

    /// Whether the lock is still ours, to be asked before each step that must not be done twice.
    ///
    /// # Errors
    /// [`Lost`], from the moment that it was, for good.
    pub fn check(&self) -> Result<(), Lost> {
        self.hold().check()
    }

    /// How long the hold may still be believed in if nothing renews it; zero when it was lost.
    pub fn valid_for(&self) -> Duration {
        self.hold().lease.valid_for()
    }

    /// Waits until the lock is lost; for ever, if it never is.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Panics
    /// Outside a tokio runtime, for want of a timer.
    pub async fn lost(&self) -> Lost {
        match self.hold().lease.ended().await {
            Ended::Lost(lost) => lost,
            Ended::Released => std::future::pending().await,
        }
    }

    /// A view of this hold for other tasks.
    pub fn watch(&self) -> Watch {
        let hold = self.hold();
        Watch::new(hold.options.name.clone(), hold.token, hold.lease.clone())
    }

    /// Runs a future for as long as the lock is held: before each of its polls the lock is checked, so that after a
    /// pause of the whole process it is stopped and not carried on.
    ///
    /// It stops only this future, not the tasks, threads or requests that this one has started. A result that was
    /// ready is handed out, even late.
    ///
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
    /// [`Lost`], when the lock was lost before the future was ready.
    ///
    /// # Cancel safety
    /// Dropping it drops the future, and leaves the lock held.
    ///
    /// # Panics
    /// Outside a tokio runtime, for want of a timer.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        let lost = self.lost();
        tokio::pin!(lost, future);
        poll_fn(|context| {
            self.check()?;
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            lost.as_mut().poll(context).map(Err)
        })
        .await
    }

    /// Keeps the lock for at least `ttl` from now, whatever becomes of the renewals. Never shortens anything.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the backend cannot, or the lease is fixed; [`ErrorKind::Misconfigured`] for a
    /// ttl that it cannot keep; [`ErrorKind::Lost`]; [`ErrorKind::Unavailable`] when it was not answered within the
    /// locker's connect timeout; and what the server says. Then the lock is held as long as
    /// [`valid_for`](Self::valid_for) says.
    ///
    /// # Cancel safety
    /// When it is dropped the server may have extended the hold or not; it goes on being renewed.
    ///
    /// # Panics
    /// Outside a tokio runtime, for want of a timer.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        self.0.keeper().check_process()?;
        let hold = self.hold();
        if hold.renewals.by == RenewedBy::Nobody {
            let message = "a fixed lease is never extended: leave out `fixed_lease`, or take a longer ttl";
            return Err(Error::new(ErrorKind::Unsupported, message).with_name(&hold.options.name));
        }
        let limits = hold.options.limits;
        let refused = |error: Error| error.about(&hold.options.name);
        limits.check_extend().map_err(refused)?;
        limits.check_ttl(ttl).map_err(refused)?;
        hold.check()?;
        hold.extend(ttl, limits.patience).await
    }

    /// Releases the lock, and says whether it was held until now. Where a [`ReentryKey`](crate::ReentryKey) is shared,
    /// the last guard releases it, and the others only let go.
    ///
    /// If the server does not answer, it is tried again for up to the locker's connect timeout (5 s by default), and
    /// after that in the background until the lease has been over for a ttl.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the hold had ended before: somebody else may have had the lock meanwhile. Otherwise
    /// what the server says; the lock is not believed in any more, and ends at the latest with its ttl.
    ///
    /// # Cancel safety
    /// Dropping it lets the release finish in the background.
    pub async fn release(self) -> Result<Release> {
        ensure_running(self.0.keeper())?;
        let limit = self.hold().options.limits.patience;
        Ok(match release_share(self.0, limit).await? {
            true => Release::StillShared,
            false => Release::Released,
        })
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("hold", &self.0).finish_non_exhaustive()
    }
}
