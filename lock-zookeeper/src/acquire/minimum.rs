//! Minimum holds: a persistent node, the kept node, has the name taken when the hold's own node is gone.
//!
//! A request with a minimum makes its kept node just before its grant, when a list has shown its own node as the first. One transaction
//! checks that its own node is there and makes the kept node: so whoever lists the directory without our node finds the kept
//! node there. Its name has our sequence. It takes our place in the queue when our node ends, and nobody behind it is admitted. A
//! release writes the time that is left into it and deletes our node, in one transaction as well. Clients that know of no
//! kept nodes count them as entries before their own, but do not delete them.
//!
//! # When it is over
//! It is over when its time has passed since its last write, by the leader's clock. A waiter asks nobody for the leader's time: its
//! own node was created at one, and since that answer at least so much time has passed as its own clock shows. If its own node
//! is older than the kept one, it counts from when it first read the kept one as it stands.
//!
//! Each election may bring another clock, and a clock may be set back. Where this shows, nobody knows how much time has passed: so
//! the waiter writes the kept node as it is, and its time begins anew. The name is free too late then, by its minimum at most, and never
//! too early. `torture/models/src/zookeeper_minimum.rs` tries every order.

use std::time::Duration;

use tokio::time::Instant;
use zookeeper_client::{Client, Error as DriverError};

use super::task::{ClaimTask, Step};
use crate::error::{self, Failure};
use crate::hold::keep::{Keep, OwnNode, SeenKept};
use crate::protocol::{self, NodeData, Passed, ServerTime};

/// Each waiter looks after a kept node by this much later than the one before it, unless it is the next. The waiters
/// before it may be clients that do not know kept nodes.
const LOOK_LATER: Duration = Duration::from_secs(1);

/// The kept node that a waiter finds at the front of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// No kept node, or one that is not ours to end.
    Nothing,
    /// A kept node: look again after this time.
    For(Duration),
    /// One that is gone by now, or was written: the directory must be listed again.
    Changed,
}

impl ClaimTask {
    /// The kept node that our node has or may get. `None` if it is no exclusive one.
    pub(super) fn keep(&self) -> Option<Keep> {
        let node = self.node.as_ref()?;
        let path = self.path(&protocol::kept_name(&node.name)?);
        Some(Keep::new(path, node.data.label.clone(), &self.config))
    }

    /// Makes the kept node of our minimum hold, if there is to be one. False when the directory must be listed again.
    pub(super) async fn keep_minimum(&mut self) -> Step<bool> {
        let Some((minimum, mut keep)) = self.claim.request.minimum().zip(self.keep()) else {
            // It may have had one, for another caller.
            self.keep = None;
            return self.delete_kept().await.map(|()| true);
        };
        let Some(own) = self.node.as_ref().map(|node| node.path.clone()) else {
            return Ok(false);
        };
        self.kept = Some(keep.path().to_owned());
        self.claim.note_kept();
        loop {
            let connection = self.session.connected().await?;
            let write = keep.write(&connection.client, (&own, OwnNode::Check), || minimum);
            match write.await {
                Ok(()) => {
                    self.keep = Some(keep.with_minimum(minimum));
                    return Ok(true);
                }
                Err(DriverError::NoNode) => return self.find_node().await.map(|()| false),
                Err(error) => self.wait_out(error).await?,
            }
        }
    }

    /// Our kept nodes among the children. Of those of earlier sessions, nobody was told of the grants.
    pub(super) fn our_kept(&self, children: &[String]) -> Vec<String> {
        let prefix = protocol::kept_name(&self.claim.prefix);
        let is_ours = |child: &&String| prefix.as_ref().is_some_and(|prefix| child.starts_with(prefix));
        children.iter().filter(is_ours).cloned().collect()
    }

