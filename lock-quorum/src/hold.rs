//! A hold: as long as a majority of all nodes votes for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Hold, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{FencingToken, Result};

use crate::client::Client;
use crate::votes::Votes;
use crate::{end, follow, renew};

/// One handle to a hold. When the last one is dropped without a release, sessions stop prolonging the lease, and the votes end
/// with it.
pub(crate) struct QuorumHold {
    client: Arc<Client>,
    votes: Arc<Votes>,
    token: FencingToken,
}

impl QuorumHold {
    pub(crate) fn new(client: &Arc<Client>, votes: &Arc<Votes>, token: FencingToken) -> Self {
        votes.add_handle();
        Self {
            client: client.clone(),
            votes: votes.clone(),
            token,
        }
    }
}

#[async_trait]
impl Hold for QuorumHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let renewal = renew::renew(&self.client, &self.votes, ttl).await;
        renewal.map_err(|error| error.with_name(self.votes.request.name()))
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let released = end::release(&self.client, &self.votes, how).await;
        released.map_err(|error| error.with_name(self.votes.request.name()))
    }
}

impl Drop for QuorumHold {
    fn drop(&mut self) {
        if self.votes.drop_handle() {
            follow::dropped(&self.client, &self.votes);
        }
    }
}

impl fmt::Debug for QuorumHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumHold")
            .field("name", self.votes.request.name())
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
