//! Subjects: a lock library, as its users see it.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Capabilities, LockStatus, Mode};
use lock_core::{Error, ErrorKind, FencingToken, ReentryKey, Release, Result};

mod election;
mod locker;

pub use election::{Candidate, Elected, ElectionState, Observer, Then, Work};
pub use locker::LockerSubject;

/// A boxed future that borrows nothing.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One client of a lock library. [`LockerSubject`] adapts [`lock_core::Locker`]; write an adapter for any other library.
#[async_trait]
pub trait Subject: Debug + Send + Sync + 'static {
    /// The optional features of the subject.
    fn capabilities(&self) -> Capabilities;

    /// The most times in a row that the subject passes a lock on among its own callers while other processes wait.
    fn passes(&self) -> u32;

    /// The fewest polls that an acquire or a release takes. Cases drop them after each of their polls, and fail if there are fewer
    /// than this. Defaults to 1, the least there can be.
    fn least_polls(&self) -> u32 {
        1
    }

    /// Acquires as asked. Returns `None` if the lock is taken, only for [`WaitLimit::Try`].
    ///
    /// # Errors
    /// With the kinds of [`lock_core::ErrorKind`] that the contract assigns.
    ///
    /// # Cancel safety
    /// May be dropped at any point, and then leaves nothing behind. The suite checks this.
    async fn acquire(&self, ask: &Ask) -> Result<Option<Box<dyn SubjectGuard>>>;

    /// Whether the subject can [acquire several locks at once](Self::acquire_all).
    fn acquires_several(&self) -> bool {
        false
    }

    /// Acquires all or none, within one time limit; what the asks say of waiting does not count. Returns `None` if one is
    /// taken, only for [`WaitLimit::Try`].
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire); by default, that it is unsupported.
    ///
    /// # Cancel safety
    /// May be dropped at any point, and then leaves nothing behind.
    async fn acquire_all(&self, asks: &[Ask], wait: WaitLimit) -> Result<Option<Vec<Box<dyn SubjectGuard>>>> {
        let _ = (asks, wait);
        Err(Error::new(ErrorKind::Unsupported, "it acquires one lock at a time"))
    }

    /// A candidate in the election with this name, which proclaims this value. `None` if it has no elections, which is the
    /// default.
    fn candidate(&self, name: &str, ttl: Duration, value: &str) -> Option<Arc<dyn Candidate>> {
        let _ = (name, ttl, value);
        None
    }

    /// Who holds the name, as the server sees it.
    ///
    /// # Errors
    /// If the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn status(&self, name: &str) -> Result<LockStatus>;

    /// Refuses new acquires, fails waiting ones, and ends all background work.
    ///
    /// # Errors
    /// If background work did not end.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn shutdown(&self) -> Result<()>;
}

