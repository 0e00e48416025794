//! A hold: an open transaction on a connection whose task keeps it alive.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Hold, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{Error, ErrorKind, FencingToken, Result};

use super::backend::Shared;
use crate::session::Session;

pub(super) struct RowHold {
    shared: Arc<Shared>,
    request: AcquireRequest,
    session: Arc<Session>,
    token: FencingToken,
    release: AtomicU8,
}

/// No release was tried.
const HELD: u8 = 0;
/// One was, and nobody knows how it went.
const UNKNOWN: u8 = 1;
/// It has ended, and the server knows.
const ENDED: u8 = 2;

impl RowHold {
    pub(super) fn new(
        shared: Arc<Shared>,
        request: AcquireRequest,
        session: Arc<Session>,
        token: FencingToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared,
            request,
            session,
            token,
            release: AtomicU8::new(HELD),
        })
    }

    fn ended(&self) {
        self.release.store(ENDED, Ordering::Relaxed);
        self.shared.claims.leave(self.request.holder());
    }
}

#[async_trait]
impl Hold for RowHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        match self.session.keep(ttl, self.shared.response_timeout()).await {
            Ok(answer) => Ok(Renewal::Renewed(self.request.lease().arm(answer.sent, ttl)?)),
            // The connection is the hold.
            Err(_) if self.session.has_ended() || self.release.load(Ordering::Relaxed) != HELD => Ok(Renewal::Lost),
            Err(error) => Err(error.into_error().with_name(self.request.name())),
        }
    }

    async fn release(&self, _how: ReleaseOptions) -> Result<ReleaseOutcome> {
        match self.release.load(Ordering::Relaxed) {
            HELD if !self.session.has_ended() => {}
            UNKNOWN => {
                self.shared.server.end(self.session.identity()).await?;
                self.ended();
                return Ok(ReleaseOutcome::AlreadyLost);
            }
            _ => {
                self.ended();
                return Ok(ReleaseOutcome::AlreadyLost);
            }
        }
        self.release.store(UNKNOWN, Ordering::Relaxed);
        let sql = self.shared.statements.release(self.request.name());
        match self.session.release(sql, self.shared.response_timeout()).await {
            Ok(_) => {
                self.ended();
                self.shared.pool.give_back(self.session.clone());
                Ok(ReleaseOutcome::Released)
            }
            // It was there until now: so it was ours, and now it has ended.
            Err(_) if self.shared.server.end(self.session.identity()).await? => {
                self.ended();
                Ok(ReleaseOutcome::Released)
            }
            Err(error) => Err(Error::new(ErrorKind::Unavailable, "nobody knows how the release went")
                .with_name(self.request.name())
                .with_source(error.into_error())),
        }
    }
}

impl fmt::Debug for RowHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowHold")
            .field("name", self.request.name())
            .field("token", &self.token)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
