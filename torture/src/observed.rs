//! A backend whose every renewal is recorded.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, HandOver, Hold, Lease, LockStatus, ReleaseOptions,
    ReleaseOutcome, Renewal,
};
use lock_core::{FencingToken, LockName, Result};

use crate::clock;
use crate::history::{Event, Writer};

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

    fn hold(&self, hold: Arc<dyn Hold>, request: &AcquireRequest) -> Arc<dyn Hold> {
        let lock = number(request.name());
        let (lease, history) = (request.lease().clone(), self.history.clone());
        Arc::new(ObservedHold {
            hold,
            lock,
            lease,
            history,
        })
    }
}

/// What the locks of a run are called.
pub(crate) fn name(lock: usize) -> String {
    format!("lock-{lock}")
}

fn number(name: &LockName) -> usize {
    let number = name
        .as_str()
        .strip_prefix("lock-")
        .and_then(|number| number.parse().ok());
    number.expect("all names of a run are made by `name`")
}

#[async_trait]
impl DistributedLock for Observed {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.backend.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        Ok(match self.backend.acquire(request).await? {
            Attempt::Granted(hold, armed) => Attempt::Granted(self.hold(hold, request), armed),
            other => other,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.backend.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.backend.status(name).await
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

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.hold.release(how).await
    }

    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        Ok(match self.hold.hand_over(next).await? {
            HandOver::Granted(hold, armed) => {
                let (lock, lease, history) = (self.lock, next.lease().clone(), self.history.clone());
                HandOver::Granted(
                    Arc::new(ObservedHold {
                        hold,
                        lock,
                        lease,
                        history,
                    }),
                    armed,
                )
            }
            other => other,
        })
    }
}
