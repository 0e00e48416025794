//! From the grant to the end of the hold.

use std::future::pending;
use std::sync::Arc;

use lock_core::backend::Lease;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use zookeeper_client::{Error as Driver, EventType};

use crate::claims::{Claim, Held, Outcome};
use crate::connection::{Delete, Session};
use crate::error::{self, Fate, PAUSE};

/// What ends a hold.
pub(crate) enum HoldEnd {
    Release(Delete),
    Undo,
    LeaseEnded,
    TakenAway,
    SessionEnded,
}

/// What the holder, or whoever wants the claim undone, asks of a hold's task.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) releases: mpsc::UnboundedReceiver<Delete>,
    pub(crate) undo: watch::Receiver<bool>,
}

/// Waits until the hold ends.
pub(crate) async fn end_of_hold(claim: &Claim, held: &Held, orders: &mut Orders) -> HoldEnd {
    let (request, granted) = (&claim.request, Instant::now());
    let ttl = request.ttl();
    let mut end = next_end(request.lease(), held, None, orders).await;
    if matches!(end, HoldEnd::LeaseEnded) && request.is_fixed() && granted.elapsed() > ttl * 4 / 5 {
        // Nobody believes in it any more, but it was asked for in full. One that ended earlier was lost.
        end = next_end(request.lease(), held, Some(granted + ttl), orders).await;
    }
    if matches!(end, HoldEnd::TakenAway)
        && held.is_releasing()
        && let Some(delete) = orders.releases.recv().await
    {
        // It was our own delete that took the node away: it is sent before it is handed to us.
        end = HoldEnd::Release(delete);
    }
    end
}

/// What ends the hold. With `until`, the lease has ended already.
async fn next_end(lease: &Lease, held: &Held, until: Option<Instant>, orders: &mut Orders) -> HoldEnd {
    let lease_ended = async {
        match until {
            Some(until) => sleep_until(until).await,
            None => drop(lease.ended().await),
        }
    };
    tokio::select! {
        biased;
        Some(delete) = orders.releases.recv() => HoldEnd::Release(delete),
        // The sender lives as long as the claim.
        _ = async { orders.undo.wait_for(|undo| *undo).await.map(drop) } => HoldEnd::Undo,
        () = held.session.over() => HoldEnd::SessionEnded,
        () = taken_away(&held.session, &held.path) => HoldEnd::TakenAway,
        () = lease_ended => HoldEnd::LeaseEnded,
    }
}

/// Repeats a release's delete until its outcome is known. Unless that is a failure, the node is gone.
pub(crate) async fn finish_release(session: &Arc<Session>, path: &str, mut delete: Delete) -> Outcome {
    let mut unsure = false;
    loop {
        let error = match delete.await {
            Ok(()) => return Outcome::Released,
            Err(Driver::NoNode) if unsure => return Outcome::Released,
            Err(Driver::NoNode) => return Outcome::NotOurs,
            Err(error) => error,
        };
        match error::fate(&error) {
            Fate::Refused if unsure => return Outcome::Failed(error::from_driver(error)),
            Fate::Refused => return Outcome::Failed(error::refused(error)),
            // It may have been released: the caller is not told that it was lost before asking again.
            Fate::SessionEnded => return Outcome::Failed(error::session_ended(session.outage())),
            Fate::Unknown => {
                unsure = true;
                sleep(PAUSE).await;
            }
        }
        delete = session.delete(path);
    }
}

/// Waits until our node has gone without us. Only holds that last are watched: for a short one it is not worth a
/// request.
async fn taken_away(session: &Arc<Session>, path: &str) {
    loop {
        sleep(session.interval()).await;
        let Ok(connection) = session.connected().await else {
            return pending().await;
        };
        let watch = match connection.client.get_and_watch_data(path).await {
            Err(Driver::NoNode) => return,
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
