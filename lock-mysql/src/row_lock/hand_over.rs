//! Handing a hold over: the next holder takes the row within the giver's transaction, on the giver's connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, HandOver, Hold, Mode, ReleaseOptions, ReleaseOutcome};
use lock_core::{Error, Result};

use super::acquire::Outcome;
use super::claims::Claim;
use super::hold::{BEGUN, ENDED, HELD, RowHold, UNKNOWN};
use crate::connection::HandOverCommand;
use crate::error::{SqlError, unknown_outcome};
use crate::protocol::Answer;
use crate::protocol::row_lock::{AcquireTerms, acquired};

impl RowHold {
    pub(super) async fn try_hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        if self.request.mode() != Mode::Exclusive || next.mode() != Mode::Exclusive {
            return Ok(match self.release(ReleaseOptions::default()).await? {
                ReleaseOutcome::Released => HandOver::Yielded,
                _ => HandOver::AlreadyLost,
            });
        }
        let shared = &self.shared;
        let claim = shared.claims.enter(next.holder());
        // A call that was dropped half-way: its statements may have been executed.
        let mut is_repeated = false;
        if let Some(leftover) = claim.leftover() {
            is_repeated = Arc::ptr_eq(&leftover.session, &self.session) && leftover.token.is_none();
            // Answered before; or left by an acquire of its own, which is ended.
            if !is_repeated && let Some(Attempt::Granted(hold, armed)) = shared.resume(&claim, next).await? {
                return Ok(HandOver::Granted(hold, armed));
            }
        }
        match self.release.load(Ordering::Acquire) {
            HELD | BEGUN => {}
            UNKNOWN => {
                let ended = shared.client.end(&self.session, None).await;
                ended.map_err(unknown_outcome)?;
                return Ok(self.lost(&claim));
            }
            _ => return Ok(HandOver::AlreadyLost),
        }
        claim.attach(&self.session).map_err(Error::not_executed)?;
        self.note_next(Some(next));
        self.release.store(BEGUN, Ordering::Release);
        self.send(&claim, next, is_repeated).await
    }

    async fn send(&self, claim: &Claim, next: &AcquireRequest, is_repeated: bool) -> Result<HandOver> {
        let (shared, name) = (&self.shared, self.request.name());
        let (ttl, label) = (next.ttl(), next.label());
        let terms = AcquireTerms {
            ttl,
            fixed: next.is_fixed(),
            label: label.as_deref(),
            floor: next.token_floor(),
        };
        // The backend cannot see who waits at the server. After a release, InnoDB gives the row to them first.
        let releases = next.yields();
        let sql = match releases {
            true => shared.statements.release_and_acquire(name, &terms),
            false => shared.statements.hand_over(name, &terms),
        };
        let command = HandOverCommand {
            giver: self.request.holder(),
            next: next.holder(),
            sql,
            ttl,
            releases,
        };
        next.sending();
        match self.session.hand_over(command, shared.client.response_timeout()).await {
            Ok(answer) => self.handed_over(claim, next, ttl, answer, releases).await,
            Err(error) if releases && error.is_busy() => {
                self.give_back(claim).await;
                Ok(HandOver::Yielded)
            }
            // Refused, and nothing else.
            Err(error) if error.is_refusal() => {
                claim.detach();
                self.note_next(None);
                self.release.store(HELD, Ordering::Release);
                Err(error.into_lock_error().not_executed())
            }
            Err(SqlError::HoldEnded | SqlError::NotConnected) => {
                if is_repeated {
                    // What the earlier call began was not finished.
                    let ended = shared.client.end(&self.session, None).await;
                    ended.map_err(unknown_outcome)?;
                }
                Ok(self.lost(claim))
            }
            Err(error) => {
                self.release.store(UNKNOWN, Ordering::Release);
                Err(unknown_outcome(error.into_lock_error()))
            }
        }
    }

    async fn handed_over(
        &self,
        claim: &Claim,
        next: &AcquireRequest,
        ttl: Duration,
        answer: Answer,
        released: bool,
    ) -> Result<HandOver> {
        let shared = &self.shared;
        let taken = acquired(&answer, if released { 3 } else { 0 }).map_err(SqlError::into_lock_error);
        let Some(acquired) = taken.map_err(unknown_outcome)? else {
            if released {
                // Somebody has deleted the row that nobody held.
                self.give_back(claim).await;
                return Ok(HandOver::Yielded);
            }
            let ended = shared.client.end(&self.session, None).await;
            ended.map_err(unknown_outcome)?;
            return Ok(self.lost(claim));
        };
        self.release.store(ENDED, Ordering::Release);
        shared.claims.remove(self.request.holder());
        match shared.grant(claim, &self.session, next, answer, acquired, ttl).await {
            Ok(Outcome::Granted(Attempt::Granted(hold, armed))) => Ok(HandOver::Granted(hold, armed)),
            Ok(_) => Ok(HandOver::AlreadyLost),
            // The row is the next one's: its abandon ends the connection.
            Err(error) => Err(unknown_outcome(error.into_lock_error())),
        }
    }

    /// The hold had ended before.
    fn lost(&self, claim: &Claim) -> HandOver {
        claim.detach();
        self.release.store(ENDED, Ordering::Release);
        self.shared.claims.remove(self.request.holder());
        HandOver::AlreadyLost
    }

    /// The name was released, and nobody has the connection any more.
    async fn give_back(&self, claim: &Claim) {
        let shared = &self.shared;
        claim.detach();
        self.release.store(ENDED, Ordering::Release);
        let limit = shared.client.response_timeout();
        // The statement that was refused has left a transaction open.
        let cleaned = self.session.run("ROLLBACK".to_owned(), None, limit).await;
        if shared.claims.remove(self.request.holder()) && cleaned.is_ok() {
            shared.client.pool.give_back(self.session.clone());
        }
    }

    /// Until the hand-over is answered, a release of this hold is one of the next one's as well.
    fn note_next(&self, next: Option<&AcquireRequest>) {
        if let Some(claim) = self.shared.claims.get(self.request.holder()) {
            claim.hand_over_to(next.map(AcquireRequest::holder));
        }
    }
}
