//! What a guard asks of the server: more time, a weaker mode, and the end of its hold.

use std::time::Duration;

use super::{Guard, Release};
use crate::background::runner::ensure_running;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::release::release_share;
use crate::hold::renewal::RenewedBy;

impl Guard {
    /// Keeps the lock for at least `ttl` from now, even if no renewal succeeds, or the process dies. Never shortens a hold. A
    /// release ends the extension with the hold; the next holder has the lock for its own TTL.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`] if the backend cannot extend, or the lease is fixed.
    /// - [`ErrorKind::Misconfigured`] if the backend cannot keep such a TTL, or if it is longer than what is left of the
    ///   [maximum hold](crate::Lock::hold_at_most).
    /// - [`ErrorKind::Lost`] if the hold was lost.
    /// - [`ErrorKind::Unavailable`] if the server did not answer within the locker's operation timeout.
    ///
    /// After any of them but `Lost`, the lock is held for as long as [`valid_for`](Self::valid_for) returns.
    ///
    /// # Cancel safety
    /// If it is dropped, the server may or may not have extended the hold. Renewals go on.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await?;
    /// guard.extend(Duration::from_secs(600)).await?;
    /// assert!(guard.valid_for() > Duration::from_secs(500));
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        self.0.keeper().check_process()?;
        let hold = self.hold();
        if hold.renewals.by == RenewedBy::Nobody {
            let message = "a fixed lease is never extended: leave out `fixed_lease`, or take a longer ttl";
            return Err(Error::new(ErrorKind::Unsupported, message).with_name(&hold.lock.name));
        }
        let limits = hold.lock.limits;
        let refused = |error: Error| error.about(&hold.lock.name);
        limits.check_extend().map_err(refused)?;
        limits.check_ttl(ttl).map_err(refused)?;
        hold.check()?;
        hold.check_maximum(ttl).map_err(refused)?;
        hold.extend(ttl, limits.operation_timeout).await
    }

    /// Goes from writing to reading in place: makes this exclusive hold a shared one, with the same token. Nobody writes in
    /// between, and waiting readers enter. Does nothing if the hold is shared already.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`] if the backend cannot downgrade.
    /// - [`ErrorKind::Misconfigured`] if this is neither a write guard nor a read guard, if it has a
    ///   [minimum hold](crate::Lock::hold_at_least), or if guards of the same [`ReentryKey`](crate::ReentryKey) hold the lock too.
    ///   All are found before anything is sent.
    /// - [`ErrorKind::Lost`] if the hold was lost.
    /// - [`ErrorKind::Unavailable`] if the server did not answer within the locker's operation timeout.
    ///
    /// After `Unavailable` the guard counts as shared, but the server may still keep all others out. Call it again to make
    /// sure. A release ends the hold in either mode.
    ///
    /// # Cancel safety
    /// If it is dropped, the guard counts as shared, as after `Unavailable`.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let (locks, elsewhere) = { let server = MemoryBackend::new(); (Locker::new(server.clone()), Locker::new(server)) };
    /// let catalog = locks.rw_lock("catalog");
    /// let mut guard = catalog.write().acquire().await?;
    /// // change it, then
    /// guard.downgrade().await?;
    /// # let catalog = elsewhere.rw_lock("catalog");
    /// assert!(catalog.read().try_acquire().await?.is_some()); // beside others, see that the change is right
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(&mut self) -> Result<()> {
        self.0.downgrade().await
    }

    /// Releases the lock, and reports whether it was held until now. If guards share a hold by a
    /// [`ReentryKey`](crate::ReentryKey), the last one releases it.
    ///
    /// If the next caller of this process takes the lock over as it is, the server is not asked. If somebody has deleted the lock
    /// there, that caller learns of it with its next renewal.
    ///
    /// If the server does not answer, the release is retried for up to the locker's operation timeout (5 s by default). After
    /// that the retries go on in the background, until the lease has been over for a TTL.
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`] if the hold had ended before this was called: somebody else may have had the lock meanwhile.
    /// - [`ErrorKind::Unavailable`] if the server did not answer within the operation timeout, or while the lease lasted.
    /// - Otherwise the error of the server.
    ///
    /// After any error the guard no longer counts as held, and the lock frees itself within the TTL.
    ///
    /// # Cancel safety
    /// If it is dropped, the release finishes in the background.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let guard = Locker::new(server.clone()).lock("a").acquire().await?;
    /// server.take_away("a")?; // an operator deletes the key
    /// let error = guard.release().await.unwrap_err();
    /// assert!(error.is_lost()); // another holder may have had it
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<Release> {
        ensure_running(self.0.keeper())?;
        let limit = self.hold().lock.limits.operation_timeout;
        Ok(match release_share(self.0, limit).await? {
            true => Release::StillShared,
            false => Release::Released,
        })
    }
}
