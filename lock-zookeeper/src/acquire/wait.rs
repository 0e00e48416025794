//! A request that waits in the queue: what it watches, what it reports meanwhile, and how it leaves.

use std::time::Duration;

use futures_util::future::OptionFuture;
use lock_core::backend::Busy;
use tokio::time::sleep;
use zookeeper_client::{Error as DriverError, EventType};

use super::minimum::Kept;
use super::task::{ClaimTask, Step, Stop};
use super::token::Listing;
use crate::connection::Connection;
use crate::error;
use crate::protocol::{self, NodeData, Watch};

/// So long before its time is up, a request asks who has the lock then.
const ASK_BEFORE_THE_END: Duration = Duration::from_millis(500);

impl ClaimTask {
    /// Waits until the queue must be listed again.
    pub(super) async fn wait(&mut self, watch: Watch<'_>, holder: &str, listing: &Listing, kept: Kept) -> Step<()> {
        let minimum_over = async {
            match kept {
                Kept::For(left) => sleep(left).await,
                Kept::Nothing | Kept::Changed => std::future::pending().await,
            }
        };
        let happened = tokio::select! {
            happened = self.happened(watch, holder, listing) => happened?,
            () = minimum_over => Happened::Other,
            () = self.claim.request.given_up() => return Err(self.given_up()),
            // The sender lives as long as the claim.
            _ = async { self.end_requests.undo.clone().wait_for(|undo| *undo).await.map(drop) } => return Err(Stop::Undo),
            () = self.session.ended() => return Err(Stop::SessionEnded),
            never = self.report_the_last_holder() => match never {},
        };
        self.note_downgrade(watch, happened == Happened::Downgrade);
        Ok(())
    }

    /// Returns whether the queue must be listed again because the watched event happened before.
    pub(super) async fn was_downgraded(&mut self, watch: Watch<'_>) -> Step<bool> {
        let Watch::EndOrDowngrade(entry) = watch else {
            return Ok(false);
        };
        let connection = self.session.connected().await?;
        match connection.client.get_data(&self.path(entry)).await {
            Ok((data, _)) => {
                let was_downgraded = watch.has_happened(&NodeData::parse(&data));
                self.note_downgrade(watch, was_downgraded);
                return Ok(was_downgraded);
            }
            Err(DriverError::NoNode) => {}
            Err(error) => self.wait_out(error).await?,
        }
        Ok(true)
    }

    /// Leaves the queue, and reports who has the lock.
    pub(super) async fn leave_busy(&mut self, holder: &str) -> Stop {
        let (session, path) = (self.session.clone(), self.path(holder));
        let label = async {
            let connection = session.connected().await.ok()?;
            connection.client.get_data(&path).await.ok()
        };
        match tokio::join!(label, self.delete_node()) {
            (_, Err(stop)) => stop,
            (Some((data, _)), Ok(())) => Stop::Busy(NodeData::parse(&data).busy()),
            (None, Ok(())) => Stop::Busy(Busy::new()),
        }
    }

    /// Busy if that was the server's last answer; otherwise nobody knows.
    pub(super) fn given_up(&self) -> Stop {
        match (self.session.outage(), self.claim.request.last_busy()) {
            (None, Some(busy)) => Stop::Busy(busy),
            (why, _) => Stop::Failed(error::given_up(why)),
        }
    }

