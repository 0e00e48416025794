//! A backend whose every grant and renewal is recorded.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, Hold, Lease, ListFrom, ListPage, LockStatus,
    ReleaseOptions, ReleaseOutcome, Renewal, Revoke, Revoked, rules,
};
use lock_core::{FencingToken, Guarantee, LockName, Result, Verdict};

use crate::clock;
use crate::names::lock_number;
use crate::record::{Event, Writer};

/// Passes everything on, and records until when each renewal lets its hold be believed in: nobody can ask a guard that
/// was paused.
#[derive(Debug)]
pub(crate) struct Observed {
    backend: Arc<dyn DistributedLock>,
    history: Writer,
}

#[derive(Debug)]
struct ObservedHold {
    hold: Arc<dyn Hold>,
    lock: usize,
    lease: Lease,
    history: Writer,
}

impl Observed {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>, history: Writer) -> Self {
        Self { backend, history }
    }
}

impl ObservedHold {
    /// Records a grant.
    fn granted(hold: Arc<dyn Hold>, request: &AcquireRequest, history: &Writer) -> Arc<dyn Hold> {
        let lock = lock_number(request.name());
        let (lease, token) = (request.lease().clone(), hold.token().as_u64());
        // Belief counts from before sending.
        let believed = clock::nanos(rules::lease_time(request.ttl()));
        let sent = clock::at_end_of(|| lease.valid_for()).map_or(0, |end| end.saturating_sub(believed));
        history.event(Event::Granted {
            lock,
            token,
            sent,
            passed: false,
        });
        Arc::new(Self {
            hold,
            lock,
            lease,
            history: history.clone(),
        })
    }
}

#[async_trait]
impl DistributedLock for Observed {
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
        Ok(match self.backend.acquire(request).await? {
            Attempt::Granted(hold, armed) => {
                let hold = ObservedHold::granted(hold, request, &self.history);
                Attempt::Granted(hold, armed)
            }
            other => other,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.backend.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.backend.status(name).await
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        self.backend.list(from, at_most).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        self.backend.revoke(name, token, how).await
    }
}

/// Records until when the hold is believed in.
struct OnDrop<'a>(&'a ObservedHold);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        if let Some(end) = clock::at_end_of(|| self.0.lease.valid_for()) {
            let (lock, token) = (self.0.lock, self.0.token().as_u64());
            self.0.history.event(Event::Armed { lock, token, end });
        }
    }
}

#[async_trait]
impl Hold for ObservedHold {
    fn token(&self) -> FencingToken {
        self.hold.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        // However it ends: the backend may have armed the lease before an error, or before core gave up on it.
        let _recorded = OnDrop(self);
        self.hold.renew(ttl).await
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        self.hold.raise_token(token).await
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let _recorded = OnDrop(self);
        self.hold.downgrade(ttl).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.hold.release(how).await
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let (lock, history) = (self.lock, self.history.clone());
        let hold = self.hold.pass(next)?;
        let event = Event::Granted {
            lock,
            token: hold.token().as_u64(),
            sent: clock::now(),
            passed: true,
        };
        history.event(event);
        Some(Arc::new(Self {
            hold,
            lock,
            lease: next.clone(),
            history,
        }))
    }
}
