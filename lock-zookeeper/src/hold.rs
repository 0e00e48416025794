//! A hold: an ephemeral node that is the first in its directory.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::backend::{Armed, Hold, LostCause, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{Error, FencingToken, Result};
use tokio::time::timeout;
use zookeeper_client::Error as Driver;

use crate::backend::Shared;
use crate::claim::{Claim, Held, Outcome, Stage};
use crate::error::{self, Fate};

/// One handle to a hold. Once the last one is dropped without a release, the lease is armed no more, and the node is
/// deleted when it has ended.
pub(crate) struct ZooKeeperHold {
    /// Keeps the session's supervisor.
    shared: Arc<Shared>,
    claim: Arc<Claim>,
    held: Arc<Held>,
}

impl ZooKeeperHold {
    pub(crate) fn new(shared: Arc<Shared>, claim: Arc<Claim>, held: Arc<Held>) -> Self {
        claim.add_handle();
        Self { shared, claim, held }
    }

    /// Arms the lease by what the session's heartbeats have proven.
    pub(crate) fn arm(&self) -> Result<Armed> {
        let request = &self.claim.request;
        self.held.session.admit(request.holder(), request.lease(), None)
    }

    /// Asks whether the hold is still ours, and arms the lease by a heartbeat from now on. `None` when it is not.
    pub(crate) async fn confirm(&self) -> Result<Option<Armed>> {
        let session = &self.held.session;
        let ask = async {
            if session.connected().await.is_err() {
                return Ok(None);
            }
            let sync = session.sync();
            let node = session.client.get_data(&self.held.path);
            let found = match tokio::join!(sync, node) {
                (Ok(()), found) => found,
                (Err(error), _) => Err(error),
            };
            match found {
                Ok((_, stat)) if session.owns(&stat) => {
                    session.next_beat().await?;
                    self.arm().map(Some)
                }
                Ok(_) | Err(Driver::NoNode) => {
                    self.claim.request.lease().lose(LostCause::NotHeld);
                    Ok(None)
                }
                Err(error) if error::fate(&error) == Fate::SessionEnded => Ok(None),
                Err(error) => Err(error::from_driver(error)),
            }
        };
        let limit = self.shared.config.connect_timeout();
        timeout(limit, ask)
            .await
            .unwrap_or_else(|_| Err(error::no_answer(limit)))
    }

    fn named(&self, error: Error) -> Error {
        error.with_name(self.claim.request.name())
    }
}

#[async_trait]
impl Hold for ZooKeeperHold {
    fn token(&self) -> FencingToken {
        self.held.token
    }

    /// The session renews: this asks whether the hold is still ours. A ttl beyond the session timeout has no effect.
    async fn renew(&self, _ttl: std::time::Duration) -> Result<Renewal> {
        match self.confirm().await {
            Ok(Some(armed)) => Ok(Renewal::Renewed(armed)),
            Ok(None) => Ok(Renewal::Lost),
            Err(error) => Err(self.named(error)),
        }
    }

    async fn release(&self, _how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.held.begin_release();
        let limit = self.shared.config.connect_timeout();
        match self.claim.outcome(limit).await {
            Some(Outcome::Released) if self.held.report_release() => Ok(ReleaseOutcome::Released),
            Some(Outcome::Failed(error)) if self.held.report_release() => Err(self.named(error)),
            Some(_) => Ok(ReleaseOutcome::AlreadyLost),
            None => Err(self.named(error::no_answer(limit))),
        }
    }
}

impl Drop for ZooKeeperHold {
    fn drop(&mut self) {
        if self.claim.drop_handle() {
            let holder = self.claim.holder();
            // A fixed one ends by itself, but may be lost before.
            if !self.claim.request.is_fixed() {
                self.held.session.forget(holder);
            }
            if matches!(*self.claim.stage.borrow(), Stage::Over(_)) {
                self.shared.claims.close(holder);
            }
        }
    }
}

impl fmt::Debug for ZooKeeperHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperHold")
            .field("name", self.claim.request.name())
            .field("token", &self.held.token)
            .finish_non_exhaustive()
    }
}
