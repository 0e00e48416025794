//! A hold: an open transaction on a connection whose task keeps it alive.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Hold, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{Error, ErrorKind, FencingToken, HoldState, Result};

use super::backend::Shared;
use crate::error::SqlError;
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
        // The server may keep it a little longer than we may believe in it: nothing is to revive it.
        if matches!(self.request.lease().state(), HoldState::Lost(_)) {
            return Ok(Renewal::Lost);
        }
        match self.shared.keep(&self.session, &self.request, ttl).await {
            Ok(answer) => Ok(Renewal::Renewed(self.request.lease().arm(answer.sent, ttl)?)),
            // The connection is the hold.
            Err(error) if error.is_end() => Ok(Renewal::Lost),
            Err(error) => Err(error.into_error().with_name(self.request.name())),
        }
    }

    async fn release(&self, _how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let outcome = match self.release.load(Ordering::Relaxed) {
            HELD => self.release_once().await,
            UNKNOWN => {
                let ended = self.shared.server.end(self.session.identity()).await;
                ended.map(|_| ReleaseOutcome::AlreadyLost)
            }
            _ => Ok(ReleaseOutcome::AlreadyLost),
        };
        match outcome {
            Ok(_) => self.ended(),
            Err(_) => self.release.store(UNKNOWN, Ordering::Relaxed),
        }
        outcome.map_err(|error| error.with_name(self.request.name()))
    }
}

impl RowHold {
    async fn release_once(&self) -> Result<ReleaseOutcome> {
        let (shared, name) = (&self.shared, self.request.name());
        let sql = shared.statements.release(name);
        let limit = shared.response_timeout();
        let error = match self.session.release(self.request.holder(), sql, limit).await {
            Ok(_) => {
                shared.pool.give_back(self.session.clone());
                return Ok(ReleaseOutcome::Released);
            }
            // It had ended before.
            Err(SqlError::NotHeld | SqlError::Gone) => return Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => error,
        };
        let was_there = shared.server.end(self.session.identity()).await?;
        let committed = shared.committed_token(name).await?;
        released(was_there, committed, self.token, &error).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "nobody knows how the release went").with_source(error.into_error())
        })
    }
}

/// How a release went that was not answered but with this error, after its connection was ended; `None`: nobody knows.
///
/// `was_there`: the connection was still at the server. `committed`: the row's last token that a release committed.
fn released(was_there: bool, committed: Option<u64>, ours: FencingToken, error: &SqlError) -> Option<ReleaseOutcome> {
    // Ours until we ended it, or until our release did.
    if was_there || committed == Some(ours.as_u64()) {
        return Some(ReleaseOutcome::Released);
    }
    // The other side broke the connection, and our release never came to be: the hold had ended with it.
    let broken = !matches!(error, SqlError::TimedOut(_));
    (broken && committed.is_some_and(|committed| committed < ours.as_u64())).then_some(ReleaseOutcome::AlreadyLost)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_release_without_an_answer_has_done() {
        use ReleaseOutcome::{AlreadyLost, Released};
        let ours = FencingToken::new(5).unwrap();
        let (broken, silent) = (SqlError::Ended, SqlError::TimedOut(Duration::from_secs(5)));
        assert_eq!(released(true, Some(4), ours, &silent), Some(Released));
        assert_eq!(released(false, Some(5), ours, &broken), Some(Released));
        assert_eq!(released(false, Some(0), ours, &broken), Some(AlreadyLost));
        // Our own closing may have ended it.
        assert_eq!(released(false, Some(4), ours, &silent), None);
        // Somebody has released since, and the row tells no more.
        assert_eq!(released(false, Some(6), ours, &broken), None);
        assert_eq!(released(false, None, ours, &broken), None);
    }
}
