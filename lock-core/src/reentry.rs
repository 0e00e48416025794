//! Acquiring again what the same call chain holds already.

use std::sync::atomic::{AtomicU64, Ordering};

static LAST: AtomicU64 = AtomicU64::new(0);

/// Lets the parts of one call chain acquire the same lock without waiting for each other.
///
/// An acquire with the key of a live hold of the same [`Locker`](crate::Locker) succeeds at once, without asking the
/// server: it shares the hold, with the same token, and the hold ends when the last of its guards is released. It has
/// to ask for the same ttl, lease and minimum hold. A hold that is lost, or being released, is not shared: then the
/// acquire waits like any other.
///
/// **A key is a licence, not an identity of tasks.** Whoever has it shares the hold: two tasks that run at the same
/// time with one key do *not* exclude each other. Make one for each call chain, pass it down as an argument, and never
/// keep it in a struct that several tasks use.
///
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
    /// A key that no other one equals; clones are the same key.
    #[expect(
        clippy::new_without_default,
        reason = "a default value that is never the same one would surprise"
    )]
    pub fn new() -> Self {
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}
