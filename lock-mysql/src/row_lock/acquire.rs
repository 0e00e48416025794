//! Acquiring: one round trip when the row is free, else a statement that waits for it.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy, Mode};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

use super::Shared;
use super::claims::{Claim, Leftover};
use super::hold::RowHold;
use super::wait::Waited;
use crate::connection::{CarriedHold, PooledSession, Session};
use crate::error::{RequestError, SqlError, unknown_outcome};
use crate::protocol::Answer;
use crate::protocol::row_lock::{AcquireTerms, Acquired, acquired, busy};

/// The most repetitions of a statement that failed for reasons which a repetition cures.
const MAX_RETRIES: u32 = 20;

/// The end of an attempt on one connection, if it was no error.
enum Outcome {
    Granted(Attempt),
    /// Somebody else has it, and the connection is clean.
    Busy(Busy),
    /// Nobody waits any more; the connection's statement may still.
    GivenUp(Busy),
}

impl Shared {
    pub(super) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        check_mode(request.mode()).map_err(|error| error.with_name(request.name()))?;
        let claim = self.claims.enter(request.holder());
        let attempt = match self.resume(&claim, request).await {
            Ok(None) => self.attempt(&claim, request).await,
            Ok(Some(attempt)) => Ok(attempt),
            Err(error) => Err(error),
        };
        attempt.map_err(|error| {
            let error = match claim.leftover() {
                Some(_) if error.is_not_executed() => unknown_outcome(error),
                _ => error,
            };
            error.with_name(request.name())
        })
    }

    /// Retires the request's holder id.
    pub(super) async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let Some(claim) = self.claims.get(request.holder()) else {
            return Ok(());
        };
        if let Some(session) = claim.abandon() {
            self.client.end(&session, None).await?;
        }
        self.claims.remove(request.holder());
        Ok(())
    }

    /// The same grant once more, if an earlier try came so far. Else that try's connection is ended first, so that
    /// nothing of it is granted behind our back.
    async fn resume(self: &Arc<Self>, claim: &Claim, request: &AcquireRequest) -> Result<Option<Attempt>> {
        let Some(Leftover { session, token }) = claim.leftover() else {
            return Ok(None);
        };
        let ttl = request.ttl();
        if let Some(token) = token
            && let Ok(Some(sent)) = session
                .renew(request.holder(), ttl, Some(self.client.response_timeout()))
                .await
        {
            let armed = request.lease().arm(sent, ttl)?;
            let hold = RowHold::new(self.clone(), request.clone(), session, token);
            return Ok(Some(Attempt::Granted(hold, armed)));
        }
        self.client.end(&session, Some(request)).await?;
        claim.detach();
        Ok(None)
    }

    async fn attempt(self: &Arc<Self>, claim: &Claim, request: &AcquireRequest) -> Result<Attempt> {
        loop {
            let used = self.client.pool.take(request).await?;
            let session = used.session().clone();
            if let Err(abandoned) = claim.attach(&session) {
                self.client.pool.give_back(used.into_session());
                return Err(abandoned);
            }
            match self.acquire_on(claim, &session, request).await {
                Ok(Outcome::Granted(attempt)) => {
                    used.into_session();
                    return Ok(attempt);
                }
                Ok(Outcome::Busy(busy)) => {
                    claim.detach();
                    self.client.pool.give_back(used.into_session());
                    return Ok(Attempt::Busy(busy));
                }
                Ok(Outcome::GivenUp(busy)) => {
                    drop(used);
                    self.client.end(&session, None).await?;
                    claim.detach();
                    return Ok(Attempt::Busy(busy));
                }
                // It had ended before anything was sent.
                Err(RequestError::Sql(SqlError::NotConnected)) if used.is_reused => claim.detach(),
                // The server had closed it while it was idle, and others with it.
                Err(RequestError::Sql(error)) if used.is_reused && error.is_disconnect() => {
                    self.client.pool.suspect_outage();
                    if request.waits() {
                        request.note_unreachable(error.into_lock_error());
                    }
                    drop(used);
                    self.client.end(&session, Some(request)).await?;
                    claim.detach();
                }
                Err(error) => return Err(self.after_error(claim, used, error).await),
            }
        }
    }

    /// The error of an attempt. If the server refused a statement and nothing else, the connection is cleaned, and
    /// nothing of the request is left on it.
    async fn after_error(&self, claim: &Claim, used: PooledSession, error: RequestError) -> Error {
        let cleaning = "ROLLBACK".to_owned();
        let is_clean = match &error {
            RequestError::Sql(error) if !error.is_refusal() => false,
            _ => used
                .session()
                .run(cleaning, None, self.client.response_timeout())
                .await
                .is_ok(),
        };
        if is_clean {
            claim.detach();
            match &error {
                // New connections may reach the server that has taken its place.
                RequestError::Sql(error) if error.is_read_only() => {
                    drop(used);
                    self.client.leave_server();
                }
                _ => self.client.pool.give_back(used.into_session()),
            }
            return error.into_lock_error().not_executed();
        }
        self.client.pool.suspect_outage();
        error.into_lock_error()
    }

    async fn acquire_on(
        self: &Arc<Self>,
        claim: &Claim,
        session: &Arc<Session>,
        request: &AcquireRequest,
    ) -> Result<Outcome, RequestError> {
        request.note_connected();
        let limit = self.client.response_timeout();
        let name = request.name();
        if !self.is_prepared() {
            self.prepare_tables(session, limit).await?;
            self.set_prepared(true);
        }
        let mut locked = false;
        let mut retries = 0;
        loop {
            let asked = Instant::now();
            let ttl = request.ttl();
            let taken = match request.mode() {
                Mode::Shared => self.take_shared(session, request, ttl).await,
                _ => self.take(session, request, ttl, locked).await,
            };
            let taken = match taken {
                Ok(taken) => Ok(taken),
                Err(RequestError::Sql(error)) => Err(error),
                Err(error) => return Err(error),
            };
            match taken {
                Ok(Some((answer, acquired))) => {
                    return self.grant(claim, session, request, answer, acquired, ttl).await;
                }
                Ok(None) => {
                    // Somebody who makes the same row at this moment may hold it for an instant.
                    match session.run(self.statements.create_row(name), None, limit).await {
                        Err(error) if !error.is_busy() && !error.is_deadlock() => return Err(error.into()),
                        _ => {}
                    }
                }
                Err(error) if error.is_busy() => {
                    if !request.waits() || request.is_given_up() {
                        return Ok(Outcome::Busy(self.current_holder(session, request).await?));
                    }
                    match self.wait(session, request, asked.elapsed()).await? {
                        Waited::Locked => locked = true,
                        Waited::NotLocked => locked = false,
                        Waited::InVain(busy) => return Ok(Outcome::Busy(busy)),
                        Waited::GivenUp(busy) => return Ok(Outcome::GivenUp(busy)),
                    }
                    retries = 0;
                    continue;
                }
                Err(error) if error.is_deadlock() => {
                    session.run("ROLLBACK".to_owned(), None, limit).await?;
                }
                Err(error) if error.is_missing_table() => {
                    self.set_prepared(false);
                    self.prepare_tables(session, limit).await?;
                    self.set_prepared(true);
                }
                Err(error) => return Err(error.into()),
            }
            locked = false;
            retries += 1;
            if retries > MAX_RETRIES {
                let message = "the lock's row cannot be made, or vanishes again and again: see who deletes it";
                return Err(Error::new(ErrorKind::Unavailable, message).into());
            }
        }
    }

    /// Takes the row, locked already or not; `None` if there is no such row yet.
    async fn take(
        &self,
        session: &Session,
        request: &AcquireRequest,
        ttl: Duration,
        locked: bool,
    ) -> Result<Option<(Answer, Acquired)>, RequestError> {
        let label = request.label();
        let terms = AcquireTerms {
            ttl,
            fixed: request.is_fixed(),
            label: label.as_deref(),
            floor: request.token_floor(),
        };
        let (sql, statement) = if locked {
            (self.statements.acquire_locked_row(request.name(), &terms), 0)
        } else {
            (self.statements.acquire_nowait(request.name(), &terms), 1)
        };
        request.sending();
        let answer = session.run(sql, Some(ttl), self.client.response_timeout()).await?;
        let acquired = acquired(&answer, statement)?;
        Ok(acquired.map(|acquired| (answer, acquired)))
    }

    /// The row is ours. A token that is ahead of the server's clock is made durable before anybody sees it.
    async fn grant(
        self: &Arc<Self>,
        claim: &Claim,
        session: &Arc<Session>,
        request: &AcquireRequest,
        mut answer: Answer,
        acquired: Acquired,
        ttl: Duration,
    ) -> Result<Outcome, RequestError> {
        if acquired.ahead {
            self.client
                .control
                .execute(self.statements.commit_token(request.name(), acquired.token), None)
                .await
                .map_err(|error| match error {
                    // Its server is to be left, as one that refuses to lock the row.
                    RequestError::Sql(error) if error.is_read_only() => error.into(),
                    error => RequestError::Lock(error.into_lock_error()),
                })?;
            // The proof that the row is still ours must be newer than that commit.
            answer = session
                .run("SELECT 1".to_owned(), Some(ttl), self.client.response_timeout())
                .await?;
        }
        claim.grant(acquired.token)?;
        self.clean_up_if_due();
        let armed = request.lease().arm(answer.sent, ttl)?;
        session.carry(CarriedHold::new(request, answer.sent_instant, ttl));
        let hold = RowHold::new(self.clone(), request.clone(), session.clone(), acquired.token);
        Ok(Outcome::Granted(Attempt::Granted(hold, armed)))
    }

    /// The holder of the name. Ends the transaction that the failed statement has left open.
    pub(super) async fn current_holder(&self, session: &Session, request: &AcquireRequest) -> Result<Busy, SqlError> {
        let sql = self.statements.holder_after_busy(request.name());
        let answer = session.run(sql, None, self.client.response_timeout()).await?;
        busy(answer.row(3))
    }
}

/// Core has refused all other modes before.
fn check_mode(mode: Mode) -> Result<()> {
    match mode {
        Mode::Exclusive | Mode::Shared => Ok(()),
        _ => {
            let message = "a row lock is exclusive or shared: use another backend for upgrades and permits";
            Err(Error::new(ErrorKind::Unsupported, message).not_executed())
        }
    }
}
