//! Heartbeats: while a session carries locks, the server hears of it three times in each session timeout.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

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
    let (beats, mut looks) = (Arc::new(Semaphore::new(MOST_UNANSWERED)), 0_u32);
    loop {
        sleep(every).await;
        let Some(session) = session.upgrade().filter(|session| !session.has_ended()) else {
            return;
        };
        if !tick(&session, &shared) {
            return;
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS_EACH_BEAT)
            && !session.is_waiting()
            && let Ok(permit) = beats.clone().try_acquire_owned()
        {
            let beat = beat(session.connection.clone(), Arc::downgrade(&session), permit);
            session.connection.spawn_beside(beat);
        }
    }
}

async fn beat(connection: Arc<Connection>, session: Weak<Session>, _unanswered: OwnedSemaphorePermit) {
    let moment = Moment::now();
    // If it fails, the next one may have an answer.
    if let Ok(rows) = connection.run(PING, None).await
        && let Some(session) = session.upgrade()
    {
        match is_marked(&rows, &connection.mark) {
            true => session.prove(moment),
            // It has become somebody else's, or is about to end.
            false => connection.abort(),
        }
    }
}

/// Whether the server answered a [`PING`] in the session with this mark.
pub(super) fn is_marked(rows: &TextRows, mark: &str) -> bool {
    rows.iter().flatten().any(|value| value.as_deref() == Some(mark))
}

/// What is due besides a heartbeat. Returns whether the session goes on.
fn tick(session: &Arc<Session>, shared: &Weak<Shared>) -> bool {
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
    // A heartbeat has had no answer for a third of it.
    if session.unproven_for() > session.timeout * 2 / 3 {
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
