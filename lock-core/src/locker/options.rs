//! The defaults that a locker gives its locks.

use std::time::Duration;

use super::Locker;
use crate::sync::Arc;
use crate::token::FencingToken;

impl Locker {
    /// Sets the TTL: how long a lock stays taken after its process died. Defaults to 30 s. While the process lives, the lock
    /// is renewed every third of the TTL. On ZooKeeper and with PostgreSQL's `strategy=session`, the session timeout counts instead
    /// of a longer TTL: see [`Lock::ttl`](crate::Lock::ttl).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new()).with_ttl(Duration::from_secs(10));
    /// assert_eq!(locks.lock("a").options().ttl, Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self.ttl_is_chosen = true;
        self
    }

    /// Sets a label, shown to anyone who asks who holds a lock: at most 255 bytes, and 245 on a quorum. Defaults to `host:pid`.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new()).with_label("worker 7");
    /// let _guard = locks.lock("a").acquire().await?;
    /// assert_eq!(locks.status("a").await?.holders[0].label.as_deref(), Some("worker 7"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.options.label = Some(label.into());
        self
    }

    /// Stores no label with the locks, so that nobody learns the name of this host.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new()).without_label();
    /// let _guard = locks.lock("a").acquire().await?;
    /// assert_eq!(locks.status("a").await?.holders[0].label, None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn without_label(mut self) -> Self {
        self.options.label = None;
        self
    }

    /// Sets the operation timeout: how long a `try_acquire`, an extension, an awaited release or a status waits for a server
    /// that does not answer. Defaults to 5 s; 0 is refused when the locker connects or acquires. How long connecting may take, and how long a single connection may be silent,
    /// are settings of the backend.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new()).with_operation_timeout(Duration::from_secs(1));
    /// assert!(locks.lock("a").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_operation_timeout(mut self, limit: Duration) -> Self {
        self.limits.operation_timeout = limit;
        self
    }

    /// Sets how many times in a row a lock may pass from one waiter of this process to the next. Defaults to 16. After
    /// that, waiters of other processes have their turn; with 0 they have it after every release. A larger number is
    /// faster where many tasks of one process want the same lock, and lets other processes wait longer. More than 16 count as
    /// 16 here, since a grant reserves no more tokens. While this process also waits for the lock in another mode, as a reader
    /// or with permits, the server's queue decides after every release.
    ///
    /// As many readers of this process may join a shared hold, during the first third of its TTL, also more than 16. None joins
    /// while a writer of this process waits. With 0, each reader has a hold of its own.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = Locker::new(MemoryBackend::new()).with_passes(0); // strictly first come, first served
    /// locks.lock("a").acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_passes(mut self, at_most: u32) -> Self {
        self.limits.passes = at_most;
        self
    }

    /// Grants only tokens above `floor`. None by default.
    ///
    /// For data that is fenced with the tokens of another lock server. After a move, the new server's tokens may be
    /// smaller than those that the data has seen, and its fence would reject every holder. Pass the largest token of the
    /// data to every process that uses the new server. Tokens then go on from there: once a lock was granted above the
    /// floor, its later tokens are above it too, with and without a floor.
    ///
    /// An acquire with a floor of 2^63 - 1 fails: no token is above it.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{FencingToken, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let largest: FencingToken = "1700000000000000".parse()?; // read from the fenced data
    /// let locks = Locker::new(MemoryBackend::new()).with_token_floor(largest);
    /// let guard = locks.lock("stock/42").acquire().await?;
    /// assert!(guard.token() > largest);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_token_floor(mut self, floor: FencingToken) -> Self {
        self.options.token_floor = Some(floor);
        self
    }
}
