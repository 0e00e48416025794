//! The state that a backend and all its holds share.

use std::future::{Future, pending};
use std::sync::Arc;

use lock_core::Result;
use tokio::time::timeout;

use crate::claims::{Claim, Claims, Outcome};
use crate::config::ZooKeeperConfig;
use crate::connection::{Session, Sessions};
use crate::error;
use crate::leftover::Sweeper;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) config: Arc<ZooKeeperConfig>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) sessions: Sessions,
    pub(crate) sweeper: Sweeper,
}

impl Client {
    pub(crate) fn new(config: ZooKeeperConfig) -> Self {
        let config = Arc::new(config);
        Self {
            sessions: Sessions::new(&config),
            claims: Arc::default(),
            sweeper: Sweeper::default(),
            config,
        }
    }

    /// Waits until the task of a claim ends, or nobody runs it any more.
    pub(crate) async fn outcome(&self, claim: &Claim) -> Result<Outcome> {
        let limit = self.config.connect_timeout();
        let session = claim.session();
        let unserved = async {
            match &session {
                Some(session) => {
                    self.sessions.unserved(session).await;
                    claim.detach_task(session);
                }
                // It has ended.
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = claim.outcome(limit) => outcome.ok_or_else(|| {
                error::no_answer(limit, session.as_ref().and_then(|session| session.outage()))
            }),
            () = unserved => Ok(Outcome::SessionEnded),
        }
    }

    /// Runs requests over this session, for at most the connect timeout.
    pub(crate) async fn within_limit<T>(&self, session: &Session, ask: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.config.connect_timeout();
        timeout(limit, ask)
            .await
            .unwrap_or_else(|_| Err(error::no_answer(limit, session.outage())))
    }
}
