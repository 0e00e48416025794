//! Acquiring: one round trip if the name is free, else a session that waits for it.

use std::sync::Arc;

use lock_core::backend::{AcquireRequest, Attempt, Busy, Mode, SentAt};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use lock_kit::requests::check_not_given_up;
use tokio_postgres::Row;

use super::carrier::Moment;
use super::claims::Claim;
use super::hold::SessionHold;
use super::{Shared, within};
use crate::connection::{Parameters, Statement};
use crate::error::{SERVER, SqlError, shared_session};
use crate::names::{literal, name_bytes};
use crate::protocol::answers::{column, text, token_of};
use crate::protocol::session::{OfMode, SessionStatements};
use crate::protocol::session_setup::PING;
use crate::protocol::terms::LeaseTerms;

#[cfg(test)]
mod fuzz;

/// The most repetitions of what failed for reasons that a repetition cures.
const MAX_RETRIES: u32 = 20;

/// The end of a try, if it was no error.
pub(super) enum Tried {
    Granted(Attempt),
    Busy(Busy),
    Again,
}

/// The server's decision.
pub(super) enum Decided {
    Granted {
        token: FencingToken,
        is_ahead: bool,
    },
    Busy(Busy),
    /// The session is somebody else's.
    Foreign,
}

impl Shared {
    /// Asks until the name is granted or the request is given up.
    pub(super) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        check_mode(request.mode())?;
        if let Some(attempt) = self.resume(request).await? {
            return Ok(attempt);
        }
        for _ in 0..MAX_RETRIES {
            match self.try_once(request).await? {
                Tried::Granted(attempt) => return Ok(attempt),
                Tried::Busy(busy) if !request.waits() => return Ok(Attempt::Busy(busy)),
                Tried::Busy(busy) => {
                    if let Some(attempt) = self.wait(request, busy).await? {
                        return Ok(attempt);
                    }
                }
                Tried::Again => {}
            }
        }
        let message = "sessions of the PostgreSQL server end again and again: see its log";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// The same grant once more, if an earlier try came so far. Otherwise that try is undone first.
    async fn resume(self: &Arc<Self>, request: &AcquireRequest) -> Result<Option<Attempt>> {
        let Some(claim) = self.claims.get(request.holder()) else {
            return Ok(None);
        };
        let state = claim.state();
        if let Some(token) = state.token
            && !state.is_releasing
            && let Ok(Some(moment)) = self.ping(&claim).await
        {
            return self.granted(request, &claim, token, moment).map(Some);
        }
        self.end_claim(&claim).await?;
        Ok(None)
    }

