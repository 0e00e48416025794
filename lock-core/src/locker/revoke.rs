//! Forced release.

use super::Locker;
use crate::backend::{Revoke, Revoked};
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::observe::{self, BackendRequest};
use crate::runtime;
use crate::token::FencingToken;

impl Locker {
    /// Ends the hold of this name with this token, whoever has it, for operators who want a stuck process gone. The token guards
    /// it: [`status`](Self::status) shows the token of the holder, and if that hold has ended meanwhile, nothing is changed.
    ///
    /// - [`Revoke::AtLeaseEnd`]: no renewal succeeds from now on, and the name is free when the lease would have ended. Its holder
    ///   learns that with its next renewal, which comes within a third of its TTL. Two holders never overlap.
    /// - [`Revoke::Now`]: the name is free at once. **Its former holder may go on beside the next one** until its next renewal, or,
    ///   if it is cut off from the server or has a [fixed lease](crate::Lock::fixed_lease), which is never renewed, until its lease
    ///   ends: for [`lease_left`](Revoked::Done::lease_left) at most. If the
    ///   resource rejects [tokens](crate::FencingToken) that are smaller than one that it has seen, that does no harm.
    ///
    /// The former holder's guard is lost, as [`Revoked`](crate::LostCause::Revoked) where the server can tell, and as
    /// [`NotHeld`](crate::LostCause::NotHeld) where it cannot. Its process goes on, and may acquire the lock again.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`] if the backend cannot do this. Nothing is sent.
    /// - [`ErrorKind::InvalidName`], or the error of the server.
    /// - [`ErrorKind::Unavailable`] if the server did not answer within the operation timeout. The hold is then revoked or not:
    ///   call it again, which does no harm.
    ///
    /// # Cancel safety
    /// If it is dropped, the hold is revoked or not.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # use lock_core::backend::{Revoke, Revoked};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let (stuck, locks) = (Locker::new(server.clone()), Locker::new(server));
    /// # let _guard = stuck.lock("orders/42").acquire().await?;
    /// let status = locks.status("orders/42").await?;
    /// if let Some(token) = status.holders.first().and_then(|holder| holder.token) {
    ///     match locks.revoke("orders/42", token, Revoke::AtLeaseEnd).await? {
    ///         Revoked::Done { lease_left, .. } => println!("free in {lease_left:?}"),
    ///         _ => println!("that hold had ended already"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn revoke(&self, name: impl AsRef<str>, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let name = LockName::new(name)?;
        self.shared.keeper.check_process()?;
        runtime::current()?;
        let backend = &self.shared.backend;
        let message = match how {
            Revoke::AtLeaseEnd if !backend.capabilities.revoke => {
                "this backend cannot revoke a hold at the end of its lease: its page says why"
            }
            Revoke::Now if !backend.capabilities.revoke_now => {
                "this backend cannot revoke a hold at once: its page says why"
            }
            _ => "",
        };
        if !message.is_empty() {
            return Err(Error::new(ErrorKind::Unsupported, message).with_name(&name));
        }
        observe::requested(BackendRequest::Revoke);
        let revoked = self.answered(backend.lock.revoke(&name, token, how)).await;
        let revoked = revoked.map_err(|error| error.about(&name))?;
        if revoked != Revoked::NotHeld {
            observe::revoked(&name, token, how == Revoke::Now);
        }
        Ok(revoked)
    }
}
