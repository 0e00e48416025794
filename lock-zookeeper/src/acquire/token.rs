//! The token of a grant: sixteen times a transaction id (zxid), plus the root path's token offset.
//!
//! The transaction id is the last change of the directory's children (`pzxid`) in the list that shows our node as the first, or
//! that of our node's creation if that is larger. A grant writes nothing for it, unless its token is to be shown: see below. The
//! fifteen numbers after each token are those of the passes within a process.
//!
//! The offset is 0 until a request has a token floor that tokens have not reached. It is only ever raised, by
//! compare-and-set, and counts for all locks and clients of the root path. A request that adopts a token raises it so that the token
//! is that one, if tokens have not reached it. The raise of a hold's token raises it as well. It has a node of its own under the root, since
//! the server deletes the directories of unused locks.
//!
//! # Why tokens grow
//! A grant needs a listing that shows our node as the first. Let one hold of a lock be granted before another. Its node was
//! gone in the listing of the later grant: nodes are admitted in the order of their creation.
//! - The later transaction id is larger. All that the earlier hold was based on was there while its node was: lists that
//!   showed its node, and writes of its node. The end of a node, whatever causes it, is a change of the directory's children, and
//!   is later than all these. If the directory was deleted after that, our node's creation is later still.
//! - The later offset is not smaller. The earlier holder knew its offset before its node ended. The later holder
//!   reads the offset after a listing without that node. A server answers the requests of one connection in order, and
//!   applies all changes in the order of the leader. So the read sees every change from before the node's end. A grant requests
//!   its listing after it knew its offset, so that the offset does not depend on what happened after the listing. A session that
//!   watches the offset's node does not read it again. It uses a listing only if the watch had not fired when the listing came.
//!   Then the offset was the same when the server answered with the listing.
//! - Transaction ids differ by one at least, and tokens by sixteen. So a pass takes no later grant's token.
//!
//! # A server that restarted
//! A server that is older than 3.6, or that has `closeSessionTxn.enabled` off, may restore a `pzxid` from a snapshot that lacks
//! the end of a node, if that node ended while the snapshot was taken (ZOOKEEPER-3125, -3145, -3249). So we trust a list only
//! over the connection over which our node was created. A server ends all connections before it loads a snapshot. Hence, it
//! has applied each change since our node's creation by itself. A change before that creation does not matter. Over
//! another connection, the grant writes our node once, and takes the transaction id of that write.
//!
//! `torture/models/src/token_offset.rs` tries every order of these steps, with passes, servers that restart, and nodes and
//! directories that are deleted meanwhile.
//!
//! # Status
//! The directory's data is the offset of the last grant. From this, `status` computes the holder's token even if the offset
//! was raised since. It shows a token only if it knows the transaction id: that of a write of the holder's node, or of its
//! creation if nobody has come or gone since. Observers of an election need the token of each leader. So a grant whose request
//! [shows its token](AcquireRequest::shows_token) writes its node, which takes one request more.

use std::future::Future;
use std::sync::{Arc, Weak};

use futures_util::future::{Either, OptionFuture, ready};
use lock_core::backend::{AcquireRequest, Mode, SentAt};
use lock_core::{Error, ErrorKind, FencingToken};
use zookeeper_client::{Client, Error as DriverError};

use super::task::{ClaimTask, Step, Stop};
use crate::claims::Token;
use crate::connection::{Connection, Stored};
use crate::names;
use crate::protocol::{self, NodeData, create_offset_options, offset_data, parse_offset};

/// The largest token offset. Beyond the transaction ids that it leaves room for, all locks of the root path would fail.
pub(crate) const MAX_OFFSET: i64 = i64::MAX - (1 << 56);

/// A list of the lock's directory.
pub(super) struct Listing {
    /// The time before the list was requested.
    pub(super) sent: SentAt,
    pub(super) children: Vec<String>,
    /// The last change of these children.
    pub(super) pzxid: i64,
    /// The connection that it came over.
    pub(super) over: Weak<Connection>,
    /// The token offset that was known before the list was requested.
    pub(super) known_offset: i64,
    /// The token offsets, read after the list. If the root path's is watched, it is that of the server's answer with the list.
    pub(super) offsets: Offsets,
}

/// The root path's token offset, before a list is requested.
pub(super) struct KnownOffset {
    pub(super) offset: i64,
    /// What the server has, if that is watched.
    watched: Option<Arc<Stored>>,
}

/// The token offsets at the server.
pub(super) struct Offsets {
    /// The root path's.
    root: Stored,
    /// The offset of the last grant, from the lock's directory. `None` stands for other data.
    directory: Option<i64>,
}

impl ClaimTask {
    pub(super) fn known_offset(&self, connection: &Arc<Connection>) -> KnownOffset {
        let token_offset = &self.session.token_offset;
        KnownOffset {
            offset: token_offset.known(),
            watched: token_offset.watched(connection),
        }
    }

    /// Requests the offsets, but not the root path's if that is watched.
    pub(super) fn read_offsets(
        &self,
        client: &Client,
        known: &KnownOffset,
    ) -> impl Future<Output = Result<Offsets, DriverError>> + Send + use<> {
        let root = match known.watched.as_deref() {
            Some(watched) => Either::Left(ready(Ok(*watched))),
            None => Either::Right(Stored::read(client, &self.config)),
        };
        // As long as the offset is 0, no grant had another one.
        let directory = OptionFuture::from((known.offset > 0).then(|| client.get_data(&self.claim.directory)));
        async move {
            let (root, directory) = tokio::join!(root, directory);
            let directory = match directory {
                None => Some(0),
                Some(Ok((data, _))) => parse_offset(&data),
                Some(Err(DriverError::NoNode)) => None,
                Some(Err(error)) => return Err(error),
            };
            Ok(Offsets { root: root?, directory })
        }
    }