    /// Notes that of our node among these, and deletes the others.
    pub(super) async fn find_kept(&mut self, client: &Client, kept: Vec<String>) -> Result<(), DriverError> {
        self.kept = None;
        let own = self.node.as_ref().and_then(|node| protocol::kept_name(&node.name));
        for name in kept {
            let path = self.path(&name);
            if own.as_ref() == Some(&name) {
                self.kept = Some(path);
                continue;
            }
            match client.delete(&path, None).await {
                Ok(()) | Err(DriverError::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes the kept node and then ours: nobody was told of the grant.
    pub(super) async fn undo_node(&mut self) -> Step<()> {
        if self.node.is_none() && self.claim.has_leftover() {
            self.find_node().await?;
        }
        self.delete_kept().await?;
        self.delete_node().await
    }

    async fn delete_kept(&mut self) -> Step<()> {
        while let Some(kept) = &self.kept {
            let connection = self.session.connected().await?;
            match connection.client.delete(kept, None).await {
                Ok(()) | Err(DriverError::NoNode) => self.kept = None,
                Err(error) => self.wait_out(error).await?,
            }
        }
        Ok(())
    }

    /// Looks after the kept node in front of the queue, if there is one: deletes it if it is over, and writes it if nobody knows.
    pub(super) async fn kept_in_front(&mut self, children: &[String]) -> Step<Kept> {
        let own = self
            .node
            .as_ref()
            .map(|node| (&*node.name, node.created, node.created_read));
        let Some((own, created, created_read)) = own else {
            return Ok(Kept::Changed);
        };
        let Some((name, ahead)) = protocol::kept_in_front(children, own) else {
            return Ok(Kept::Nothing);
        };
        let (connection, path) = (self.session.connected().await?, self.path(name));
        let (data, stat) = match connection.client.get_data(&path).await {
            Ok(found) => found,
            Err(error) => return self.kept_changed(error).await,
        };
        // If another version makes others, it ends them.
        let Some(minimum) = NodeData::parse(&data).keep.map(Duration::from_millis) else {
            return Ok(Kept::Nothing);
        };
        let seen = self.seen_at(name, stat.mzxid);
        let written = ServerTime {
            zxid: stat.mzxid,
            at: stat.mtime,
        };
        let passed = match protocol::passed(written, created) {
            Passed::AtLeast(before) => before + protocol::certain(created_read.elapsed()),
            Passed::Nothing => protocol::certain(seen.elapsed()),
            Passed::Unknown => {
                let written = connection.client.set_data(&path, &data, Some(stat.version)).await;
                return match written {
                    Ok(_) => Ok(Kept::Changed),
                    Err(error) => self.kept_changed(error).await,
                };
            }
        };
        let left = minimum.saturating_sub(passed);
        if left.is_zero() {
            // By its version: it may have been written meanwhile.
            return match connection.client.delete(&path, Some(stat.version)).await {
                Ok(()) => Ok(Kept::Changed),
                Err(error) => self.kept_changed(error).await,
            };
        }
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        Ok(Kept::For(
            protocol::wait_for(left).saturating_add(LOOK_LATER.saturating_mul(ahead)),
        ))
    }

    /// The meaning of an error in a request for a kept node.
    async fn kept_changed(&self, error: DriverError) -> Step<Kept> {
        match (error::classify(&error), error) {
            (_, DriverError::NoNode | DriverError::BadVersion) => Ok(Kept::Changed),
            // Somebody else's, to which we have no access: it is an entry before ours like any other.
            (Failure::Rejected, _) => Ok(Kept::Nothing),
            (_, error) => self.wait_out(error).await.map(|()| Kept::Changed),
        }
    }

    /// The moment when this task first read the kept node in its current state.
    fn seen_at(&mut self, name: &str, mzxid: i64) -> Instant {
        match &self.seen {
            Some(seen) if seen.name == name && seen.mzxid == mzxid => seen.at,
            _ => {
                let (name, at) = (name.to_owned(), Instant::now());
                self.seen = Some(SeenKept { name, mzxid, at });
                at
            }
        }
    }
}
