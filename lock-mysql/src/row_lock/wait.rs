//! Waiting for a row, and noticing meanwhile that the server is silent.

use std::pin::pin;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Busy};
use tokio::time::{sleep, sleep_until, timeout};

use super::Shared;
use crate::connection::Session;
use crate::error::{RequestError, SqlError};

/// The longest single wait for a row: so long may a waiter that fell silent keep its place in the queue.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// If no connection had an answer for so long, a waiter pings the server.
const PING_AFTER: Duration = Duration::from_secs(1);
/// If the ping has no answer for so long, the server counts as silent.
const SILENT_AFTER: Duration = Duration::from_millis(1500);
/// On a slow line it takes this number of round trips: the ping may need a new connection.
const SILENT_AFTER_ROUND_TRIPS: u32 = 5;
/// The pause after a ping that failed.
const PING_PAUSE: Duration = Duration::from_millis(100);

/// How a wait ended.
pub(super) enum Waited {
    /// The row is locked now.
    Locked,
    /// It is not, but may be free.
    NotLocked,
    /// Nobody waits any more; the connection's statement may still.
    GivenUp,
}

impl Shared {
    /// Waits for a row that another holder has locked, on a line whose last round trip took `round_trip`.
    pub(super) async fn wait(
        &self,
        session: &Session,
        request: &AcquireRequest,
        busy: &Busy,
        round_trip: Duration,
    ) -> Result<Waited, RequestError> {
        request.note_busy(busy.clone());
        tokio::select! {
            biased;
            waited = self.wait_for_row(session, request) => Ok(waited?),
            () = request.given_up() => Ok(Waited::GivenUp),
            lost = self.note_silence(session, request, busy, SILENT_AFTER.max(SILENT_AFTER_ROUND_TRIPS * round_trip)) => Err(lost),
        }
    }

    async fn wait_for_row(&self, session: &Session, request: &AcquireRequest) -> Result<Waited, SqlError> {
        let ttl = request.ttl();
        let seconds = ttl.min(LONGEST_WAIT).as_secs().max(1);
        let limit = Duration::from_secs(seconds) + self.client.response_timeout();
        request.sending();
        match session
            .run(self.statements.wait_for_row(request.name(), seconds), Some(ttl), limit)
            .await
        {
            Ok(answer) if answer.row(1).is_some() => Ok(Waited::Locked),
            Ok(_) => Ok(Waited::NotLocked),
            Err(error) if error.is_busy() || error.is_deadlock() => Ok(Waited::NotLocked),
            Err(error) => Err(error),
        }
    }

    /// Reports to the caller when the server does not answer a ping within `limit`: the connection on which a statement
    /// waits cannot. Returns only if the server answers again and does not have that connection any more.
    async fn note_silence(
        &self,
        session: &Session,
        request: &AcquireRequest,
        busy: &Busy,
        limit: Duration,
    ) -> RequestError {
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
                match self.client.find(session.identity(), None).await {
                    Ok(None) => return SqlError::Disconnected.into(),
                    Ok(Some(_)) => {
                        request.note_busy(busy.clone());
                        is_noted = false;
                    }
                    // Asked again after the next silence.
                    Err(_) => {}
                }
            }
        }
    }
}