    /// Waits until what is watched has happened.
    async fn happened(&self, watch: Watch<'_>, holder: &str, listing: &Listing) -> Step<Happened> {
        loop {
            let connection = self.session.connected().await?;
            let client = &connection.client;
            let read = watch.read_entry();
            let label = OptionFuture::from((read != Some(holder)).then(|| client.get_data(&self.path(holder))));
            let watched = async {
                Ok(match watch {
                    // A watch of a node without children fires at its end, and not when its data is written.
                    Watch::End(entry) => {
                        let (.., watcher) = client.get_and_watch_children(&self.path(entry)).await?;
                        (Seen::Nothing, watcher)
                    }
                    Watch::EndOrDowngrade(entry) | Watch::EndOrEntry(entry) => {
                        let (data, _, watcher) = client.get_and_watch_data(&self.path(entry)).await?;
                        (Seen::Data(data), watcher)
                    }
                    Watch::Directory => {
                        let (_, stat, watcher) = client.get_and_watch_children(&self.claim.directory).await?;
                        (Seen::Children(stat.pzxid), watcher)
                    }
                })
            };
            let (label, seen, watcher) = match tokio::join!(label, watched) {
                (label, Ok((seen, watcher))) => (label, seen, watcher),
                (_, Err(DriverError::NoNode)) => return Ok(Happened::Other),
                (_, Err(error)) => {
                    self.wait_out(error).await?;
                    continue;
                }
            };
            let data = match seen {
                Seen::Children(pzxid) if pzxid != listing.pzxid => return Ok(Happened::Other),
                Seen::Children(_) | Seen::Nothing => None,
                Seen::Data(data) => Some(NodeData::parse(&data)),
            };
            if let Some(data) = data.as_ref().filter(|data| watch.has_happened(data)) {
                return Ok(match data.is_downgraded {
                    true => Happened::Downgrade,
                    false => Happened::Other,
                });
            }
            // The lock is taken even if that holder has left: by the entry that is watched, or by one before it.
            let holders_data = match label {
                Some(label) => label.ok().map(|(label, _)| NodeData::parse(&label)),
                None => data,
            };
            let busy = holders_data.map_or_else(Busy::new, |data| data.busy());
            self.claim.request.note_busy(busy);
            tokio::select! {
                // A change of the data uses up a one-shot watch, and the connection's end ends it.
                event = connection.watched(watcher) => match event.map(|event| event.event_type) {
                    None | Some(EventType::NodeDataChanged | EventType::Session) => {}
                    Some(EventType::NodeChildrenChanged) if watch != Watch::Directory => {}
                    Some(_) => return Ok(Happened::Other),
                },
                // After an outage, only the server knows whether the lock is still taken.
                () = self.outage_over() => {}
            }
        }
    }

    fn note_downgrade(&mut self, watch: Watch<'_>, was_downgraded: bool) {
        if was_downgraded {
            self.downgraded = watch.read_entry().map(str::to_owned);
        }
    }

    /// Shortly before the request's time is up, reads who has the lock then: a waiter behind others does not hear of it.
    async fn report_the_last_holder(&self) -> std::convert::Infallible {
        let request = &self.claim.request;
        let mut is_known = true;
        loop {
            let Some(left) = request.time_left() else {
                return std::future::pending().await;
            };
            match left.checked_sub(ASK_BEFORE_THE_END) {
                Some(rest) if !rest.is_zero() => {
                    sleep(rest).await;
                    is_known = false;
                }
                // It was read when the request began to wait.
                _ if is_known => sleep(ASK_BEFORE_THE_END).await,
                _ => {
                    if let Ok(connection) = self.session.connected().await
                        && let Some(busy) = self.read_holder(&connection).await
                    {
                        request.note_busy(busy);
                    }
                    is_known = true;
                }
            }
        }
    }

    /// The holder of the lock, if the server knows it.
    async fn read_holder(&self, connection: &Connection) -> Option<Busy> {
        let children = connection.client.list_children(&self.claim.directory).await.ok()?;
        let (holders, _) = protocol::holders(&children, None);
        let (first, _) = holders.first()?;
        if self.node.as_ref().is_some_and(|node| node.name == *first) {
            return None;
        }
        let (data, _) = connection.client.get_data(&self.path(first)).await.ok()?;
        Some(NodeData::parse(&data).busy())
    }

    pub(super) fn path(&self, entry: &str) -> String {
        format!("{}/{entry}", self.claim.directory)
    }

    /// Waits for the end of the next outage.
    async fn outage_over(&self) {
        let mut outages = self.session.outages();
        // The senders live as long as the session.
        let _ = outages.wait_for(Option::is_some).await;
        let _ = outages.wait_for(Option::is_none).await;
    }
}

/// Why a waiter lists the queue again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Happened {
    Downgrade,
    Other,
}

/// The event that a watch reported.
enum Seen {
    Nothing,
    Data(Vec<u8>),
    /// The last change of the directory's children.
    Children(i64),
}
