//! A backend of which one learns what core has it undo.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, Change, DistributedLock, HolderId, LockStatus};
use lock_core::{Guarantee, LockName, Result, Verdict};

/// Remembers which requests it was asked for, and which of them were abandoned.
#[derive(Debug)]
pub(crate) struct Watched {
    backend: Arc<dyn DistributedLock>,
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    asked: HashSet<HolderId>,
    abandoned: HashSet<HolderId>,
}

impl Watched {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>) -> Arc<Self> {
        let requests = Mutex::default();
        Arc::new(Self { backend, requests })
    }

    /// Whatever was asked until now does not count.
    pub(crate) fn forget(&self) {
        self.requests().asked.clear();
    }

    /// The number of requests that were sent.
    pub(crate) fn asked(&self) -> usize {
        self.requests().asked.len()
    }

    /// The number of requests that were sent and abandoned.
    pub(crate) fn undone(&self) -> usize {
        let requests = self.requests();
        requests.asked.intersection(&requests.abandoned).count()
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl DistributedLock for Watched {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        self.backend.keeps(guarantee)
    }

    async fn connect(&self) -> Result<()> {
        self.backend.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.requests().asked.insert(request.holder());
        self.backend.acquire(request).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.requests().abandoned.insert(request.holder());
        self.backend.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.backend.status(name).await
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        self.backend.follow(name).await
    }
}
