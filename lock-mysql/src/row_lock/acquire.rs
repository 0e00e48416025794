//! Acquiring: one round trip when the row is free, else a statement that waits for it.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy, Wait};
use lock_core::{Error, ErrorKind, Result};

use super::backend::Shared;
use super::claims::{Claim, Left};
use super::hold::RowHold;
use super::pool::InUse;
use super::statements::{TakeTerms, Taken, holder, taken};
use super::table::prepare;
use crate::error::SqlError;
use crate::server::SqlOrError;
use crate::session::{Answer, Held, Session};

/// How many times a statement may fail for reasons that a repetition cures.
const SETBACKS: u32 = 20;

/// The longest single wait for a row: so long may a waiter that fell silent keep its place in the queue.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

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
        if claim.left().is_none() {
            self.claims.leave(request.holder());
        }
        attempt.map_err(|error| error.with_name(request.name()))
    }

    /// Retires the request's holder id.
    pub(super) async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let Some(claim) = self.claims.get(request.holder()) else {
            return Ok(());
        };
        if let Some(session) = claim.abandon() {
            session.abort();
            self.server.end(session.identity()).await?;
        }
        self.claims.leave(request.holder());
        Ok(())
    }

    /// The same grant once more, if an earlier try came so far. Else that try's connection is ended first, so that
    /// nothing of it is granted behind our back.
    async fn repeat(self: &Arc<Self>, claim: &Claim, request: &AcquireRequest) -> Result<Option<Attempt>> {
        let Some(Left { session, token }) = claim.left() else {
            return Ok(None);
        };
        let ttl = request.ttl();
        if let Some(token) = token
            && let Ok(answer) = self.keep(&session, request, ttl).await
        {
            let armed = request.lease().arm(answer.sent, ttl)?;
            let hold = RowHold::new(self.clone(), request.clone(), session, token);
            return Ok(Some(Attempt::Granted(hold, armed)));
        }
        session.abort();
        self.server.end(session.identity()).await?;
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
                    self.end(claim, used).await?;
                    return Ok(Attempt::Busy(busy));
                }
                // The server had closed it while it was idle, and others with it.
                Err(SqlOrError::Sql(error)) if used.used_before && error.is_end() => {
                    self.pool.purge();
                    self.end(claim, used).await?;
                }
                Err(SqlOrError::Sql(error @ SqlError::TimedOut(_))) => {
                    self.pool.purge();
                    return Err(error.into_error());
                }
                Err(error) => return Err(error.into_error()),
            }
        }
    }

    /// Ends a connection, here and at the server.
    async fn end(&self, claim: &Claim, used: InUse) -> Result<()> {
        let session = used.session().clone();
        drop(used);
        self.server.end(session.identity()).await?;
        claim.detach();
        Ok(())
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
                    let busy = self.who(session, request).await?;
                    if request.wait() == Wait::No || request.is_given_up() {
                        return Ok(Outcome::Busy(busy));
                    }
                    request.note_busy(busy.clone());
                    tokio::select! {
                        biased;
                        waited = self.wait(session, request) => locked = waited?,
                        () = request.given_up() => return Ok(Outcome::GivenUp(busy)),
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
                .control(self.statements.commit_token(request.name(), taken.token))
                .await?;
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

    /// Keeps the request's hold for at least `ttl` from now. A fixed lease's end stays.
    pub(super) async fn keep(
        &self,
        session: &Session,
        request: &AcquireRequest,
        ttl: Duration,
    ) -> Result<Answer, SqlError> {
        let sql = if request.is_fixed() {
            String::new()
        } else {
            self.statements.prolong(request.name(), ttl)
        };
        session.keep(request.holder(), ttl, sql, self.response_timeout()).await
    }

    /// Waits for the row; whether it is locked now.
    async fn wait(&self, session: &Session, request: &AcquireRequest) -> Result<bool, SqlError> {
        let ttl = request.ttl();
        let seconds = ttl.min(LONGEST_WAIT).as_secs().max(1);
        let limit = Duration::from_secs(seconds) + self.response_timeout();
        match session
            .run(self.statements.wait(request.name(), seconds), Some(ttl), limit)
            .await
        {
            Ok(answer) => Ok(answer.row(1).is_some()),
            Err(error) if error.is_busy() || error.is_deadlock() => Ok(false),
            Err(error) => Err(error),
        }
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
