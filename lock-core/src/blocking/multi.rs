//! Several locks at once: all of them or none.

use std::time::Duration;

use super::call::wait_for;
use super::guard::Guard;
use super::lock::Lock;
use crate::backend::lease::HoldState;
use crate::error::Result;
use crate::lost::Lost;
use crate::multi::guard::{first_loss, weakest};
use crate::sync::time::timeout;
use crate::token::FencingToken;

/// Acquires several locks, however long that takes: all of them or none. See [`acquire_all`](crate::acquire_all).
///
/// # Errors
/// Those of [`acquire_all`](crate::acquire_all). After an error no lock is held.
///
/// # Examples
/// ```
/// # use lock_core::{MemoryBackend, blocking::{Locker, acquire_all}};
/// # fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// let both = acquire_all([locks.lock("account/7"), locks.lock("account/3")])?;
/// assert_eq!(both.guards()[0].name().as_str(), "account/7"); // in the order given
/// both.release()?;
/// # Ok(()) }
/// ```
pub fn acquire_all(locks: impl IntoIterator<Item = Lock>) -> Result<MultiGuard> {
    let locks = inner(locks);
    wait_for(async move { Ok(MultiGuard::new(crate::acquire_all(locks).await?)) })
}

/// Acquires several locks within `limit` in all: all of them or none. See [`acquire_all_within`](crate::acquire_all_within).
///
/// # Errors
/// Those of [`acquire_all_within`](crate::acquire_all_within). After an error no lock is held.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use lock_core::{MemoryBackend, blocking::{Locker, acquire_all_within}};
/// # fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// let locks = [locks.lock("account/7"), locks.lock("account/3")];
/// acquire_all_within(locks, Duration::from_secs(5))?.release()?;
/// # Ok(()) }
/// ```
pub fn acquire_all_within(locks: impl IntoIterator<Item = Lock>, limit: Duration) -> Result<MultiGuard> {
    let locks = inner(locks);
    wait_for(async move { Ok(MultiGuard::new(crate::acquire_all_within(locks, limit).await?)) })
}

/// Acquires several locks if all of them are free, and returns `None` if any is taken. See
/// [`try_acquire_all`](crate::try_acquire_all).
///
/// Bind the guard: `if let Some(guard) = try_acquire_all(locks)? { .. }` holds the locks in the block, `.is_some()` does not.
///
/// # Errors
/// Those of [`try_acquire_all`](crate::try_acquire_all). After an error or `None` no lock is held.
///
/// # Examples
/// ```
/// # use lock_core::{MemoryBackend, blocking::{Locker, try_acquire_all}};
/// # fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// let taken = locks.lock("b").acquire()?;
/// assert!(try_acquire_all([locks.lock("a"), locks.lock("b")])?.is_none()); // holds neither
/// taken.release()?;
/// # Ok(()) }
/// ```
pub fn try_acquire_all(locks: impl IntoIterator<Item = Lock>) -> Result<Option<MultiGuard>> {
    let locks = inner(locks);
    wait_for(async move { Ok(crate::try_acquire_all(locks).await?.map(MultiGuard::new)) })
}

fn inner(locks: impl IntoIterator<Item = Lock>) -> Vec<crate::Lock> {
    locks.into_iter().map(Lock::into_inner).collect()
}

/// Several locks that are held together, without async: see [`MultiGuard`](crate::MultiGuard). Made by [`acquire_all`].
///
/// Dropping it posts all releases, and never waits.
#[derive(Debug)]
#[must_use = "the locks are released when their guard is dropped"]
pub struct MultiGuard(
    /// In the order given; never empty.
    Vec<Guard>,
);

impl MultiGuard {
    fn new(guard: crate::MultiGuard) -> Self {
        Self(guard.into_guards().into_iter().map(Guard::new).collect())
    }

    /// The same holds for async code.
    pub fn into_async(self) -> crate::MultiGuard {
        crate::MultiGuard::new(self.0.into_iter().map(Guard::into_async).collect())
    }

    /// The guards, in the order in which the locks were given.
    pub fn guards(&self) -> &[Guard] {
        &self.0
    }

    /// The fencing tokens, in the order in which the locks were given.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = FencingToken> {
        self.0.iter().map(Guard::token)
    }

    /// The state now: lost if any of the locks was lost, and suspect if any of them is.
    pub fn state(&self) -> HoldState {
        weakest(self.0.iter().map(Guard::state))
    }

    /// Checks that all locks are still held. Call it before each step that must not be done twice.
    ///
    /// # Errors
    /// [`Lost`], if any was lost: the first one in the order given.
    pub fn check(&self) -> Result<(), Lost> {
        self.0.iter().try_for_each(Guard::check)
    }

    /// Returns the time for which all of them are held if nothing renews them: the shortest time of any. Zero if one
    /// was lost.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.0.iter().map(Guard::valid_for).min().unwrap_or_default()
    }

    /// Waits for at most `limit` until any of the locks is lost. `None` if all are still held then.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) in a forked child.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{MemoryBackend, blocking::{Locker, acquire_all}};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let locks = Locker::new(server.clone());
    /// let both = acquire_all([locks.lock("a"), locks.lock("b")])?;
    /// server.take_away("b")?;
    /// let lost = both.wait_lost(Duration::from_secs(10))?;
    /// assert_eq!(lost.expect("it was taken away").name().as_str(), "b");
    /// # Ok(()) }
    /// ```
    pub fn wait_lost(&self, limit: Duration) -> Result<Option<Lost>> {
        let guards: Vec<_> = self.0.iter().map(Guard::lend).collect();
        for guard in &guards {
            guard.share().keeper().check_process()?;
        }
        wait_for(async move {
            let lost = first_loss(guards.iter().map(|guard| &**guard));
            Ok(timeout(limit, lost).await.ok())
        })
    }

    /// Releases all locks at the same time, and reports whether all were held until now.
    ///
    /// # Errors
    /// Those of [`MultiGuard::release`](crate::MultiGuard::release).
    pub fn release(self) -> Result<()> {
        let guard = self.into_async();
        wait_for(async move { guard.release().await })
    }

    /// The guards of their own, in the order in which the locks were given. From here on each lock ends by itself.
    pub fn into_guards(self) -> Vec<Guard> {
        self.0
    }
}