    /// False if the offset was watched when the list was requested, and may have changed since.
    pub(super) fn is_current(&self, connection: &Arc<Connection>, known: &KnownOffset, offsets: &Offsets) -> bool {
        let token_offset = &self.session.token_offset;
        if let Some(watched) = &known.watched {
            return token_offset.is_unchanged(watched, connection);
        }
        if offsets.root.offset == Some(known.offset) {
            token_offset.was_unchanged(connection, &self.config, &self.session.runtime);
        }
        true
    }

    /// The token of a grant by this listing. `None` when the directory must be listed again.
    pub(super) async fn token(&mut self, listing: &Listing, beside_downgraded: bool) -> Step<Option<Token>> {
        let Some(base) = self.base(listing, beside_downgraded).await? else {
            return Ok(None);
        };
        let Stored { offset, version } = listing.offsets.root;
        let offset = offset.ok_or_else(|| Stop::Failed(other_data(self.config.root())))?;
        let floor = floor(&self.claim.request);
        // If the stored offset is smaller than the known one, somebody has deleted it.
        let wanted = protocol::offset_above(floor, base).max(listing.known_offset);
        if wanted > offset {
            self.raise_offset(wanted, version).await?;
            return Ok(None);
        }
        if offset > listing.known_offset {
            self.session.token_offset.learn(offset);
            return Ok(None);
        }
        if listing.offsets.directory != Some(offset) {
            self.write_directory(offset).await?;
            return Ok(None);
        }
        let number = protocol::token(base, offset).ok_or_else(|| Stop::Failed(exhausted()))?;
        Ok(Some(Token { number, base }))
    }

    /// The transaction id of a grant by this listing, which shows our node as admitted. Writes our node if the request's label
    /// has changed, if its token is to be shown, or if the listing gives no base: one of another connection than our node's
    /// creation never does.
    async fn base(&mut self, listing: &Listing, beside_downgraded: bool) -> Step<Option<i64>> {
        let Some(node) = &self.node else {
            return Ok(None);
        };
        let mode = self.claim.request.mode();
        let listed = protocol::base(mode, node.czxid, listing.pzxid, beside_downgraded);
        // Others cannot tell by which list it was granted.
        let is_enough = node.created_over.ptr_eq(&listing.over) && !self.claim.request.shows_token();
        let base = node.written.or(listed.filter(|_| is_enough));
        let mut data = node.data.clone();
        data.label = NodeData::labelled(self.claim.request.label()).label;
        // Those who wait for permits behind it look for this.
        data.has_entered |= base.is_none() && mode != Mode::Exclusive;
        match base {
            Some(base) if data == node.data => Ok(Some(base)),
            _ => self.write_node(data).await,
        }
    }

    /// Takes a new transaction id for our node, which is admitted, by a write of it.
    async fn write_node(&mut self, data: NodeData) -> Step<Option<i64>> {
        let connection = self.session.connected().await?;
        let Some(node) = &mut self.node else {
            return Ok(None);
        };
        match connection
            .client
            .set_data(&node.path, &data.encode(), Some(node.version))
            .await
        {
            Ok(stat) => {
                node.written = Some(stat.mzxid);
                node.version = stat.version;
                node.data = data;
                return Ok(node.written);
            }
            Err(DriverError::NoNode) => {}
            // By ourselves, if an answer got lost; or by somebody else.
            Err(DriverError::BadVersion) => self.find_node().await?,
            Err(error) => self.wait_out(error).await?,
        }
        Ok(None)
    }

    /// Raises the root path's token offset, unless another client changes it at the same time.
    async fn raise_offset(&self, offset: i64, version: Option<i32>) -> Step<()> {
        if offset > MAX_OFFSET {
            return Err(Stop::Failed(exhausted()));
        }
        let connection = self.session.connected().await?;
        let (client, path) = (&connection.client, names::token_offset(self.config.root()));
        let data = offset_data(offset);
        let raised = match version {
            Some(_) => client.set_data(&path, &data, version).await.map(drop),
            None => {
                let options = create_offset_options(&self.config);
                client.create(&path, &data, &options).await.map(drop)
            }
        };
        match raised {
            Ok(()) => self.session.token_offset.learn(offset),
            Err(DriverError::BadVersion | DriverError::NodeExists | DriverError::NoNode) => {}
            Err(error) => self.wait_out(error).await?,
        }
        Ok(())
    }

    /// Writes the offset of our grant for those who ask for the status.
    async fn write_directory(&self, offset: i64) -> Step<()> {
        let connection = self.session.connected().await?;
        let data = offset_data(offset);
        match connection.client.set_data(&self.claim.directory, &data, None).await {
            Ok(_) | Err(DriverError::NoNode) => {}
            Err(error) => self.wait_out(error).await?,
        }
        Ok(())
    }
}

/// The number that the token of a grant must exceed. It is the next one if no smaller offset gives a larger token.
fn floor(request: &AcquireRequest) -> i64 {
    let above = request.token_floor().map_or(0, FencingToken::as_i64);
    let adopted = request.token_at_least().map_or(0, FencingToken::as_i64);
    above.max(adopted - 1)
}

pub(crate) fn other_data(root: &str) -> Error {
    let path = names::token_offset(root);
    let message = format!(
        "the data of the node {path} is no token offset: write the largest token of all locks under this root path into it"
    );
    Error::new(ErrorKind::Misconfigured, message)
}

pub(crate) fn exhausted() -> Error {
    let message = "ZooKeeper has no larger fencing token left under this root path: a token floor was set far too high";
    Error::new(ErrorKind::Misconfigured, message)
}
