//! Names with a hold or a queue.

use super::Locker;
use crate::backend::{ListFrom, ListPage};
use crate::error::{Error, ErrorKind, Result};
use crate::observe::{self, BackendRequest};
use crate::runtime;

impl Locker {
    /// One page of the names that somebody holds or waits for, about `at_most` of them. For people and dashboards, not for
    /// decisions.
    ///
    /// A name that is held during the whole listing, from its first page to its last, is in one of the pages at least. A name that
    /// is taken or freed meanwhile may be listed or not, and a name may be listed twice. Exception: a name
    /// that the server moves to another machine meanwhile, as a Redis Cluster does with a hash slot, may be missing.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`] if the backend cannot do this. Nothing is sent.
    /// - [`ErrorKind::Unavailable`] if the server did not answer within the operation timeout, or the error of the server.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # use lock_core::backend::ListFrom;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// # let _guard = locks.lock("orders/42").acquire().await?;
    /// # let mut listed = 0;
    /// let mut next = Some(ListFrom::prefix("orders/"));
    /// while let Some(from) = next {
    ///     let page = locks.list(&from, 100).await?;
    ///     for name in &page.names {
    ///         println!("{name}");
    /// #       listed += 1;
    ///     }
    ///     next = page.next;
    /// }
    /// # assert_eq!(listed, 1);
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        self.shared.keeper.check_process()?;
        runtime::current()?;
        let backend = &self.shared.backend;
        if !backend.capabilities.list {
            let message = "this backend cannot list names: its page says why";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        observe::requested(BackendRequest::List);
        self.answered(backend.lock.list(from, at_most.max(1))).await
    }
}
