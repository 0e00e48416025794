//! A backend that gives way before and after everything that it does.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::Result;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, Change, DistributedLock, Hold, Lease, ListFrom, ListPage, LockStatus,
    ReleaseOptions, ReleaseOutcome, Renewal, Revoke, Revoked,
};
use lock_core::{FencingToken, Guarantee, LockName, Verdict};
use tokio::task::yield_now;

/// Yields before and after every call of a backend, so that a caller can be dropped when nothing has happened yet,
/// and when the effect is there but its answer was not seen.
#[derive(Debug, Clone)]
pub struct Yielding(Arc<dyn DistributedLock>);

#[derive(Debug)]
struct YieldingHold(Arc<dyn Hold>);

impl Yielding {
    /// This backend, with more places to be dropped at.
    pub fn new(backend: Arc<dyn DistributedLock>) -> Self {
        Self(backend)
    }
}

async fn giving_way<T>(call: impl Future<Output = T>) -> T {
    yield_now().await;
    let answer = call.await;
    yield_now().await;
    answer
}

#[async_trait]
impl DistributedLock for Yielding {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        self.0.keeps(guarantee)
    }

    async fn connect(&self) -> Result<()> {
        giving_way(self.0.connect()).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        Ok(match giving_way(self.0.acquire(request)).await? {
            Attempt::Granted(hold, armed) => Attempt::Granted(Arc::new(YieldingHold(hold)), armed),
            other => other,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        giving_way(self.0.abandon(request)).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        giving_way(self.0.status(name)).await
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        giving_way(self.0.follow(name)).await
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        giving_way(self.0.list(from, at_most)).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        giving_way(self.0.revoke(name, token, how)).await
    }
}

#[async_trait]
impl Hold for YieldingHold {
    fn token(&self) -> FencingToken {
        self.0.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        giving_way(self.0.renew(ttl)).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        giving_way(self.0.release(how)).await
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        giving_way(self.0.downgrade(ttl)).await
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        giving_way(self.0.raise_token(token)).await
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        Some(Arc::new(Self(self.0.pass(next)?)))
    }
}
