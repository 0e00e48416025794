//! A hold: an open transaction on a connection whose task keeps it alive.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Hold, Lease, Mode, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{FencingToken, HoldState, Result};

use super::Shared;
use crate::connection::Session;
use crate::error::{SqlError, unknown_outcome};
use crate::protocol::row_lock::RESERVED_TOKENS;

pub(super) struct RowHold {
    shared: Arc<Shared>,
    request: AcquireRequest,
    session: Arc<Session>,
    /// The token that the row has.
    granted: FencingToken,
    token: FencingToken,
    /// The number of tokens that are left, its own included.
    reserved: u32,
    lease: Lease,
    /// Shared by all that the hold is passed on to.
    release: Arc<AtomicU8>,
}

/// No release was tried.
const HELD: u8 = 0;
/// One has begun; where it is not under way any more, it was dropped half-way.
const BEGUN: u8 = 1;
/// One has failed, and nobody knows what it did.
const UNKNOWN: u8 = 2;
/// It has ended, and the server knows.
const ENDED: u8 = 3;

impl RowHold {
    pub(super) fn new(
        shared: Arc<Shared>,
        request: AcquireRequest,
        session: Arc<Session>,
        token: FencingToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared,
            session,
            granted: token,
            token,
            reserved: match request.mode() {
                Mode::Exclusive => request.reserve().min(1 + RESERVED_TOKENS),
                _ => 1,
            },
            lease: request.lease().clone(),
            request,
            release: Arc::new(AtomicU8::new(HELD)),
        })
    }
}

#[async_trait]
impl Hold for RowHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        // The server may keep the hold a little longer than the lease lasts. A renewal must not revive the lease.
        if matches!(self.lease.state(), HoldState::Lost(_)) {
            return Ok(Renewal::Lost);
        }
        let renewed = self.session.renew(self.request.holder(), ttl, None).await;
        match renewed.map_err(|error| error.with_name(self.request.name()))? {
            Some(sent) => Ok(Renewal::Renewed(self.lease.arm(sent, ttl)?)),
            None => Ok(Renewal::Lost),
        }
    }

    async fn release(&self, _how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let outcome = match self.begin_release() {
            HELD => self.release_once(false).await,
            BEGUN => self.release_once(true).await,
            UNKNOWN => {
                let ended = self
                    .shared
                    .client
                    .end(&self.session, None)
                    .await
                    .map_err(unknown_outcome);
                ended.map(|_| ReleaseOutcome::AlreadyLost)
            }
            _ => Ok(ReleaseOutcome::AlreadyLost),
        };
        match outcome {
            Ok(_) => {
                self.release.store(ENDED, Ordering::Release);
                self.shared.claims.remove(self.request.holder());
            }
            Err(_) => self.release.store(UNKNOWN, Ordering::Release),
        }
        outcome.map_err(|error| error.with_name(self.request.name()))
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let reserved = self.reserved.checked_sub(1).filter(|left| *left > 0)?;
        let token = FencingToken::new(self.token.as_u64() + 1)?;
        let is_held = self.release.load(Ordering::Acquire) == HELD && self.session.pass(self.request.holder(), next);
        is_held.then(|| {
            Arc::new(Self {
                shared: self.shared.clone(),
                request: self.request.clone(),
                session: self.session.clone(),
                granted: self.granted,
                token,
                reserved,
                lease: next.clone(),
                release: self.release.clone(),
            }) as Arc<dyn Hold>
        })
    }
}

impl RowHold {
    /// The state of the release before this one.
    fn begin_release(&self) -> u8 {
        let begun = self
            .release
            .compare_exchange(HELD, BEGUN, Ordering::AcqRel, Ordering::Acquire);
        begun.unwrap_or_else(|earlier| earlier)
    }

    /// `repeated`: an earlier release was dropped half-way, and may have been executed.
    async fn release_once(&self, repeated: bool) -> Result<ReleaseOutcome> {
        let (shared, name, mode) = (&self.shared, self.request.name(), self.request.mode());
        let sql = shared.statements.release_in(name, mode);
        let limit = shared.client.response_timeout();
        let error = match self.session.release(self.request.holder(), sql, limit).await {
            Ok(()) => {
                // A session in the pool must have one owner, however often this was called for the same id.
                if shared.claims.remove(self.request.holder()) {
                    shared.client.pool.give_back(self.session.clone());
                }
                return Ok(ReleaseOutcome::Released);
            }
            // It had ended before.
            Err(SqlError::HoldEnded) => return Ok(ReleaseOutcome::AlreadyLost),
            Err(SqlError::NotConnected) if !repeated => return Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => error,
        };
        // Read before the connection is ended. That the server still has the connection proves nothing: a connection that
        // was killed is there for a moment after its transaction was rolled back, while the next holder has the row.
        let held = shared.held_token(&self.request).await.map_err(unknown_outcome)?;
        shared.client.end(&self.session, None).await.map_err(unknown_outcome)?;
        let committed = match mode {
            // It commits nothing by which its end could be told from its release.
            Mode::Shared => None,
            _ => shared.committed_token(name).await.map_err(unknown_outcome)?,
        };
        // The other side broke the connection, and not we.
        let broken = !repeated && !error.is_unanswered();
        released(held, committed, self.granted, broken).ok_or_else(|| unknown_outcome(error.into_lock_error()))
    }
}

/// The outcome of a release that was not answered, after its connection was ended; `None` if it is unknown.
///
/// `held`: the token of the holder just before that. `committed`: the row's last token that a release committed.
/// `broken`: the other side broke the connection.
fn released(held: Option<u64>, committed: Option<u64>, ours: FencingToken, broken: bool) -> Option<ReleaseOutcome> {
    // Ours until we ended it, or until our release did.
    if held == Some(ours.as_u64()) || committed == Some(ours.as_u64()) {
        return Some(ReleaseOutcome::Released);
    }
    // Our release never came to be: the hold had ended with the connection.
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
        assert_eq!(released(Some(5), Some(4), ours, false), Some(Released));
        assert_eq!(released(None, Some(5), ours, true), Some(Released));
        assert_eq!(released(None, Some(0), ours, true), Some(AlreadyLost));
        // Somebody else holds it already.
        assert_eq!(released(Some(6), Some(4), ours, true), Some(AlreadyLost));
        // Our own closing may have ended it.
        assert_eq!(released(None, Some(4), ours, false), None);
        // A later holder has released since: our token is not in the row any more.
        assert_eq!(released(None, Some(6), ours, true), None);
        assert_eq!(released(None, None, ours, true), None);
    }
}