/// A subject's hold. Dropping it releases in the background.
#[async_trait]
pub trait SubjectGuard: Debug + Send + Sync + 'static {
    /// The hold's fencing token.
    fn token(&self) -> FencingToken;

    /// The hold's state, by the local clock alone.
    fn state(&self) -> State;

    /// The time for which the hold lasts if nothing renews it.
    fn valid_for(&self) -> Duration;

    /// Completes when the hold is lost, and never otherwise.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn lost(&self);

    /// Completes when the hold has ended. It keeps nothing alive.
    fn watch(&self) -> Task<End>;

    /// Does the work unless the hold is lost first. Returns whether it was done.
    ///
    /// # Cancel safety
    /// Dropping it drops the work.
    async fn run(&self, work: Task<()>) -> bool;

    /// Keeps the hold for at least `ttl` from now.
    ///
    /// # Errors
    /// If it is refused, lost, or not known to be extended.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn extend(&self, ttl: Duration) -> Result<()>;

    /// Makes the writer a reader, in place. Needed where [`Capabilities::downgrade`] is declared.
    ///
    /// # Errors
    /// If it is lost, or not known to be downgraded; by default, that it is unsupported.
    ///
    /// # Cancel safety
    /// If it is dropped, the guard counts as a reader's.
    async fn downgrade(&mut self) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "it is not downgraded"))
    }

    /// Makes the reader that [may](Mode::Upgradable) the writer, in place, once the other readers have left. Waits no longer
    /// than `limit`, if there is one. Needed where [`Capabilities::upgradable`] is declared.
    ///
    /// # Errors
    /// If it is lost, or not upgraded, and then it still reads; by default, that it is unsupported.
    ///
    /// # Cancel safety
    /// If it is dropped, the guard still reads.
    async fn upgrade(&mut self, limit: Option<Duration>) -> Result<()> {
        let _ = limit;
        Err(Error::new(ErrorKind::Unsupported, "it is not upgraded"))
    }

    /// Releases. Guards that share the hold by its [re-entry key](Ask::reentry) still hold it.
    ///
    /// # Errors
    /// [`lock_core::ErrorKind::Lost`] if the hold had ended before this was called.
    ///
    /// # Cancel safety
    /// If it is dropped, the release finishes in the background.
    async fn release(self: Box<Self>) -> Result<Release>;
}

/// The state of a subject's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Held.
    Held,
    /// Held, but the last renewal failed or went unanswered.
    Suspect,
    /// Released, or being released.
    Released,
    /// Lost for good.
    Lost,
}

/// The end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was released.
    Released,
    /// It was lost.
    Lost,
}

/// The options of [`Subject::acquire`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// The lock's name.
    pub name: String,
    /// The mode of the hold. Only modes that the subject [declares](Subject::capabilities) are asked for.
    pub mode: Mode,
    /// The time for which the lock stays taken after its client died.
    pub ttl: Duration,
    /// The holder's label.
    pub label: Option<Arc<str>>,
    /// Whether the hold is never renewed.
    pub fixed: bool,
    /// The least time for which the name stays taken, even if it is released.
    pub minimum: Option<Duration>,
    /// After which time it is lost, if it is still held then.
    pub maximum: Option<Duration>,
    /// The key of a hold that it may share.
    pub reentry: Option<ReentryKey>,
    /// The limit on the wait.
    pub wait: WaitLimit,
}

/// The limit on the wait of an [`Ask`] whose name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// Not at all.
    Try,
    /// At most this long, connecting included.
    Within(Duration),
    /// Without a limit.
    Forever,
}

impl Ask {
    /// An acquire that waits without a limit.
    pub fn new(name: impl Into<String>, ttl: Duration) -> Self {
        Self {
            name: name.into(),
            mode: Mode::Exclusive,
            ttl,
            label: None,
            fixed: false,
            minimum: None,
            maximum: None,
            reentry: None,
            wait: WaitLimit::Forever,
        }
    }

    /// Makes it a single try.
    #[must_use]
    pub fn trying(mut self) -> Self {
        self.wait = WaitLimit::Try;
        self
    }

    /// Asks for this mode.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Limits the wait.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.wait = WaitLimit::Within(time);
        self
    }

    /// Sets the holder's label.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the TTL.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Asks for a fixed lease.
    #[must_use]
    pub fn fixed(mut self) -> Self {
        self.fixed = true;
        self
    }

    /// Keeps the name taken for at least this long.
    #[must_use]
    pub fn hold_at_least(mut self, minimum: Duration) -> Self {
        self.minimum = Some(minimum);
        self
    }

    /// Loses the lock after this time, if it is still held then.
    #[must_use]
    pub fn hold_at_most(mut self, maximum: Duration) -> Self {
        self.maximum = Some(maximum);
        self
    }

    /// Shares the hold of a caller with the same key.
    #[must_use]
    pub fn reentrant(mut self, key: &ReentryKey) -> Self {
        self.reentry = Some(key.clone());
        self
    }
}
