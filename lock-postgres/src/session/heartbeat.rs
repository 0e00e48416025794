//! Heartbeats: while a session carries locks, the server hears of it three times in each session timeout.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::carrier::{Moment, Session};
use crate::connection::{Connection, TextRows};
use crate::error::SqlError;
use crate::protocol::session_setup::PING;

/// A session that has carried nothing for so long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// So many times in each session timeout it looks what is due.
const LOOKS: u32 = 12;
/// A heartbeat goes out at every fourth look.
const LOOKS_EACH_BEAT: u32 = 4;
/// The most heartbeats without an answer.
const MOST_UNANSWERED: usize = 16;

/// Begins the heartbeats of a session, on the runtime of its connection.
pub(super) fn start(session: &Arc<Session>, shared: &Arc<Shared>) {
    let task = keep(Arc::downgrade(session), Arc::downgrade(shared), session.timeout / LOOKS);
    session.connection.spawn_beside(task);
}

async fn keep(session: Weak<Session>, shared: Weak<Shared>, every: Duration) {
    let mut beats = FuturesUnordered::new();
    // Of those that are unanswered, in order.
    let mut sent = VecDeque::new();
    let (mut next, mut looks) = (Instant::now() + every, 0_u32);
    loop {
        let due = tokio::select! {
            biased;
            Some((moment, answer)) = beats.next(), if !beats.is_empty() => Err((moment, answer)),
            () = sleep_until(next) => Ok(()),
        };
        let Some(session) = session.upgrade().filter(|session| !session.has_ended()) else {
            return;
        };
        match due {
            Err((moment, answer)) => {
                sent.pop_front();
                if !acknowledge(&session, moment, answer) {
                    return;
                }
            }
            Ok(()) => {
                next = Instant::now() + every;
                looks = looks.wrapping_add(1);
                let is_late = sent
                    .front()
                    .is_some_and(|sent: &Instant| sent.elapsed() > session.timeout / 3);
                if !tick(&session, &shared, is_late) {
                    return;
                }
                let is_due = looks.is_multiple_of(LOOKS_EACH_BEAT);
                if is_due && !session.is_waiting() && beats.len() < MOST_UNANSWERED {
                    sent.push_back(Instant::now());
                    beats.push(beat(session.connection.clone()));
                }
            }
        }
    }
}

async fn beat(connection: Arc<Connection>) -> (Moment, Result<TextRows, SqlError>) {
    let moment = Moment::now();
    (moment, connection.run(PING, None).await)
}

/// Returns whether the session goes on.
fn acknowledge(session: &Session, moment: Moment, answer: Result<TextRows, SqlError>) -> bool {
    match answer {
        Ok(rows) if is_marked(&rows, &session.connection.mark) => {
            session.prove(moment);
            true
        }
        // It has become somebody else's, or is about to end.
        Ok(_) => {
            session.connection.abort();
            false
        }
        Err(error) if error.is_disconnect() => false,
        // The next one may have an answer.
        Err(_) => true,
    }
}

/// Whether the server answered a [`PING`] in the session with this mark.
pub(super) fn is_marked(rows: &TextRows, mark: &str) -> bool {
    rows.iter().flatten().any(|value| value.as_deref() == Some(mark))
}

/// What is due besides a heartbeat. Returns whether the session goes on.
fn tick(session: &Arc<Session>, shared: &Weak<Shared>, is_late: bool) -> bool {
    if session.is_waiting() {
        return true;
    }
    if session.idle_for().is_some_and(|idle| idle > IDLE) {
        session.connection.abort();
        return false;
    }
    if session.has_lapsed() {
        // The server may still hear of it: its holds are lost, and must not go on.
        session.connection.abort();
        return false;
    }
    if is_late {
        session.suspect(&SqlError::TimedOut(session.timeout / 3).into_lock_error());
    }
    if let Some(shared) = shared.upgrade() {
        for claim in session
            .over()
            .into_iter()
            .filter_map(|holder| shared.claims.get(holder))
        {
            let shared = shared.clone();
            session.connection.spawn_beside(async move {
                // If it fails, the next turn tries again.
                drop(shared.end_claim(&claim).await);
            });
        }
    }
    true
}
