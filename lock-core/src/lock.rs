//! One lock, to be acquired as often as needed.

use std::time::Duration;

use crate::acquire::options::{AcquireOptions, WaitLimit};
use crate::acquire::{Acquired, acquire};
use crate::backend::LockStatus;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::locker::Locker;
use crate::name::LockName;
use crate::reentry::ReentryKey;
use crate::sync::Arc;

/// A lock by its name and options: owned, cheap to clone, made by [`Locker::lock`].
///
/// Every acquire is a hold of its own: two guards of one `Lock` exclude each other, unless they share a
/// [`ReentryKey`].
///
/// An acquire that is neither polled nor dropped keeps its entry in this process's queue: do not hold on to one while
/// awaiting something else.
#[derive(Clone, Debug)]
pub struct Lock {
    locker: Locker,
    name: Result<LockName>,
    ttl: Duration,
    label: Option<Arc<str>>,
    fixed: bool,
    minimum: Option<Duration>,
    reentry: Option<ReentryKey>,
}

impl Lock {
    pub(crate) fn new(locker: Locker, name: Result<LockName>, ttl: Duration, label: Option<Arc<str>>) -> Self {
        Self {
            locker,
            name,
            ttl,
            label,
            fixed: false,
            minimum: None,
            reentry: None,
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

    /// Keeps the name taken for at least `minimum` after it was acquired, although the guard is released before, and
    /// even if the process exits: for jobs that every host starts at the same time by a clock of its own, and that must
    /// run once. A release answers at once all the same. Off by default.
    ///
    /// Where the process dies, the name stays taken for the longer of ttl and minimum. Only where the backend has the
    /// [capability](crate::backend::Capabilities::minimum_hold).
    #[must_use]
    pub fn hold_at_least(mut self, minimum: Duration) -> Self {
        self.minimum = Some(minimum);
        self
    }

    /// Shares the hold of whoever acquired with the same key, instead of waiting for it. See [`ReentryKey`] for what
    /// that does not exclude. Off by default.
    #[must_use]
    pub fn reentrant(mut self, key: &ReentryKey) -> Self {
        self.reentry = Some(key.clone());
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
        self.wait(WaitLimit::Forever).await
    }

    /// Waits for the lock for at most `limit`, connecting included. A limit of zero is one try, which the server has the
    /// locker's connect timeout to answer.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`] if the lock is taken: the server's last word. With the [holder](Error::holder)'s label
    ///   where it is known.
    /// - [`ErrorKind::Unavailable`] if the last attempt failed or is unanswered, or the connection over which it waits is
    ///   down; with the cause as source.
    /// - Those of [`acquire`](Self::acquire).
    ///
    /// A web service answers 409 to the first and 503 to the second.
    ///
    /// # Cancel safety
    /// When it is dropped, nothing stays behind: what was sent is undone in the background.
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        self.wait(WaitLimit::Within(limit)).await
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
        match acquire(self.locker.shared(), &self.options()?, WaitLimit::Once).await? {
            Acquired::Share(share) => Ok(Some(Guard::new(share))),
            Acquired::Taken => Ok(None),
        }
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

    async fn wait(&self, limit: WaitLimit) -> Result<Guard> {
        match acquire(self.locker.shared(), &self.options()?, limit).await? {
            Acquired::Share(share) => Ok(Guard::new(share)),
            Acquired::Taken => Err(Error::new(ErrorKind::Unexpected, "the backend gave up waiting")),
        }
    }

    fn options(&self) -> Result<AcquireOptions> {
        let options = AcquireOptions {
            name: self.name.clone()?,
            ttl: self.ttl,
            label: self.label.clone(),
            fixed: self.fixed,
            minimum: self.minimum,
            reentry: self.reentry.clone(),
            limits: self.locker.limits(),
        };
        options.check().map_err(|error| error.about(&options.name))?;
        Ok(options)
    }
}
