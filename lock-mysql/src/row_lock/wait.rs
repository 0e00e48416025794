//! Waiting for a row, and noticing meanwhile that the server is silent.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Busy};
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until, timeout};

use super::Shared;
use crate::connection::Session;
use crate::error::{RequestError, SqlError};
use crate::protocol::StatementResult;
use crate::protocol::row_lock::{HOLDER, LOCKED, Statements, busy};

/// The longest single wait for a row: so long may a waiter that fell silent keep its place in the queue, and so long a statement
/// that waits for a row makes `FLUSH TABLES WITH READ LOCK` wait, behind which all writes of the server wait.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// If no connection had an answer for so long, a waiter pings the server.
const PING_AFTER: Duration = Duration::from_secs(1);
/// If the ping has no answer for so long, the server counts as silent.
const SILENT_AFTER: Duration = Duration::from_millis(1500);
/// On a slow line it takes this number of round trips: the ping may need a new connection.
const SILENT_AFTER_ROUND_TRIPS: u32 = 5;
/// The pause after a ping that failed.
const PING_PAUSE: Duration = Duration::from_millis(100);

/// When the request's time is up, the server ends the wait by itself, and its answer is on its way. The answer may take
/// this time and two round trips before the connection is ended instead.
const END_OF_WAIT_AFTER: Duration = Duration::from_millis(200);

/// The end of a wait.
pub(super) enum Waited {
    /// The row is locked now.
    Locked,
    /// It is not, but may be free.
    NotLocked,
    /// The request's time was up, or no more may wait, and the connection is clean.
    InVain(Busy),
    /// Nobody waits any more; the connection's statement may still.
    GivenUp(Busy),
}

impl Shared {
    /// Waits for a row that another holder has locked, on a line whose last round trip took `round_trip`. Reports to the
    /// caller who holds it.
    pub(super) async fn wait(
        &self,
        session: &Session,
        request: &AcquireRequest,
        round_trip: Duration,
    ) -> Result<Waited, RequestError> {
        let Some(_permit) = self.client.pool.try_wait() else {
            // Core asks again after a while.
            return Ok(Waited::InVain(self.current_holder(session, request).await?));
        };
        let (early, shown) = oneshot::channel();
        let silent_after = SILENT_AFTER.max(SILENT_AFTER_ROUND_TRIPS * round_trip);
        tokio::select! {
            biased;
            never = note_holder(request, shown) => match never {},
            waited = self.wait_for_row(session, request, early) => Ok(waited?),
            () = has_to_end(request, round_trip) => Ok(Waited::GivenUp(last_busy(request))),
            lost = self.note_silence(session, request, silent_after) => Err(lost),
        }
    }

    async fn wait_for_row(
        &self,
        session: &Session,
        request: &AcquireRequest,
        early: oneshot::Sender<StatementResult>,
    ) -> Result<Waited, SqlError> {
        let ttl = request.ttl();
        let seconds = ttl.min(LONGEST_WAIT).as_secs().max(1);
        let until = request.time_left().filter(|left| *left < Duration::from_secs(seconds));
        let limit = Duration::from_secs(seconds) + self.client.response_timeout();
        request.sending();
        let sql = self
            .statements
            .wait_for_row(request.name(), request.mode(), seconds, until);
        match session.run_early(sql, Some(ttl), limit, HOLDER, early).await {
            Ok(answer) if answer.row(LOCKED).is_some() => Ok(Waited::Locked),
            Ok(_) => Ok(Waited::NotLocked),
            Err(error) if error.is_busy() && request.is_given_up() => {
                let (cleaning, limit) = (Statements::clean_up_wait(), self.client.response_timeout());
                session.run(cleaning, None, limit).await?;
                Ok(Waited::InVain(last_busy(request)))
            }
            Err(error) if error.is_busy() || error.is_deadlock() => Ok(Waited::NotLocked),
            Err(error) => Err(error),
        }
    }

    /// Reports to the caller when the server does not answer a ping within `limit`: the connection on which a statement
    /// waits cannot. Returns only if the server answers again and does not have that connection any more.
    async fn note_silence(&self, session: &Session, request: &AcquireRequest, limit: Duration) -> RequestError {
        let mut is_noted = false;
        loop {
            sleep_until(self.client.last_answer() + PING_AFTER).await;
            let answered = self.client.last_answer();
            if answered.elapsed() < PING_AFTER {
                continue;
            }
            // An answer to anything else counts as well.
            let is_silent = || self.client.last_answer() == answered;
            let mut ping = pin!(self.client.control.ping());
            let pinged = match timeout(limit, &mut ping).await {
                Ok(pinged) => pinged,
                Err(_elapsed) => {
                    if is_silent() {
                        request.note_unreachable(SqlError::TimedOut(limit).into_lock_error());
                        is_noted = true;
                    }
                    ping.await
                }
            };
            if let Err(error) = pinged
                && is_silent()
            {
                request.note_unreachable(error.into_lock_error());
                is_noted = true;
                sleep(PING_PAUSE).await;
            } else if is_noted {
                match self.client.find(session.identity()).await {
                    Ok(None) => return SqlError::Disconnected.into(),
                    Ok(Some(_)) => {
                        request.note_busy(last_busy(request));
                        is_noted = false;
                    }
                    // Asked again after the next silence.
                    Err(_) => {}
                }
            }
        }
    }
}

/// Reports who has the lock as soon as the server says so. Never ends.
async fn note_holder(request: &AcquireRequest, shown: oneshot::Receiver<StatementResult>) -> Infallible {
    if let Ok(holder) = shown.await {
        request.note_busy(busy(holder.rows.first()).unwrap_or_default());
    }
    pending().await
}

/// Returns when the wait has to be ended here: the caller has left, or the server does not end it in time.
async fn has_to_end(request: &AcquireRequest, round_trip: Duration) {
    request.given_up().await;
    if request.time_left() == Some(Duration::ZERO) {
        sleep(END_OF_WAIT_AFTER + 2 * round_trip).await;
    }
}

fn last_busy(request: &AcquireRequest) -> Busy {
    request.last_busy().unwrap_or_default()
}
