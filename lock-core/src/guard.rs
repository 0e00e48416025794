//! What a caller keeps while it has a lock.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::backend::lease::{Ended, HoldState};
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::held::{Held, RenewalPlan};
use crate::keeper::{Keeper, Kept};
use crate::name::LockName;
use crate::release::release;
use crate::sync::Arc;
use crate::sync::time::sleep;
use crate::token::FencingToken;
use crate::watch::Watch;
use crate::work::{Request, Work};

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
pub struct Guard {
    /// `None` once the release has begun.
    held: Option<Arc<Held>>,
    keeper: Kept,
}

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
    /// One share in the hold.
    pub(crate) fn new(held: Arc<Held>, keeper: Kept) -> Self {
        Self {
            held: Some(held),
            keeper,
        }
    }

    fn held(&self) -> &Arc<Held> {
        self.held
            .as_ref()
            .expect("only release and drop, which consume the guard, take it")
    }

    /// What is locked.
    pub fn name(&self) -> &LockName {
        &self.held().plan.name
    }

    /// The hold's fencing token: larger than that of every earlier hold of this name.
    pub fn token(&self) -> FencingToken {
        self.held().token
    }

    /// What is known of the hold now, by this process's clock and without any network.
    pub fn state(&self) -> HoldState {
        self.held().lease.state()
    }

    /// Whether the lock is still ours, to be asked before each step that must not be done twice.
    ///
    /// # Errors
    /// [`Lost`], from the moment that it was, for good.
    pub fn check(&self) -> Result<(), Lost> {
        self.held().check()
    }

    /// How long the hold may still be believed in if nothing renews it; zero when it was lost.
    pub fn valid_for(&self) -> Duration {
        self.held().lease.valid_for()
    }

    /// Waits until the lock is lost; for ever, if it never is.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Panics
    /// Outside a tokio runtime, for want of a timer.
    pub async fn lost(&self) -> Lost {
        match self.held().lease.ended().await {
            Ended::Lost(lost) => lost,
            Ended::Released => std::future::pending().await,
        }
    }

    /// A view of this hold for other tasks.
    pub fn watch(&self) -> Watch {
        Watch::new(self.held())
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
        let held = self.held();
        if held.renewal == RenewalPlan::Fixed {
            let message = "a fixed lease is never extended: leave out `fixed_lease`, or take a longer ttl";
            return Err(Error::new(ErrorKind::Unsupported, message).with_name(&held.plan.name));
        }
        let limits = held.plan.limits;
        let refused = |error: Error| error.about(&held.plan.name);
        limits.check_extend().map_err(refused)?;
        limits.check_ttl(ttl).map_err(refused)?;
        self.keeper.check_process()?;
        held.check()?;
        held.extend(ttl, limits.patience).await
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
    pub async fn release(mut self) -> Result<Release> {
        self.keeper.ensure_running()?;
        let Some(held) = self.held.take() else {
            return Ok(Release::Released);
        };
        if !held.unshare() {
            held.check()?;
            return Ok(Release::StillShared);
        }
        if !self.begin_release(&held) {
            held.check()?; // the keeper cleans up what was lost
            return Ok(Release::Released);
        }
        // What comes of it, such as a hand-over to one who has gone, is more work: a shutdown waits for that too.
        let _busy = self.keeper.acquiring();
        let mut releasing = Releasing {
            keeper: &self.keeper,
            begun: Request::new(release(held.clone())),
            held: &held,
        };
        let patience = held.plan.limits.patience;
        tokio::select! {
            biased;
            answer = poll_fn(|context| releasing.begun.poll(context)) => answer.map(|()| Release::Released),
            () = async { sleep(patience).await } => {
                let message = format!("the release was not answered within {patience:?}; it goes on in the background");
                Err(Error::new(ErrorKind::Unavailable, message).with_name(&held.plan.name))
            }
        }
    }

    /// False when there is nothing to release any more. Reads no clock.
    fn begin_release(&self, held: &Held) -> bool {
        if !held.lease.begin_release() {
            return false;
        }
        self.keeper.strike_off(held);
        held.stop_renewal();
        held.releasing();
        held.holding.released();
        true
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(held) = self.held.take()
            && held.unshare()
            && self.begin_release(&held)
        {
            self.keeper.push(Work::release(held));
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

/// A release that its caller waits for; when the caller goes, it moves to the background.
struct Releasing<'a> {
    keeper: &'a Keeper,
    held: &'a Arc<Held>,
    begun: Request<()>,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if !self.begun.is_over {
            let begun = std::mem::replace(&mut self.begun, Request::over());
            self.keeper.push(Work::Release(self.held.clone(), Some(begun)));
        }
    }
}
