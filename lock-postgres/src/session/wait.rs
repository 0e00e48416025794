//! Waiting in the server's own queue, in a session that carries nothing else.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Result;
use lock_core::backend::{AcquireRequest, Attempt, Busy};
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::acquire::{Decided, of_mode};
use super::carrier::Session;
use super::claims::{Claim, Form};
use crate::error::{SqlError, shared_session};
use crate::protocol::answers::column;
use crate::protocol::session_setup::begin_wait;

/// The longest single wait. While it lasts, the server keeps dead versions of rows that it could remove otherwise.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// If no waiter of the process had an answer for so long, one asks.
const PING_AFTER: Duration = Duration::from_secs(1);
/// If that has no answer for so long, the server counts as silent.
const SILENT_AFTER: Duration = Duration::from_millis(1500);
/// The pause after a question that failed.
const PING_PAUSE: Duration = Duration::from_millis(100);
/// The server itself ends a wait when the request's time is up. So long its answer may take.
const END_OF_WAIT_AFTER: Duration = Duration::from_millis(200);

/// The end of one wait.
enum Waited {
    Locked,
    NotLocked,
    /// The session is somebody else's.
    Foreign,
}

impl Shared {
    /// Waits until the name is granted or the request is given up. `None`: the name has to be asked for anew.
    pub(super) async fn wait(self: &Arc<Self>, request: &AcquireRequest, busy: Busy) -> Result<Option<Attempt>> {
        let Some(session) = self.session_to_wait(request).await? else {
            // Core asks again after a while.
            return Ok(Some(Attempt::Busy(busy)));
        };
        let entered = self.enter(request, &session, true)?;
        let claim = entered.claim.clone();
        let statements = self.statements().await?;
        self.check_age(&session).await?;
        loop {
            if request.is_given_up() {
                self.end_claim(&claim).await?;
                return Ok(Some(Attempt::Busy(busy)));
            }
            let waited = tokio::select! {
                biased;
                waited = self.wait_once(request, &claim, &busy) => waited,
                () = has_to_end(request) => {
                    self.end_claim(&claim).await?;
                    return Ok(Some(Attempt::Busy(busy)));
                }
                lost = self.note_silence(&session, request, &busy) => Err(lost),
            };
            match waited {
                Ok(Waited::Locked) => break,
                Ok(Waited::NotLocked) => {}
                Ok(Waited::Foreign) => {
                    self.end_claim(&claim).await?;
                    return Err(shared_session(&self.config.address()));
                }
                Err(error) => {
                    self.wait_failed(request, &claim, error).await?;
                    return Ok(None);
                }
            }
        }
        self.finish_wait(&session);
        let confirm = &of_mode(statements, request.mode()).confirm;
        match self.decide(request, &claim, confirm).await {
            Ok((moment, Decided::Granted { token, is_ahead })) => {
                session.has_waited(moment);
                self.grant(request, &claim, token, is_ahead, moment).await.map(Some)
            }
            Ok(_) => {
                self.end_claim(&claim).await?;
                Err(shared_session(&self.config.address()))
            }
            Err(error) => {
                self.after_error(request, &claim, error, true).await?;
                Ok(None)
            }
        }
    }

    async fn wait_once(&self, request: &AcquireRequest, claim: &Claim, busy: &Busy) -> Result<Waited, SqlError> {
        let statements = self.statements().await?;
        let longest = request.time_left().map_or(LONGEST_WAIT, |left| left.min(LONGEST_WAIT));
        claim.change(|state| (state.is_sent, state.is_waiting) = (true, true));
        request.sending();
        claim.session.connection.send(&begin_wait(longest));
        request.note_busy(busy.clone());
        let wait = &of_mode(statements, request.mode()).wait;
        match claim.query(wait, &[], longest + self.limit()).await {
            Ok(rows) => {
                claim.change(|state| state.is_waiting = false);
                let row = rows.first().ok_or(SqlError::UnexpectedAnswer("wait"))?;
                Ok(match column(row, 0, "wait")? {
                    true => Waited::Locked,
                    false => Waited::Foreign,
                })
            }
            // The lock may have been granted all the same.
            Err(error) if error.is_locked() => {
                claim.change(|state| state.is_waiting = false);
                self.unlock(claim, Form::Either).await?;
                Ok(Waited::NotLocked)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns if the name may be asked for again.
    async fn wait_failed(&self, request: &AcquireRequest, claim: &Claim, error: SqlError) -> Result<()> {
        claim.change(|state| state.is_waiting = false);
        if matches!(error, SqlError::TimedOut(_)) {
            // Nothing can be told of it.
            claim.session.connection.abort();
        }
        if error.is_refusal() {
            return self.after_error(request, claim, error, true).await;
        }
        request.note_unreachable(error.into_lock_error());
        self.end_claim(claim).await.map(drop)
    }

    /// Reports to the caller when the server falls silent: the connection of a wait cannot. Returns only if the server answers again
    /// and does not have that session any more.
    async fn note_silence(&self, session: &Session, request: &AcquireRequest, busy: &Busy) -> SqlError {
        let mut is_noted = false;
        loop {
            let answered = *self.answered.lock();
            let since = answered.map_or(Duration::ZERO, |answered: Instant| answered.elapsed());
            sleep(PING_AFTER.saturating_sub(since).max(PING_PAUSE)).await;
            let is_fresh = self.answered.lock().is_some_and(|at| at.elapsed() < PING_AFTER);
            if is_fresh && !is_noted {
                continue;
            }
            let find = session.identity.find();
            let mut asking = pin!(self.ask(&find));
            let found = match timeout(SILENT_AFTER, &mut asking).await {
                Ok(found) => found,
                Err(_elapsed) => {
                    request.note_unreachable(SqlError::TimedOut(SILENT_AFTER).into_lock_error());
                    is_noted = true;
                    asking.await
                }
            };
            match found {
                Ok(rows) if rows.is_empty() => return SqlError::Disconnected(None),
                Ok(_) if is_noted => {
                    request.note_busy(busy.clone());
                    is_noted = false;
                }
                Ok(_) => {}
                Err(error) => {
                    request.note_unreachable(error.into_lock_error());
                    is_noted = true;
                    sleep(PING_PAUSE).await;
                }
            }
        }
    }
}

/// Returns when the wait has to be ended here: the caller has left, or the server does not end it in time.
async fn has_to_end(request: &AcquireRequest) {
    request.given_up().await;
    if request.time_left() == Some(Duration::ZERO) {
        sleep(END_OF_WAIT_AFTER).await;
    }
}
