//! From the grant to the end of the hold.

use std::future::pending;
use std::sync::Arc;

use futures_util::future::OptionFuture;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use zookeeper_client::{Error as DriverError, EventType};

use super::release::Release;
use super::token_mark::TokenMark;
use crate::claims::{Claim, Grant};
use crate::connection::Session;

/// The reason why a hold ends.
pub(crate) enum HoldEnd {
    Release(Release),
    Undo,
    LeaseEnded,
    TakenAway,
    SessionEnded,
}

/// The requests of callers to a hold's task.
#[derive(Debug)]
pub(crate) struct EndRequests {
    pub(crate) releases: mpsc::UnboundedReceiver<Release>,
    pub(crate) undo: watch::Receiver<bool>,
}

impl EndRequests {
    /// The next one.
    pub(crate) async fn next(&mut self) -> HoldEnd {
        tokio::select! {
            biased;
            Some(release) = self.releases.recv() => HoldEnd::Release(release),
            // The sender lives as long as the claim.
            _ = self.undo.wait_for(|undo| *undo) => HoldEnd::Undo,
        }
    }

    /// The release that has begun.
    async fn release(&mut self) -> Release {
        match self.releases.recv().await {
            Some(release) => release,
            // The task has a sender of its own.
            None => pending().await,
        }
    }
}

/// Waits until the hold ends. Shows its token meanwhile by the mark, if there is one.
pub(crate) async fn end_of_hold(
    claim: &Claim,
    grant: &Grant,
    mut mark: Option<TokenMark>,
    end_requests: &mut EndRequests,
) -> HoldEnd {
    let (request, granted) = (&claim.request, grant.at);
    let ttl = request.ttl();
    let mut end = next_end(claim, grant, None, &mut mark, end_requests).await;
    if matches!(end, HoldEnd::LeaseEnded) && request.is_fixed() && granted.elapsed() > ttl * 4 / 5 {
        // A fixed lease that ended at its time keeps the node for the whole ttl. One that ended earlier was lost.
        end = next_end(claim, grant, Some(granted + ttl), &mut mark, end_requests).await;
    }
    if matches!(end, HoldEnd::TakenAway) && grant.is_releasing() {
        // Our own delete took the node away: a release sends it before it passes it on.
        end = HoldEnd::Release(end_requests.release().await);
    }
    end
}

/// Waits for the end of the hold. With `until`, the lease has ended already.
async fn next_end(
    claim: &Claim,
    grant: &Grant,
    until: Option<Instant>,
    mark: &mut Option<TokenMark>,
    end_requests: &mut EndRequests,
) -> HoldEnd {
    let lease_ended = async {
        match until {
            Some(until) => sleep_until(until).await,
            None => claim.lease_ended().await,
        }
    };
    tokio::select! {
        biased;
        end = end_requests.next() => end,
        () = grant.session.ended() => HoldEnd::SessionEnded,
        () = taken_away(&grant.session, &grant.path, mark) => HoldEnd::TakenAway,
        () = lease_ended => HoldEnd::LeaseEnded,
    }
}

/// Waits until our node is gone. Watches it after one interval only, and shows its token then: a short hold is not worth a request.
async fn taken_away(session: &Arc<Session>, path: &str, mark: &mut Option<TokenMark>) {
    loop {
        sleep(session.interval()).await;
        let Ok(connection) = session.connected().await else {
            return pending().await;
        };
        let marking = OptionFuture::from(mark.as_ref().map(|mark| mark.write(&connection.client, path)));
        // It fires at the node's end, and at no write of it.
        let watching = connection.client.get_and_watch_children(path);
        let (is_marked, watching) = tokio::join!(marking, watching);
        mark.take_if(|_| is_marked == Some(true));
        let watch = match watching {
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
