//! Ending whatever a holder id has locked, or may still lock by a request that is under way.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout};

use super::Shared;
use super::carrier::{Ending, Session};
use super::claims::{Claim, Form};
use crate::error::SqlError;
use crate::names::{literal, name_bytes};
use crate::protocol::answers::column;
use crate::protocol::session_setup::end_wait;

/// How long the server may take to end a session.
const END_WITHIN: Duration = Duration::from_secs(2);

impl Shared {
    /// Retires the request's holder id.
    pub(super) async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        match self.claims.get(request.holder()) {
            Some(claim) => self.end_claim(&claim).await.map(drop),
            None => Ok(()),
        }
    }

    /// Ends whatever a claim has, and forgets it. Returns whether the name was locked; `None` if that is unknown.
    ///
    /// Requests of one session come in order, so whatever the claim has sent before takes effect before the unlock. If the session
    /// does not answer, it is ended, and everything in it.
    pub(super) async fn end_claim(&self, claim: &Claim) -> Result<Option<bool>> {
        let session = &claim.session;
        // From here on nothing is granted on it.
        let was_sent = claim.begin_release();
        let is_alone = || session.carries_only(claim.holder) || session.has_lapsed();
        if !session.has_ended() {
            if !session.connection.is_driven().await {
                return match is_alone() {
                    true => self.end_with_session(claim).await,
                    false => Err(SqlError::RuntimeNotDriven.into_lock_error()),
                };
            }
            let mut is_over = claim.gate.lock().await;
            if *is_over {
                return Ok(Some(false));
            }
            if claim.state().is_waiting {
                // It need not take effect: the unlock waits behind the wait.
                drop(self.ask(&session.identity.cancel()).await);
            }
            // A grant that was answered, and that no release may have ended, is locked once.
            let form = match claim.state().token.is_some() && !was_sent {
                true => claim.state().form,
                false => Form::Either,
            };
            let unlocked = self.unlock(claim, form).await;
            if claim.waits {
                self.finish_wait(session);
            }
            match unlocked {
                Ok(was_locked) => {
                    *is_over = true;
                    self.claims.forget(claim);
                    return Ok(Some(was_locked));
                }
                Err(error @ (SqlError::TimedOut(_) | SqlError::RuntimeNotDriven)) if !is_alone() => {
                    return Err(error.into_lock_error());
                }
                Err(error) if error.is_refusal() => return Err(error.into_lock_error()),
                Err(_) => session.connection.abort(),
            }
        }
        self.end_with_session(claim).await
    }

    async fn end_with_session(&self, claim: &Claim) -> Result<Option<bool>> {
        self.end_session(&claim.session).await?;
        self.claims.forget(claim);
        Ok(None)
    }

    /// Unlocks what the claim has locked or, as [`Form::Either`], whatever it may have locked: in order behind all that was sent.
    /// Returns whether it was locked.
    pub(super) async fn unlock(&self, claim: &Claim, form: Form) -> Result<bool, SqlError> {
        let statements = self.statements().await?;
        let statement = match form {
            Form::Exclusive => &statements.exclusive.unlock,
            Form::Shared => &statements.shared.unlock,
            Form::Either => &statements.unlock_any,
        };
        let rows = claim.query(statement, &[], self.limit()).await?;
        let connection = &claim.session.connection;
        if claim.state().form != Form::Exclusive {
            let name = literal(name_bytes(&claim.name));
            connection.send(&statements.forget_reader(&name));
        }
        let row = rows.first().ok_or(SqlError::UnexpectedAnswer("unlock"))?;
        // `NULL` is the answer of somebody else's session.
        column::<Option<bool>>(row, 0, "unlock")?.ok_or_else(|| {
            connection.abort();
            SqlError::NotConnected
        })
    }

    /// Undoes what a wait has set, in order behind it.
    pub(super) fn finish_wait(&self, session: &Session) {
        session.connection.send(&end_wait(&self.config));
    }

    /// Ends a session at the server, and waits until it has ended: with it ends what it has locked or may still lock. One request does
    /// so for all claims in it.
    pub(super) async fn end_session(&self, session: &Arc<Session>) -> Result<()> {
        session.connection.abort();
        let asked = Instant::now();
        // Nobody depends on one whose runtime is not driven.
        let Ok(mut ending) = timeout(END_WITHIN.min(self.limit()), session.ending.lock()).await else {
            return self.terminate(session).await;
        };
        match &*ending {
            Ending::Over => return Ok(()),
            Ending::Failed(at, error) if *at >= asked => return Err(error.clone()),
            Ending::Failed(..) | Ending::Unasked => {}
        }
        let ended = self.terminate(session).await;
        *ending = match &ended {
            Ok(()) => Ending::Over,
            Err(error) => Ending::Failed(Instant::now(), error.clone()),
        };
        ended
    }

    async fn terminate(&self, session: &Session) -> Result<()> {
        let within = END_WITHIN.min(self.limit() / 2);
        let ended = self.ask(&session.identity.terminate(within)).await;
        let rows = ended.map_err(not_ended)?;
        match rows.first().and_then(|row| row.first()) {
            Some(Some(ended)) if ended == "f" => {
                let message = "the PostgreSQL server has not yet ended the session of a connection that broke";
                Err(Error::new(ErrorKind::Unavailable, message))
            }
            _ => Ok(()),
        }
    }
}

/// The error for a caller if the server refused to end a session.
fn not_ended(error: SqlError) -> Error {
    match error.is_denied() {
        true => {
            let message = "the PostgreSQL user may not end a session that this process had: its login must stay the same user, \
                           or be granted pg_signal_backend";
            Error::new(ErrorKind::Denied, message).with_source(error)
        }
        false => error.into_lock_error(),
    }
}
