//! A hold: an ephemeral node that is the first in its directory, or one of those in front that share the lock.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::backend::{Armed, Hold, Lease, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{Error, FencingToken, Result};
use tokio::time::sleep;
use zookeeper_client::Error as DriverError;

use crate::claims::{Claim, Grant, Outcome, Stage};
use crate::client::Client;
use crate::error::{self, Failure};
use crate::protocol::{self, NodeData};

pub(crate) mod end;
pub(crate) mod keep;
mod raise;
pub(crate) mod release;
mod token_mark;

pub(crate) use self::token_mark::TokenMark;

/// One handle to a hold. When the last one is dropped without a release, the session stops renewing the lease. The node
/// is deleted when the lease ends.
pub(crate) struct ZooKeeperHold {
    /// Keeps the session's supervisor alive.
    client: Arc<Client>,
    claim: Arc<Claim>,
    grant: Arc<Grant>,
    /// The grant's token, or a later one if the hold was passed on.
    token: FencingToken,
    /// The number of reserved tokens that are left, this one included.
    reserved: u32,
    lease: Lease,
}

impl ZooKeeperHold {
    pub(crate) fn new(client: Arc<Client>, claim: Arc<Claim>, grant: Arc<Grant>) -> Self {
        let (token, lease) = (grant.token.number, claim.request.lease().clone());
        let reserved = protocol::reserved(claim.request.reserve());
        Self::with_token(client, claim, grant, (token, reserved), lease)
    }

    fn with_token(
        client: Arc<Client>,
        claim: Arc<Claim>,
        grant: Arc<Grant>,
        (token, reserved): (FencingToken, u32),
        lease: Lease,
    ) -> Self {
        claim.add_handle();
        Self {
            client,
            claim,
            grant,
            token,
            reserved,
            lease,
        }
    }

    /// Arms the lease by what the session's heartbeats have proven. From here on the hold counts as its caller's.
    pub(crate) fn arm(&self) -> Result<Armed> {
        let armed = self.grant.session.arm_lease(&self.lease)?;
        self.claim.note_received();
        Ok(armed)
    }

    /// Asks the server whether the hold is still ours, and arms the lease by a later heartbeat. `None` if it is not.
    pub(crate) async fn confirm(&self) -> Result<Option<Armed>> {
        let session = &self.grant.session;
        let ask = async {
            let Ok(connection) = session.connected().await else {
                return Ok(None);
            };
            let sync = session.sync(&connection);
            let node = connection.client.get_data(&self.grant.path);
            let found = match tokio::join!(sync, node) {
                (Ok(()), found) => found,
                (Err(error), _) => Err(error),
            };
            match found {
                Ok((_, stat)) if session.owns(&stat) => {
                    session.next_heartbeat().await?;
                    self.arm().map(Some)
                }
                Ok(_) | Err(DriverError::NoNode) => {
                    self.claim.lose_hold();
                    Ok(None)
                }
                Err(error) if error::classify(&error) == Failure::SessionEnded => Ok(None),
                Err(error) => Err(error::lock_error(error)),
            }
        };
        let limit = self.client.config.connect_timeout();
        tokio::select! {
            biased;
            answer = ask => answer,
            () = self.client.sessions.unserved(session) => Ok(None),
            () = sleep(limit) => Err(error::no_answer(limit, session.outage())),
        }
    }

    /// The place in the queue and the token stay. Readers that wait watch the node, and see the mark.
    async fn try_downgrade(&self) -> Result<Renewal> {
        let session = &self.grant.session;
        let ask = async {
            loop {
                let Ok(connection) = session.connected().await else {
                    return Ok(Renewal::Lost);
                };
                return match self.mark_downgraded(&connection.client).await {
                    Ok(()) => self.arm().map(Renewal::Renewed),
                    // The hold's task wrote the token meanwhile, or a raise a larger one.
                    Err(DriverError::BadVersion) => continue,
                    Err(DriverError::NoNode) => {
                        self.claim.lose_hold();
                        Ok(Renewal::Lost)
                    }
                    Err(error) if error::classify(&error) == Failure::SessionEnded => Ok(Renewal::Lost),
                    Err(error) => Err(error::lock_error(error)),
                };
            }
        };
        let limit = self.client.config.connect_timeout();
        tokio::select! {
            biased;
            answer = ask => answer,
            () = self.client.sessions.unserved(session) => Ok(Renewal::Lost),
            () = sleep(limit) => Err(error::no_answer(limit, session.outage())),
        }
    }

    /// One read and one write of our node. It keeps a token to which it was raised.
    async fn mark_downgraded(&self, client: &zookeeper_client::Client) -> Result<(), DriverError> {
        let (own, stat) = client.get_data(&self.grant.path).await?;
        let data = NodeData {
            is_downgraded: true,
            token: NodeData::parse(&own).token.max(Some(self.token.as_u64())),
            ..NodeData::labelled(self.claim.request.label())
        };
        client
            .set_data(&self.grant.path, &data.encode(), Some(stat.version))
            .await?;
        Ok(())
    }

    fn named(&self, error: Error) -> Error {
        error.with_name(self.claim.request.name())
    }
}

#[async_trait]
impl Hold for ZooKeeperHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    /// Asks the server whether the hold is still ours. The session renews it; a ttl beyond its timeout has no effect.
    async fn renew(&self, _ttl: std::time::Duration) -> Result<Renewal> {
        match self.confirm().await {
            Ok(Some(armed)) => Ok(Renewal::Renewed(armed)),
            Ok(None) => Ok(Renewal::Lost),
            Err(error) => Err(self.named(error)),
        }
    }

    /// Marks the node as shared. The session renews it, whatever the ttl is.
    async fn downgrade(&self, _ttl: std::time::Duration) -> Result<Renewal> {
        self.try_downgrade().await.map_err(|error| self.named(error))
    }

    /// Two reads at once and a transaction. The raise counts for all locks of the root path.
    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        self.try_raise(token).await.map_err(|error| self.named(error))
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.claim.leave();
        self.grant.begin_release(how.keep_for);
        match self.client.outcome(&self.claim).await {
            Ok(Outcome::Released) if self.grant.report_release() => Ok(ReleaseOutcome::Released),
            // A node whose delete was rejected is still there.
            Ok(Outcome::Failed(error)) if self.grant.report_release() || error.is_not_executed() => {
                Err(self.named(error))
            }
            Ok(_) => Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => Err(self.named(error)),
        }
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let reserved = self.reserved.checked_sub(1).filter(|left| *left > 0)?;
        let token = FencingToken::new(self.token.as_u64() + 1)?;
        if self.grant.is_releasing() || !self.grant.session.replace_lease(self.claim.holder(), next) {
            return None;
        }
        self.claim.lease.send_replace(next.clone());
        let (client, claim, grant) = (self.client.clone(), self.claim.clone(), self.grant.clone());
        let passed = Self::with_token(client, claim, grant, (token, reserved), next.clone());
        Some(Arc::new(passed))
    }
}

impl Drop for ZooKeeperHold {
    fn drop(&mut self) {
        if self.claim.drop_handle() {
            let holder = self.claim.holder();
            // The session must still end a fixed lease.
            if !self.claim.request.is_fixed() {
                self.grant.session.unbind_lease(holder);
            }
            // A kept node outlasts the session: if nobody was told of the grant, it is abandoned.
            let is_done = self.claim.was_received() || !self.grant.is_kept();
            if is_done && matches!(self.claim.stage(), Stage::Ended(_)) {
                self.client.claims.close(holder);
            }
        }
    }
}

impl fmt::Debug for ZooKeeperHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperHold")
            .field("name", self.claim.request.name())
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
