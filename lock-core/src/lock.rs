//! One lock, to be acquired as often as needed.

use std::time::Duration;

use crate::acquire::{Patience, Plan, acquire};
use crate::backend::LockStatus;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::limits::Limits;
use crate::locker::Locker;
use crate::name::LockName;
use crate::sync::Arc;

/// A lock by its name and options: owned, cheap to clone, made by [`Locker::lock`].
///
/// Every acquire is a hold of its own: two guards of one `Lock` exclude each other.
///
/// An acquire that is neither polled nor dropped keeps its place in this process's queue: do not hold on to one while
/// awaiting something else.
#[derive(Clone, Debug)]
pub struct Lock {
    locker: Locker,
    name: Result<LockName>,
    ttl: Duration,
    label: Option<Arc<str>>,
    fixed: bool,
}

impl Lock {
    pub(crate) fn new(locker: Locker, name: Result<LockName>, ttl: Duration, label: Option<Arc<str>>) -> Self {
        Self {
            locker,
            name,
            ttl,
            label,
            fixed: false,
        }
    }

    /// Sets how long a hold may survive its process; while the process lives, the hold is renewed at a third of it.
    /// Defaults to the locker's.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets what the holder calls itself towards people: at most 255 bytes. Defaults to the locker's.
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Never renews a hold: it is lost after its ttl, less a tenth, unless it is released before. Off by default.
    #[must_use]
    pub fn fixed_lease(mut self) -> Self {
        self.fixed = true;
        self
    }

    /// What is to be locked; `None` for a name that no lock can have.
    pub fn name(&self) -> Option<&LockName> {
        self.name.as_ref().ok()
    }

    /// Waits for the lock for as long as it takes.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the server was never reached, and otherwise what no waiting can mend:
    /// [`ErrorKind::Denied`], [`ErrorKind::Misconfigured`], [`ErrorKind::InvalidName`], [`ErrorKind::Unsupported`] and
    /// [`ErrorKind::ShutDown`].
    ///
    /// # Cancel safety
    /// When it is dropped, nothing stays behind: what was sent is undone in the background.
    pub async fn acquire(&self) -> Result<Guard> {
        self.wait(Patience::Forever).await
    }

    /// Waits for the lock for at most `limit`, connecting included.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`], with the [holder](Error::holder)'s label where it is known; and those of
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// When it is dropped, nothing stays behind: what was sent is undone in the background.
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        self.wait(Patience::Within(limit)).await
    }

    /// Takes the lock if it is free; `None` when it is taken.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the server did not answer within the locker's connect timeout; and those of
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// When it is dropped, nothing stays behind: what was sent is undone in the background.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        acquire(
            &self.locker,
            &self.plan()?,
            Patience::Once(self.locker.limits().patience),
        )
        .await
    }

    /// Who has the lock, as the server sees it: for people, not for decisions.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], or what the server says.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn status(&self) -> Result<LockStatus> {
        self.locker.status(self.name.as_ref().map_err(Error::clone)?).await
    }

    async fn wait(&self, patience: Patience) -> Result<Guard> {
        let guard = acquire(&self.locker, &self.plan()?, patience).await?;
        guard.ok_or_else(|| Error::new(ErrorKind::Unexpected, "the backend gave up waiting"))
    }

    fn plan(&self) -> Result<Plan> {
        let name = self.name.clone()?;
        self.check(self.locker.limits()).map_err(|error| error.about(&name))?;
        Ok(Plan {
            name,
            ttl: self.ttl,
            label: self.label.clone(),
            fixed: self.fixed,
        })
    }

    fn check(&self, limits: Limits) -> Result<()> {
        limits.check_ttl(self.ttl)?;
        self.label.as_deref().map_or(Ok(()), Limits::check_label)?;
        if self.fixed { limits.check_fixed() } else { Ok(()) }
    }
}
