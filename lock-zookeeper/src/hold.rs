//! A hold: an ephemeral node that is the first in its directory.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::backend::{Armed, Hold, LostCause, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{Error, FencingToken, Result};
use tokio::time::sleep;
use zookeeper_client::Error as Driver;

use crate::claims::{Claim, Held, Outcome, Stage};
use crate::client::Client;
use crate::error::{self, Fate};

pub(crate) mod end;

/// One handle to a hold. Once the last one is dropped without a release, the lease is armed no more, and the node is
/// deleted when it has ended.
pub(crate) struct ZooKeeperHold {
    /// Keeps the session's supervisor.
    client: Arc<Client>,
    claim: Arc<Claim>,
    held: Arc<Held>,
}

impl ZooKeeperHold {
    pub(crate) fn new(client: Arc<Client>, claim: Arc<Claim>, held: Arc<Held>) -> Self {
        claim.add_handle();
        Self { client, claim, held }
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
            let Ok(connection) = session.connected().await else {
                return Ok(None);
            };
            let sync = session.sync(&connection);
            let node = connection.client.get_data(&self.held.path);
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
        let limit = self.client.config.connect_timeout();
        tokio::select! {
            biased;
            answer = ask => answer,
            () = self.client.supervisor.forsaken(session) => Ok(None),
            () = sleep(limit) => Err(error::no_answer(limit, session.outage())),
        }
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
        match self.client.outcome(&self.claim).await {
            Ok(Outcome::Released) if self.held.report_release() => Ok(ReleaseOutcome::Released),
            // One that was refused is still there.
            Ok(Outcome::Failed(error)) if self.held.report_release() || error.is_not_executed() => {
                Err(self.named(error))
            }
            Ok(_) => Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => Err(self.named(error)),
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
            if matches!(self.claim.stage(), Stage::Over(_)) {
                self.client.claims.close(holder);
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
