//! The guard of several locks.

use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::backend::lease::HoldState;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lost::Lost;
use crate::run::run_while_held;
use crate::token::FencingToken;

/// Several locks that are held together, made by [`acquire_all`](crate::acquire_all). Each is renewed in the background until
/// it is released, dropped or lost.
///
/// Dropping it releases all of them in the background. [`into_guards`](Self::into_guards) splits it, to release some of them
/// earlier than others.
#[derive(Debug)]
#[must_use = "the locks are released when their guard is dropped"]
pub struct MultiGuard(
    /// In the order given; never empty.
    Vec<Guard>,
);

impl MultiGuard {
    pub(crate) fn new(guards: Vec<Guard>) -> Self {
        Self(guards)
    }

    /// The guards, in the order in which the locks were given.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let both = acquire_all([locks.lock("b"), locks.lock("a")]).await?;
    /// assert_eq!(both.guards()[0].name().as_str(), "b");
    /// # Ok(()) }
    /// ```
    pub fn guards(&self) -> &[Guard] {
        &self.0
    }

    /// The fencing tokens, in the order in which the locks were given. Each is for what its own lock protects: the tokens of
    /// two names have nothing to do with each other.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let both = acquire_all([locks.lock("a"), locks.lock("b")]).await?;
    /// assert_eq!(both.tokens().nth(1), Some(both.guards()[1].token()));
    /// # Ok(()) }
    /// ```
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = FencingToken> {
        self.0.iter().map(Guard::token)
    }

    /// The state now, by this process's clock and without any network: lost if any of the locks was lost, and suspect if any
    /// of them is.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{HoldState, Locker, MemoryBackend, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let locks = Locker::new(server.clone());
    /// let both = acquire_all([locks.lock("a"), locks.lock("b")]).await?;
    /// assert_eq!(both.state(), HoldState::Held);
    /// server.take_away("b")?;
    /// assert!(matches!(both.state(), HoldState::Lost(lost) if lost.name().as_str() == "b"));
    /// # Ok(()) }
    /// ```
    pub fn state(&self) -> HoldState {
        weakest(self.0.iter().map(Guard::state))
    }

    /// Checks that all locks are still held. Call it before each step that must not be done twice.
    ///
    /// # Errors
    /// [`Lost`], if any was lost: the first one in the order given.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let locks = Locker::new(server.clone());
    /// let both = acquire_all([locks.lock("a"), locks.lock("b")]).await?;
    /// both.check()?;
    /// server.take_away("b")?;
    /// assert_eq!(both.check().unwrap_err().name().as_str(), "b");
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Lost> {
        self.0.iter().try_for_each(Guard::check)
    }

    /// Returns the time for which all of them are held if nothing renews them, by this process's clock: the shortest
    /// time of any. Zero if one was lost.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let short = locks.lock("b").ttl(Duration::from_secs(10));
    /// let both = acquire_all([locks.lock("a"), short]).await?;
    /// assert!(both.valid_for() <= Duration::from_secs(9));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.0.iter().map(Guard::valid_for).min().unwrap_or_default()
    }

    /// Waits until any of the locks is lost. If none ever is, this never returns.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let locks = Locker::new(server.clone());
    /// let both = acquire_all([locks.lock("a"), locks.lock("b")]).await?;
    /// server.take_away("b")?;
    /// assert_eq!(both.lost().await.name().as_str(), "b");
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Lost {
        first_loss(&self.0).await
    }

    /// Runs a future while all locks are held, and drops it when any of them is lost. They are checked before each poll, as by
    /// [`Guard::run`].
    ///
    /// # Errors
    /// [`Lost`], if a lock was lost before the future was ready.
    ///
    /// # Cancel safety
    /// Dropping it drops the future. The locks stay held.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let locks = Locker::new(server.clone());
    /// let both = acquire_all([locks.lock("a"), locks.lock("b")]).await?;
    /// assert_eq!(both.run(async { 6 * 7 }).await, Ok(42));
    /// server.take_away("b")?;
    /// assert!(both.run(async { 6 * 7 }).await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        run_while_held(|| self.check(), self.lost(), future).await
    }

    /// Releases all locks at the same time, and reports whether all were held until now. Each release waits for the server
    /// as [`Guard::release`] does.
    ///
    /// # Errors
    /// The first error in the order given, after all were released as far as possible: [`ErrorKind::Lost`] if a hold had ended
    /// before this was called, and the others of [`Guard::release`].
    ///
    /// [`ErrorKind::Lost`]: crate::ErrorKind::Lost
    ///
    /// # Cancel safety
    /// If it is dropped, the releases finish in the background.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let both = acquire_all([locks.lock("a"), locks.lock("b")]).await?;
    /// both.release().await?;
    /// assert!(!locks.status("a").await?.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<()> {
        let released = join_all(self.0.into_iter().map(Guard::release)).await;
        released
            .into_iter()
            .find_map(Result::err)
            .map_or(Ok(()), Err::<(), Error>)
    }

    /// The guards of their own, in the order in which the locks were given. From here on each lock ends by itself.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let mut guards = acquire_all([locks.lock("a"), locks.lock("b")]).await?.into_guards();
    /// let b = guards.pop().expect("there are two");
    /// b.release().await?;
    /// assert!(locks.status("a").await?.is_held());
    /// # Ok(()) }
    /// ```
    pub fn into_guards(self) -> Vec<Guard> {
        self.0
    }
}

/// The state of several holds together.
pub(crate) fn weakest(states: impl Iterator<Item = HoldState>) -> HoldState {
    let mut weakest = HoldState::Held;
    for state in states {
        match state {
            HoldState::Lost(_) | HoldState::Released => return state,
            HoldState::Suspect => weakest = state,
            HoldState::Held => {}
        }
    }
    weakest
}

/// Returns as soon as any of them is lost.
pub(crate) async fn first_loss<'a>(guards: impl IntoIterator<Item = &'a Guard>) -> Lost {
    let losses: Vec<_> = guards.into_iter().map(|guard| Box::pin(guard.lost())).collect();
    match losses.is_empty() {
        true => std::future::pending().await,
        false => select_all(losses).await.0,
    }
}
