//! Acquiring: one round trip when the row is free, else a statement that waits for it.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy, SentAt, Wait};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

use super::backend::Shared;
use super::claims::{Claim, Left};
use super::hold::RowHold;
use super::wait::Waited;
use crate::client::SqlOrError;
use crate::connection::InUse;
use crate::connection::{Answer, Held, Session};
use crate::error::{SqlError, unknown};
use crate::probe::prepare;
use crate::protocol::row_lock::{TakeTerms, Taken, holder, taken};

/// How many times a statement may fail for reasons that a repetition cures.
const SETBACKS: u32 = 20;

/// How an attempt on one connection ended, if not with an error.
enum Outcome {
    Granted(Attempt),
    /// Somebody else has it, and the connection is clean.
    Busy(Busy),
    /// Nobody waits any more; the connection's statement may still.
    GivenUp(Busy),
}

impl Shared {
    pub(super) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        let claim = self.claims.enter(request.holder());
        let attempt = match self.repeat(&claim, request).await {
            Ok(None) => self.attempt(&claim, request).await,
            Ok(Some(attempt)) => Ok(attempt),
            Err(error) => Err(error),
        };
        attempt.map_err(|error| {
            let error = match claim.left() {
                Some(_) if error.is_not_executed() => unknown(error),
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
            self.end(&session, None).await?;
        }
        self.claims.leave(request.holder());
        Ok(())
    }

    /// Ends a connection, here and at the server; whether it was still there.
    pub(super) async fn end(&self, session: &Session, behalf: Option<&AcquireRequest>) -> Result<bool> {
        session.abort();
        let was_there = self.server.end(session.identity(), behalf).await?;
        // Its task may live on: on a runtime that nobody drives, nothing ends.
        session.leave_permit();
        Ok(was_there)
    }

    /// The same grant once more, if an earlier try came so far. Else that try's connection is ended first, so that
    /// nothing of it is granted behind our back.
    async fn repeat(self: &Arc<Self>, claim: &Claim, request: &AcquireRequest) -> Result<Option<Attempt>> {
        let Some(Left { session, token }) = claim.left() else {
            return Ok(None);
        };
        let ttl = request.ttl();
        if let Some(token) = token
            && let Ok(Some(sent)) = self.keep(&session, request, ttl, Some(self.response_timeout())).await
        {
            let armed = request.lease().arm(sent, ttl)?;
            let hold = RowHold::new(self.clone(), request.clone(), session, token);
            return Ok(Some(Attempt::Granted(hold, armed)));
        }
        self.end(&session, Some(request)).await?;
        claim.detach();
        Ok(None)
    }

    async fn attempt(self: &Arc<Self>, claim: &Claim, request: &AcquireRequest) -> Result<Attempt> {
        loop {
            let used = self.pool.take(&self.server, request).await?;
            let session = used.session().clone();
            if let Err(abandoned) = claim.attach(&session) {
                self.pool.give_back(used.keep());
                return Err(abandoned);
            }
            match self.on(claim, &session, request).await {
                Ok(Outcome::Granted(attempt)) => {
                    used.keep();
                    return Ok(attempt);
                }
                Ok(Outcome::Busy(busy)) => {
                    claim.detach();
                    self.pool.give_back(used.keep());
                    return Ok(Attempt::Busy(busy));
                }
                Ok(Outcome::GivenUp(busy)) => {
                    drop(used);
                    self.end(&session, None).await?;
                    claim.detach();
                    return Ok(Attempt::Busy(busy));
                }
                // It had ended before anything was sent.
                Err(SqlOrError::Sql(SqlError::Gone)) if used.used_before => claim.detach(),
                // The server had closed it while it was idle, and others with it.
                Err(SqlOrError::Sql(error)) if used.used_before && error.is_break() => {
                    self.doubt_connections();
                    if request.wait() != Wait::No {
                        request.note_unreachable(error.into_error());
                    }
                    drop(used);
                    self.end(&session, Some(request)).await?;
                    claim.detach();
                }
                Err(error) => return Err(self.failed(claim, used, error).await),
            }
        }
    }

    /// The error of an attempt. If the server refused a statement and nothing else, the connection is cleaned, and
    /// nothing of the request is left on it.
    async fn failed(&self, claim: &Claim, used: InUse, error: SqlOrError) -> Error {
        let cleaning = "ROLLBACK".to_owned();
        let is_clean = match &error {
            SqlOrError::Sql(error) if !error.leaves_connection_whole() => false,
            _ => used
                .session()
                .run(cleaning, None, self.response_timeout())
                .await
                .is_ok(),
        };
        if is_clean {
            claim.detach();
            self.pool.give_back(used.keep());
            return error.into_error().not_executed();
        }
        self.doubt_connections();
        error.into_error()
    }

    /// A connection broke, perhaps with all others.
    fn doubt_connections(&self) {
        self.pool.purge();
        self.server.doubt();
    }

    async fn on(
        self: &Arc<Self>,
        claim: &Claim,
        session: &Arc<Session>,
        request: &AcquireRequest,
    ) -> Result<Outcome, SqlOrError> {
        request.note_connected();
        let limit = self.response_timeout();
        let name = request.name();
        if !self.is_prepared() {
            prepare(&self.statements, session, limit).await?;
            self.set_prepared(true);
        }
        let mut locked = false;
        let mut setbacks = 0;
        loop {
            let (ttl, label) = (request.ttl(), request.label());
            let terms = TakeTerms {
                ttl,
                label: label.as_deref(),
                floor: request.token_floor(),
            };
            let (sql, statement) = if locked {
                (self.statements.take(name, &terms), 0)
            } else {
                (self.statements.try_take(name, &terms), 1)
            };
            request.sending();
            match session.run(sql, Some(ttl), limit).await {
                Ok(answer) => match taken(&answer, statement)? {
                    Some(taken) => return self.grant(claim, session, request, answer, taken, ttl).await,
                    None => {
                        // Somebody who makes the same row at this moment may hold it for an instant.
                        match session.run(self.statements.create_row(name), None, limit).await {
                            Err(error) if !error.is_busy() && !error.is_deadlock() => return Err(error.into()),
                            _ => {}
                        }
                    }
                },
                Err(error) if error.is_busy() => {
                    let asked = Instant::now();
                    let busy = self.who(session, request).await?;
                    let trip = asked.elapsed();
                    if request.wait() == Wait::No || request.is_given_up() {
                        return Ok(Outcome::Busy(busy));
                    }
                    match self.wait(session, request, &busy, trip).await? {
                        Waited::Locked => locked = true,
                        Waited::InVain => locked = false,
                        Waited::GivenUp => return Ok(Outcome::GivenUp(busy)),
                    }
                    setbacks = 0;
                    continue;
                }
                Err(error) if error.is_deadlock() => {
                    session.run("ROLLBACK".to_owned(), None, limit).await?;
                }
                Err(error) if error.is_missing_table() => {
                    self.set_prepared(false);
                    prepare(&self.statements, session, limit).await?;
                    self.set_prepared(true);
                }
                Err(error) => return Err(error.into()),
            }
            locked = false;
            setbacks += 1;
            if setbacks > SETBACKS {
                let message = "the lock's row cannot be made, or vanishes again and again: see who deletes it";
                return Err(Error::new(ErrorKind::Unavailable, message).into());
            }
        }
    }

    /// The row is ours. A token that is ahead of the server's clock is made durable before anybody sees it.
    async fn grant(
        self: &Arc<Self>,
        claim: &Claim,
        session: &Arc<Session>,
        request: &AcquireRequest,
        mut answer: Answer,
        taken: Taken,
        ttl: Duration,
    ) -> Result<Outcome, SqlOrError> {
        if taken.ahead {
            self.server
                .control(self.statements.commit_token(request.name(), taken.token), None)
                .await
                .map_err(SqlOrError::into_error)?;
            // That the row is still ours must be newer than that.
            answer = session
                .run("SELECT 1".to_owned(), Some(ttl), self.response_timeout())
                .await?;
        }
        claim.grant(taken.token)?;
        let armed = request.lease().arm(answer.sent, ttl)?;
        session.hold(Held::new(request, answer.at, ttl));
        let hold = RowHold::new(self.clone(), request.clone(), session.clone(), taken.token);
        Ok(Outcome::Granted(Attempt::Granted(hold, armed)))
    }

    /// Keeps the request's hold for at least `ttl` from now; see [`Session::keep`]. A fixed lease's end stays.
    pub(super) async fn keep(
        &self,
        session: &Session,
        request: &AcquireRequest,
        ttl: Duration,
        limit: Option<Duration>,
    ) -> Result<Option<SentAt>> {
        let sql = if request.is_fixed() {
            String::new()
        } else {
            self.statements.prolong(request.name(), ttl)
        };
        session.keep(request.holder(), ttl, sql, limit).await
    }

    /// Who has it. Ends the transaction that the failed statement has left open.
    async fn who(&self, session: &Session, request: &AcquireRequest) -> Result<Busy, SqlError> {
        let sql = self.statements.holder_instead(request.name());
        let answer = session.run(sql, None, self.response_timeout()).await?;
        let label = answer.row(2).map(holder).transpose()?.and_then(|holder| holder.label);
        Ok(match label {
            Some(label) => Busy::new().with_holder(label),
            None => Busy::new(),
        })
    }
}
