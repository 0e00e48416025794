//! From the grant to the end of the hold.

use std::future::pending;
use std::sync::Arc;

use lock_core::backend::Lease;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use zookeeper_client::{Error as DriverError, EventType};

use crate::claims::{Claim, Grant, Outcome};
use crate::connection::{Delete, Session};
use crate::error::{self, Failure, RETRY_DELAY};

/// What ends a hold.
pub(crate) enum HoldEnd {
    Release(Delete),
    Undo,
    LeaseEnded,
    TakenAway,
    SessionEnded,
}

/// What the callers ask of a hold's task.
#[derive(Debug)]
pub(crate) struct EndRequests {
    pub(crate) releases: mpsc::UnboundedReceiver<Delete>,
    pub(crate) undo: watch::Receiver<bool>,
}

/// Waits until the hold ends.
pub(crate) async fn end_of_hold(claim: &Claim, grant: &Grant, end_requests: &mut EndRequests) -> HoldEnd {
    let (request, granted) = (&claim.request, Instant::now());
    let ttl = request.ttl();
    let mut end = next_end(request.lease(), grant, None, end_requests).await;
    if matches!(end, HoldEnd::LeaseEnded) && request.is_fixed() && granted.elapsed() > ttl * 4 / 5 {
        // A fixed lease that ended at its time keeps the node for the whole ttl. One that ended earlier was lost.
        end = next_end(request.lease(), grant, Some(granted + ttl), end_requests).await;
    }
    if matches!(end, HoldEnd::TakenAway)
        && grant.is_releasing()
        && let Some(delete) = end_requests.releases.recv().await
    {
        // Our own delete took the node away: a release sends it before it passes it on.
        end = HoldEnd::Release(delete);
    }
    end
}

/// What ends the hold. With `until`, the lease has ended already.
async fn next_end(lease: &Lease, grant: &Grant, until: Option<Instant>, end_requests: &mut EndRequests) -> HoldEnd {
    let lease_ended = async {
        match until {
            Some(until) => sleep_until(until).await,
            None => drop(lease.ended().await),
        }
    };
    tokio::select! {
        biased;
        Some(delete) = end_requests.releases.recv() => HoldEnd::Release(delete),
        // The sender lives as long as the claim.
        _ = async { end_requests.undo.wait_for(|undo| *undo).await.map(drop) } => HoldEnd::Undo,
        () = grant.session.ended() => HoldEnd::SessionEnded,
        () = taken_away(&grant.session, &grant.path) => HoldEnd::TakenAway,
        () = lease_ended => HoldEnd::LeaseEnded,
    }
}

/// Repeats a release's delete until its outcome is known. Unless that is a failure, the node is gone.
pub(crate) async fn finish_release(session: &Arc<Session>, path: &str, mut delete: Delete) -> Outcome {
    let mut unsure = false;
    loop {
        let error = match delete.await {
            Ok(()) => return Outcome::Released,
            Err(DriverError::NoNode) if unsure => return Outcome::Released,
            Err(DriverError::NoNode) => return Outcome::NotOurs,
            Err(error) => error,
        };
        match error::classify(&error) {
            Failure::Rejected if unsure => return Outcome::Failed(error::lock_error(error)),
            Failure::Rejected => return Outcome::Failed(error::rejected(error)),
            // The delete may have released it: only another try may report it as lost.
            Failure::SessionEnded => return Outcome::Failed(error::session_ended(session.outage())),
            Failure::Ambiguous => {
                unsure = true;
                sleep(RETRY_DELAY).await;
            }
        }
        delete = session.delete(path);
    }
}

/// Waits until our node is gone. Watches it after one interval only: a short hold is not worth a request.
async fn taken_away(session: &Arc<Session>, path: &str) {
    loop {
        sleep(session.interval()).await;
        let Ok(connection) = session.connected().await else {
            return pending().await;
        };
        let watch = match connection.client.get_and_watch_data(path).await {
            Err(DriverError::NoNode) => return,
            Ok((_, stat, _)) if !session.owns(&stat) => return,
            Ok((_, _, watch)) => watch,
            Err(_) => continue,
        };
        let event = connection.watched(watch).await;
        if event.is_some_and(|event| event.event_type == EventType::NodeDeleted) {
            return;
        }
    }
}
