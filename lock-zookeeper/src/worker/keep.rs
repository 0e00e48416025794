//! From the grant to the end of the hold.

use std::future::pending;
use std::sync::Arc;

use lock_core::backend::LostCause;
use tokio::time::{Instant, sleep, sleep_until};
use zookeeper_client::{Error as Driver, EventType};

use super::{PAUSE, Worker};
use crate::claim::{Delete, Held, Outcome};
use crate::error::{self, Fate};
use crate::session::Session;

enum Event {
    Release(Delete),
    Undo,
    LeaseEnded,
    TakenAway,
    SessionOver,
}

impl Worker {
    /// Stands by a hold until it ends, and takes its node away.
    pub(super) async fn keep(mut self, held: Arc<Held>) -> Outcome {
        let request = self.claim.request.clone();
        let granted = Instant::now();
        let mut event = self.event(&held.path, None).await;
        let ttl = request.ttl();
        if matches!(event, Event::LeaseEnded) && request.is_fixed() && granted.elapsed() > ttl * 4 / 5 {
            // Nobody believes in it any more, but it was asked for in full. One that ended earlier was lost.
            event = self.event(&held.path, Some(granted + ttl)).await;
        }
        if matches!(event, Event::TakenAway)
            && held.is_releasing()
            && let Some(delete) = self.releases.recv().await
        {
            // It was our own delete that took the node away: it is sent before it is handed to us.
            event = Event::Release(delete);
        }
        self.session.forget(request.holder());
        match event {
            Event::Release(delete) => self.release(delete, &held.path).await,
            Event::Undo => self.leave().await.map_or_else(Outcome::from, |()| Outcome::Undone),
            Event::LeaseEnded => self.leave().await.map_or_else(Outcome::from, |()| Outcome::NotOurs),
            Event::TakenAway => {
                request.lease().lose(LostCause::NotHeld);
                self.forget_node();
                Outcome::NotOurs
            }
            Event::SessionOver => Outcome::SessionEnded,
        }
    }

    /// What ends the hold. With `until`, the lease has ended already.
    async fn event(&mut self, path: &str, until: Option<Instant>) -> Event {
        let lease = self.claim.request.lease();
        let lease_ended = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => drop(lease.ended().await),
            }
        };
        tokio::select! {
            biased;
            Some(delete) = self.releases.recv() => Event::Release(delete),
            // The sender lives as long as the claim.
            _ = async { self.undo.wait_for(|undo| *undo).await.map(drop) } => Event::Undo,
            () = self.session.over() => Event::SessionOver,
            () = taken_away(&self.session, path) => Event::TakenAway,
            () = lease_ended => Event::LeaseEnded,
        }
    }

    /// Sees a release through.
    async fn release(&mut self, mut delete: Delete, path: &str) -> Outcome {
        let mut unsure = false;
        loop {
            let error = match delete.await {
                Ok(()) => break,
                Err(Driver::NoNode) if unsure => break,
                Err(Driver::NoNode) => {
                    self.forget_node();
                    return Outcome::NotOurs;
                }
                Err(error) => error,
            };
            match error::fate(&error) {
                Fate::Refused if unsure => return Outcome::Failed(error::from_driver(error)),
                Fate::Refused => return Outcome::Failed(error::refused(error)),
                // It may have been released: the caller is not told that it was lost before asking again.
                Fate::SessionEnded => return Outcome::Failed(error::session_ended(self.session.outage())),
                Fate::Unknown => {
                    unsure = true;
                    sleep(PAUSE).await;
                }
            }
            delete = self.session.delete(path);
        }
        self.forget_node();
        Outcome::Released
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
