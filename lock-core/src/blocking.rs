//! The same locks without async: for threads, command-line programs and other runtimes. Needs the feature `blocking`.
//!
//! Each type here mirrors the async type of its name: the same options, errors and guarantees. [`Watch`](crate::Watch),
//! [`Error`](crate::Error), [`FencingToken`](crate::FencingToken), [`LockStatus`](crate::backend::LockStatus),
//! [`Leader`](crate::Leader) and [`ElectionState`](crate::ElectionState) are shared.
//!
//! ```
//! use std::time::Duration;
//! # use lock_core::MemoryBackend;
//! use lock_core::blocking::Locker;
//!
//! # fn main() -> Result<(), lock_core::Error> {
//! # let rows = [1, 2, 3];
//! # let write = |_row, _token| {};
//! let locks = Locker::new(MemoryBackend::new());
//! let lock = locks.lock("report").ttl(Duration::from_secs(10));
//! let guard = lock.acquire_within(Duration::from_secs(5))?;
//! for row in rows {
//!     guard.check()?; // no I/O: nothing can stop this thread, so check before each write
//!     write(row, guard.token());
//! }
//! guard.release()?;
//! locks.shutdown()?;
//! # Ok(()) }
//! ```
//!
//! # The thread
//! One thread for each process, named `polylock`, drives all requests and renewals. The first call starts it, and it runs until the
//! process ends. A call hands its request to this thread and parks its own. So locks are renewed while your code runs.
//!
//! # What a call costs
//! A call switches between two threads twice: to polylock's thread and back. On Redis, pairs of an acquire and a release in a second,
//! where each thread or task has a name of its own (medians on a machine with two cores, which the server shares; release build,
//! 2026-11-29):
//!
//! | | this API | async | redis-py | Redisson |
//! |---|---|---|---|---|
//! | 1 thread or task | 3,539 | 4,903 | 2,878 | 3,439 |
//! | 16 threads or tasks | 23,165 | 36,339 | 2,768 | 12,134 |
//!
//! So a pair of one thread took 283 µs, and 204 µs with async: 39 µs more for each of its two calls. [`Guard::check`] and the others
//! that do no I/O switch no threads. The workloads are `blocking-1` and `blocking-16` of the
//! [benchmarks](https://github.com/polylock/polylock/blob/main/docs/benchmarks.md).
//!
//! # Inside async code
//! A call blocks its thread, whatever that runs. Inside async code it neither panics nor deadlocks, but it stalls all tasks
//! of that worker: await the async API there, or use `spawn_blocking`. A wait never ends if it blocks the very thread on
//! which the holder of the lock would go on, or a caller that waits for the lock before it.
//!
//! # Drop, and the end of the process
//! Dropping a guard posts its release and never waits. [`Guard::release`], [`Lock::with`], [`Locker::scope`] and
//! [`Locker::shutdown`] wait. If the process ends before a posted release was sent, the lock stays taken until its TTL ends.
//!
//! # Forks
//! A forked child has no thread of its parent's. What the parent made returns [`Misconfigured`](crate::ErrorKind::Misconfigured) there.
//! A locker that the child makes works: its first call starts a thread of the child's own. Processes are told apart by their ids: in a
//! descendant that has the id of an ancestor that used polylock, such as the first process of a new namespace, calls never return.

pub use self::election::{Election, Term};
pub use self::guard::Guard;
pub use self::lock::Lock;
pub use self::locker::Locker;
pub use self::multi::{MultiGuard, acquire_all, acquire_all_within, try_acquire_all};
pub use self::observer::Observer;
pub use self::rw_lock::RwLock;
pub use self::semaphore::Semaphore;
pub use self::upgradable::{UpgradableGuard, UpgradableLock};

mod call;
mod election;
mod guard;
mod lock;
mod locker;
mod multi;
mod observer;
mod rw_lock;
mod semaphore;
#[cfg(test)]
mod tests;
mod thread;
mod upgradable;
