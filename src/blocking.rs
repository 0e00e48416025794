//! The same locks without async: for threads, command-line programs and other runtimes. Needs the feature `blocking`.
//!
//! ```
//! # fn main() -> Result<(), polylock::Error> {
//! let locks = polylock::blocking::connect("memory:")?;
//! let guard = locks.lock("orders/42").acquire()?; // renewed until it is released, while your code runs
//! guard.check()?;
//! guard.release()?;
//! locks.shutdown()?; // at the end of `main`: waits for the releases of dropped guards
//! # Ok(()) }
//! ```
//!
//! One thread, named `polylock`, drives all requests and renewals of the process. What that costs, and what it means inside async
//! code, for dropped guards and for forks: [`lock_core::blocking`].
//!
//! With a [`Config`](crate::Config): `config.connect_lazy()?.blocking()`, then [`connect`](Locker::connect).

pub use lock_core::blocking::{
    Election, Guard, Lock, Locker, MultiGuard, Observer, RwLock, Semaphore, Term, UpgradableGuard, UpgradableLock,
    acquire_all, acquire_all_within, try_acquire_all,
};

use crate::Result;

/// Connects to the lock server that a URL names: see [`connect`](crate::connect()).
///
/// # Errors
/// Those of [`connect`](crate::connect()).
///
/// # Examples
/// ```
/// # fn main() -> Result<(), polylock::Error> {
/// let locks = polylock::blocking::connect("memory:")?;
/// locks.lock("orders/42").with(|held| println!("fencing token {}", held.token()))?;
/// # Ok(()) }
/// ```
pub fn connect(url: &str) -> Result<Locker> {
    let locks = connect_lazy(url)?;
    locks.connect()?;
    Ok(locks)
}

/// As [`connect`], but does no I/O: the first acquire reaches the server, or fails.
///
/// # Errors
/// Those of [`connect_lazy`](crate::connect_lazy).
pub fn connect_lazy(url: &str) -> Result<Locker> {
    Ok(crate::connect_lazy(url)?.blocking())
}