    /// Asks whether the session of a claim is still there: returns when it was asked.
    pub(super) async fn ping(&self, claim: &Claim) -> Result<Option<Moment>, SqlError> {
        let connection = &claim.session.connection;
        let moment = Moment::now();
        match within(self.limit(), connection.run(PING, None)).await {
            Ok(rows) if super::heartbeat::is_marked(&rows, &connection.mark) => Ok(Some(moment)),
            Ok(_) => {
                connection.abort();
                Ok(None)
            }
            Err(error) if error.is_disconnect() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn try_once(self: &Arc<Self>, request: &AcquireRequest) -> Result<Tried> {
        let session = self.session_to_ask(request).await?;
        let entered = self.enter(request, &session, false)?;
        let claim = entered.claim.clone();
        request.note_connected();
        let statements = self.statements().await?;
        self.check_age(&session).await?;
        check_not_given_up(request, SERVER)?;
        let was_used = session.connection.was_used();
        let take = &of_mode(statements, request.mode()).take;
        match self.decide(request, &claim, take).await {
            Ok((moment, Decided::Granted { token, is_ahead })) => self
                .grant(request, &claim, token, is_ahead, moment)
                .await
                .map(Tried::Granted),
            Ok((_, Decided::Busy(busy))) => {
                self.claims.forget(&claim);
                Ok(Tried::Busy(busy))
            }
            Ok((_, Decided::Foreign)) => {
                self.claims.forget(&claim);
                session.connection.abort();
                Err(shared_session(&self.config.address()).not_executed())
            }
            Err(error) => {
                self.after_error(request, &claim, error, was_used).await?;
                Ok(Tried::Again)
            }
        }
    }

    /// Sends what may lock the name or take a token for it.
    pub(super) async fn decide(
        &self,
        request: &AcquireRequest,
        claim: &Claim,
        statement: &Statement,
    ) -> Result<(Moment, Decided), SqlError> {
        let terms = LeaseTerms::new(request)?;
        let parameters: Parameters<'_> = &[
            &terms.holder,
            &terms.label,
            &terms.least,
            &terms.at_least,
            &terms.reserved_after,
        ];
        claim.change(|state| state.is_sent = true);
        let moment = Moment::of(request.sending());
        let rows = claim.query(statement, parameters, self.limit()).await?;
        Ok((moment, decided(rows.first())?))
    }

    /// An error of a request that may have locked the name. A lock outlives the statement that failed, so it is undone. Returns if
    /// the name may be asked for again.
    pub(super) async fn after_error(
        &self,
        request: &AcquireRequest,
        claim: &Claim,
        error: SqlError,
        was_used: bool,
    ) -> Result<()> {
        // If it waited, its session may live on at the server, with the lock.
        if matches!(error, SqlError::NotConnected) && !claim.waits {
            self.claims.forget(claim);
            return Ok(());
        }
        let is_refusal = error.is_refusal();
        let may_repeat = is_refusal || (error.is_disconnect() && was_used);
        if !may_repeat {
            return Err(error.into_lock_error());
        }
        if !is_refusal && request.waits() && !matches!(error, SqlError::NotConnected) {
            request.note_unreachable(error.clone().into_lock_error());
        }
        self.end_claim(claim).await?;
        match error.is_missing_table() {
            true => self.prepare().await.map(drop),
            false if is_refusal && !error.is_transient() && !error.is_unprepared() => Err(error.into_lock_error()),
            false => Ok(()),
        }
    }

    /// The name is locked. A token that a crash could bring back is made durable before anybody sees it.
    pub(super) async fn grant(
        self: &Arc<Self>,
        request: &AcquireRequest,
        claim: &Arc<Claim>,
        token: FencingToken,
        is_ahead: bool,
        moment: Moment,
    ) -> Result<Attempt> {
        if is_ahead {
            let statements = self.statements().await?;
            // Over another session: heartbeats must not wait for a disk or a standby.
            let asked = self
                .ask(&statements.make_durable(&literal(name_bytes(&claim.name))))
                .await;
            asked.map_err(SqlError::into_lock_error)?;
        }
        self.granted(request, claim, token, moment)
    }

    fn granted(
        self: &Arc<Self>,
        request: &AcquireRequest,
        claim: &Arc<Claim>,
        token: FencingToken,
        moment: Moment,
    ) -> Result<Attempt> {
        if !claim.grant(token) {
            let message = "the request was abandoned while it was granted";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let reserved = LeaseTerms::new(request)?.reserved(token);
        self.clean_up_if_due();
        let fixed: Option<(SentAt, _)> = request.is_fixed().then(|| (moment.sent, request.ttl()));
        let armed = claim.session.bind(claim.holder, request.lease(), moment, fixed)?;
        let hold = SessionHold::new(self.clone(), claim.clone(), request, (token, reserved));
        Ok(Attempt::Granted(Arc::new(hold), armed))
    }
}

pub(super) fn of_mode(statements: &SessionStatements, mode: Mode) -> &OfMode {
    match mode {
        Mode::Shared => &statements.shared,
        _ => &statements.exclusive,
    }
}

fn decided(row: Option<&Row>) -> Result<Decided, SqlError> {
    const WHAT: &str = "token";
    let row = row.ok_or(SqlError::UnexpectedAnswer(WHAT))?;
    let Some(is_locked) = column::<Option<bool>>(row, 0, WHAT)? else {
        return Ok(Decided::Foreign);
    };
    if !is_locked {
        let label: Option<&[u8]> = column(row, 3, WHAT)?;
        let busy = Busy::new();
        return Ok(Decided::Busy(match label {
            Some(label) => busy.with_holder(text(label)),
            None => busy,
        }));
    }
    let token: Option<i64> = column(row, 1, WHAT)?;
    let is_ahead: Option<bool> = column(row, 2, WHAT)?;
    Ok(Decided::Granted {
        token: token_of(token.ok_or(SqlError::UnexpectedAnswer(WHAT))?)?,
        is_ahead: is_ahead.unwrap_or(true),
    })
}

/// Core has refused all other modes before.
fn check_mode(mode: Mode) -> Result<()> {
    match mode {
        Mode::Exclusive | Mode::Shared => Ok(()),
        _ => {
            let message = "a lock of a session is exclusive or shared: use strategy=lease for permits";
            Err(Error::new(ErrorKind::Unsupported, message).not_executed())
        }
    }
}
