//! The guarantees that the application requires, and the verdicts of its server.

use super::Locker;
use crate::error::Result;
use crate::guarantee::{Guarantee, Verdict};
use crate::runtime;
use crate::sync::Arc;

impl Locker {
    /// Requires that the server keeps these guarantees, besides those that were required before. Does no I/O: call
    /// [`connect`](Self::connect) after it, so that a server that does not keep one is refused at start. Acquires check it as well, by
    /// what the backend read when it last connected. After a change for the worse they fail, and holds stay. An acquire that would fail
    /// so connects again first, at most once a second, so that a change for the better is seen; on Redis with its next new connection.
    ///
    /// A guarantee that the server cannot be asked about is not kept, unless an operator [vouches](Self::trusting) for it.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Guarantee, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new());
    /// let ordered = locks.clone().require([Guarantee::Fifo, Guarantee::Permits(5)]);
    /// ordered.connect().await?;
    ///
    /// let replicated = locks.require([Guarantee::Fifo, Guarantee::Failover]);
    /// let error = replicated.connect().await.unwrap_err(); // there is no second server
    /// assert!(error.to_string().contains("failover"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn require(mut self, guarantees: impl IntoIterator<Item = Guarantee>) -> Self {
        Arc::make_mut(self.required.get_or_insert_default()).require(guarantees);
        self
    }

    /// Takes an operator's word for these guarantees where the server cannot be asked: its [verdict](Verdict) is unknown. What
    /// the server is known not to keep stays a miss.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Guarantee, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new()).require([Guarantee::Failover]);
    /// assert!(locks.connect().await.is_err());
    /// locks.trusting([Guarantee::Failover]).connect().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn trusting(mut self, guarantees: impl IntoIterator<Item = Guarantee>) -> Self {
        Arc::make_mut(self.required.get_or_insert_default()).trust(guarantees);
        self
    }

    /// Connects, and says of each guarantee whether the server keeps it: by what the backend offers, and by what it read
    /// of the server when it connected. Required or not makes no difference.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), but for a guarantee that is missed.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// for (guarantee, verdict) in locks.guarantees().await? {
    ///     println!("{guarantee}: {verdict}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn guarantees(&self) -> Result<Vec<(Guarantee, Verdict)>> {
        self.shared.check_open()?;
        self.shared.keeper.check_process()?;
        runtime::current()?;
        let backend = &self.shared.backend;
        backend.lock.connect().await?;
        backend.note_reached();
        let all = backend.capabilities.guarantees();
        Ok(all.map(|guarantee| (guarantee, backend.verdict(guarantee))).into())
    }
}
