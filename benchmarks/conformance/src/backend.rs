//! A peer's client as the raw cases call it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::WaitLimit;
use lock_core::backend::{
    AcquireRequest, Attempt, Busy, Capabilities, DistributedLock, Hold, Lease, LockStatus, ReleaseOptions,
    ReleaseOutcome, Renewal, SentAt,
};
use lock_core::{ErrorKind, FencingToken, LockName, Result};

use crate::subject::{Held, Peer};

#[derive(Debug)]
pub(crate) struct PeerBackend(pub(crate) Peer);

#[derive(Debug)]
struct PeerHold {
    held: Held,
    lease: Lease,
}

#[async_trait]
impl DistributedLock for PeerBackend {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    /// It connects with its first acquire.
    async fn connect(&self) -> Result<()> {
        Ok(())
    }

    /// A try, so that the case learns that the name is taken, and then a wait.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let waits = [WaitLimit::Try, WaitLimit::Forever];
        for wait in &waits[usize::from(!self.0.tries)..] {
            let mut pending = self.0.acquiring(request.name().as_str(), request.ttl(), *wait, false);
            let answer = tokio::select! {
                answer = pending.answered() => answer?,
                () = request.given_up() => return Ok(Attempt::Busy(Busy::new())),
            };
            if let Some(held) = self.0.held(pending.id(), &answer) {
                return granted(request, held);
            }
            if !request.waits() {
                break;
            }
            request.note_busy(Busy::new());
        }
        Ok(Attempt::Busy(Busy::new()))
    }

    /// A request that is given up has been cancelled.
    async fn abandon(&self, _: &AcquireRequest) -> Result<()> {
        Ok(())
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.view.status(&self.0.namespace, name.as_str()).await
    }
}

fn granted(request: &AcquireRequest, held: Held) -> Result<Attempt> {
    let lease = request.lease().clone();
    let armed = lease.arm(SentAt::now(), held.valid().unwrap_or(request.ttl()))?;
    Ok(Attempt::Granted(Arc::new(PeerHold { held, lease }), armed))
}

#[async_trait]
impl Hold for PeerHold {
    fn token(&self) -> FencingToken {
        self.held.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        match self.held.extended(ttl).await {
            Ok(valid) => {
                let armed = self.lease.arm(SentAt::now(), valid.unwrap_or(ttl));
                Ok(armed.map_or(Renewal::Lost, Renewal::Renewed))
            }
            Err(error) if error.kind() == ErrorKind::Lost => Ok(Renewal::Lost),
            Err(error) => Err(error),
        }
    }

    async fn release(&self, _: ReleaseOptions) -> Result<ReleaseOutcome> {
        match self.held.released().await {
            Ok(()) => Ok(ReleaseOutcome::Released),
            Err(error) if error.kind() == ErrorKind::Lost => Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => Err(error),
        }
    }
}
