//! Keys for acquiring a lock again that the same call chain holds.

use std::sync::atomic::{AtomicU64, Ordering};

static LAST: AtomicU64 = AtomicU64::new(0);

/// A key with which the functions of one call chain acquire the same lock without waiting for each other.
///
/// An acquire with the key of a live hold of the same [`Locker`](crate::Locker) succeeds at once, without asking the
/// server. It shares the hold and its token. The hold ends when its last guard is released. The acquire must ask for the
/// same TTL, kind of lease and maximum hold, for the same minimum hold unless it reads, and for no higher token floor. A hold
/// that is lost or being released is not shared: then the acquire waits.
///
/// The key of an exclusive hold also reads at once. An acquire that wants to write while its key reads would wait for itself,
/// and returns [`Misconfigured`](crate::ErrorKind::Misconfigured) at once. Upgradable holds and permits have no key. Readers with a
/// key share a hold with that key alone. This is decided when an acquire enters the local queue, and for those that wait there.
/// An acquire that already waits at the server keeps waiting: do not await two acquires of one key in different modes at the
/// same time.
///
/// **A key does not identify a task.** All holders of the key share the hold: two tasks that run at the same time with one
/// key do *not* exclude each other. Make one key for each call chain, pass it down as an argument, and never keep it in a
/// struct that several tasks use.
///
/// # Examples
/// ```
/// # use lock_core::{Error, Locker, MemoryBackend, ReentryKey, Release};
/// struct Accounts { locks: Locker }
///
/// impl Accounts {
///     async fn transfer(&self) -> Result<(), Error> {
///         let key = ReentryKey::new(); // of this call, and of those that it makes
///         let guard = self.locks.lock("accounts").reentrant(&key).acquire().await?;
///         self.withdraw(&key).await?;
///         guard.release().await?;
///         Ok(())
///     }
///
///     /// Also called by itself, hence with a lock of its own.
///     async fn withdraw(&self, key: &ReentryKey) -> Result<(), Error> {
///         let guard = self.locks.lock("accounts").reentrant(key).acquire().await?;
///         assert_eq!(guard.release().await?, Release::StillShared);
///         Ok(())
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// Accounts { locks: Locker::new(MemoryBackend::new()) }.transfer().await
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReentryKey(u64);

impl ReentryKey {
    /// A new key, equal to no other. Clones are the same key.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::ReentryKey;
    /// assert_ne!(ReentryKey::new(), ReentryKey::new());
    /// ```
    #[expect(
        clippy::new_without_default,
        reason = "a default value that is never the same one would surprise"
    )]
    pub fn new() -> Self {
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}
