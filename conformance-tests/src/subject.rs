//! What the cases above the raw layer look at: a lock library, as its users see it.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Capabilities, LockStatus};
use lock_core::{FencingToken, ReentryKey, Release, Result};

mod locker;

pub use locker::LockerSubject;

/// A boxed future that owns what it needs.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One client of a lock library. [`LockerSubject`] is the one over [`lock_core::Locker`]; any other library can be
/// a subject through an adapter.
#[async_trait]
pub trait Subject: Debug + Send + Sync + 'static {
    /// What it promises beyond the minimum.
    fn capabilities(&self) -> Capabilities;

    /// How many times in a row it passes a lock on among its own callers at the most, while others wait elsewhere.
    fn hand_overs(&self) -> u32;

    /// Acquires as asked. `None`: somebody else has it; only for [`WaitLimit::Try`].
    ///
    /// # Errors
    /// The kinds of [`lock_core::ErrorKind`], as the contract assigns them.
    ///
    /// # Cancel safety
    /// May be dropped anywhere, and then leaves nothing: what the suite checks.
    async fn acquire(&self, ask: &Ask) -> Result<Option<Box<dyn SubjectGuard>>>;

    /// Who has the name, as the server sees it.
    ///
    /// # Errors
    /// When the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped anywhere.
    async fn status(&self, name: &str) -> Result<LockStatus>;

    /// Refuses new acquires, fails waiting ones, and ends all background work.
    ///
    /// # Errors
    /// When background work did not end.
    ///
    /// # Cancel safety
    /// May be dropped anywhere.
    async fn shutdown(&self) -> Result<()>;
}

/// What a subject's acquire gives. Dropping it releases in the background.
#[async_trait]
pub trait SubjectGuard: Debug + Send + Sync + 'static {
    /// The hold's fencing token.
    fn token(&self) -> FencingToken;

    /// What is known of the hold, by the local clock alone.
    fn state(&self) -> State;

    /// How long the hold may still be believed in.
    fn valid_for(&self) -> Duration;

    /// Resolves when the hold is lost, and never otherwise.
    ///
    /// # Cancel safety
    /// May be dropped anywhere.
    async fn lost(&self);

    /// Resolves when the hold has ended, without keeping anything alive.
    fn watch(&self) -> Task<End>;

    /// Does the work unless the hold is lost before it is done; whether it was done.
    ///
    /// # Cancel safety
    /// Dropping it drops the work.
    async fn run(&self, work: Task<()>) -> bool;

    /// Holds for at least `ttl` from now.
    ///
    /// # Errors
    /// When it is refused, lost, or not known to be extended.
    ///
    /// # Cancel safety
    /// May be dropped anywhere.
    async fn extend(&self, ttl: Duration) -> Result<()>;

    /// Releases; others that share the hold by its [re-entry key](Ask::reentry) go on holding.
    ///
    /// # Errors
    /// [`lock_core::ErrorKind::Lost`] when the hold had ended before.
    ///
    /// # Cancel safety
    /// When it is dropped, the release goes on in the background.
    async fn release(self: Box<Self>) -> Result<Release>;
}

/// What a guard knows of its hold.
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

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was released.
    Released,
    /// It was lost.
    Lost,
}

/// What is asked of [`Subject::acquire`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// What to lock.
    pub name: String,
    /// The longest that a dead client's hold may survive.
    pub ttl: Duration,
    /// What the holder calls itself.
    pub label: Option<Arc<str>>,
    /// Never to be renewed.
    pub fixed: bool,
    /// For how long the name is to stay taken at least, whatever becomes of the guard.
    pub minimum: Option<Duration>,
    /// Whose hold it may share.
    pub reentry: Option<ReentryKey>,
    /// How long to wait.
    pub wait: WaitLimit,
}

/// How long an [`Ask`] waits when the name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// Not at all.
    Try,
    /// So long, connecting included.
    Within(Duration),
    /// For ever.
    Forever,
}

impl Ask {
    /// Waits for ever.
    pub fn new(name: impl Into<String>, ttl: Duration) -> Self {
        Self {
            name: name.into(),
            ttl,
            label: None,
            fixed: false,
            minimum: None,
            reentry: None,
            wait: WaitLimit::Forever,
        }
    }

    /// Does not wait.
    #[must_use]
    pub fn trying(mut self) -> Self {
        self.wait = WaitLimit::Try;
        self
    }

    /// Waits so long.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.wait = WaitLimit::Within(time);
        self
    }

    /// Sets what the holder calls itself.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets another ttl.
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

    /// Keeps the name taken for at least so long.
    #[must_use]
    pub fn hold_at_least(mut self, minimum: Duration) -> Self {
        self.minimum = Some(minimum);
        self
    }

    /// Shares the hold of whoever acquired with the same key.
    #[must_use]
    pub fn reentrant(mut self, key: &ReentryKey) -> Self {
        self.reentry = Some(key.clone());
        self
    }
}
