//! The token of a grant: a transaction id plus the root path's token offset.
//!
//! The offset is 0 until a request has a token floor that transaction ids have not reached. It is only ever raised, by
//! compare-and-set, and counts for all locks and clients of the root path. It has a node of its own under the root, since
//! the server deletes the directories of unused locks.
//!
//! # Why tokens grow
//! A grant needs a listing that shows our node as the first, and knows both parts of its token before it requests that
//! listing. Let one hold of a lock be granted before another:
//! - The later transaction id is larger. It is that of the node's creation, unless the directory was written later: then
//!   an earlier grant may be based on that write, and this one writes the directory again.
//! - The later offset is not smaller. The earlier holder's node was there after its offset was written. The later holder
//!   reads the offset after a listing without that node. A server answers the requests of one connection in order, and
//!   applies all changes in the order of the leader. So the read sees every change from before the node's end.
//!
//! `torture/src/models/token_offset.rs` tries every order of these steps, with nodes and directories that are deleted meanwhile.
//!
//! The directory's data is the offset of the last grant. From this, `status` computes the holder's token even if the offset
//! was raised since.

use std::future::Future;

use futures_util::future::OptionFuture;
use lock_core::backend::SentAt;
use lock_core::{Error, ErrorKind, FencingToken};
use zookeeper_client::{Client, CreateMode, Error as DriverError};

use super::task::{ClaimTask, Step, Stop};
use crate::names;
use crate::protocol::{self, create_options, offset_data, parse_offset};

/// The largest token offset. Beyond the transaction ids that it leaves room for, all locks of the root path would fail.
const MAX_OFFSET: i64 = i64::MAX - (1 << 56);

/// A list of the lock's directory.
pub(super) struct Listing {
    /// The time before the list was requested.
    pub(super) sent: SentAt,
    pub(super) children: Vec<String>,
    /// The directory's last write.
    pub(super) mzxid: i64,
    /// The token offset that was known before the list was requested.
    pub(super) known_offset: i64,
    /// The token offsets, read after the list.
    pub(super) offsets: Offsets,
}

/// The token offsets at the server. `None` stands for other data.
pub(super) struct Offsets {
    /// The root path's.
    root: Option<i64>,
    /// The version of its node, if there is one.
    version: Option<i32>,
    /// That of the last grant.
    directory: Option<i64>,
}

impl ClaimTask {
    /// Requests the offsets. `known` is the root path's as it was known before.
    pub(super) fn read_offsets(
        &self,
        client: &Client,
        known: i64,
    ) -> impl Future<Output = Result<Offsets, DriverError>> + Send + use<> {
        let root = client.get_data(&names::token_offset(self.config.root()));
        // As long as the offset is 0, no grant had another one.
        let directory = OptionFuture::from((known > 0).then(|| client.get_data(&self.claim.directory)));
        async move {
            let (root, directory) = tokio::join!(root, directory);
            let (root, version) = match root {
                Ok((data, stat)) => (parse_offset(&data), Some(stat.version)),
                Err(DriverError::NoNode) => (Some(0), None),
                Err(error) => return Err(error),
            };
            let directory = match directory {
                None => Some(0),
                Some(Ok((data, _))) => parse_offset(&data),
                Some(Err(DriverError::NoNode)) => None,
                Some(Err(error)) => return Err(error),
            };
            Ok(Offsets {
                root,
                version,
                directory,
            })
        }
    }

    /// The token of a grant by this listing. `None` when the directory must be listed again.
    pub(super) async fn token(&mut self, listing: &Listing) -> Step<Option<FencingToken>> {
        let Some(node) = &self.node else {
            return Ok(None);
        };
        let offset = listing.offsets.root.ok_or_else(|| Stop::Failed(self.other_data()))?;
        let floor = self.claim.request.token_floor().map_or(0, FencingToken::as_i64);
        // If the stored offset is smaller than the known one, somebody has deleted it.
        let wanted = protocol::offset_above(floor, node.base.max(listing.mzxid)).max(listing.known_offset);
        if wanted > offset {
            self.raise_offset(wanted, listing.offsets.version).await?;
            return Ok(None);
        }
        if offset > listing.known_offset {
            self.session.learn_token_offset(offset);
            return Ok(None);
        }
        if node.base < listing.mzxid || listing.offsets.directory != Some(offset) {
            self.write_directory(offset).await?;
            return Ok(None);
        }
        let token = protocol::token(node.base, offset);
        token.map(Some).ok_or_else(|| Stop::Failed(exhausted()))
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
                let options = create_options(&self.config, CreateMode::Persistent);
                client.create(&path, &data, &options).await.map(drop)
            }
        };
        match raised {
            Ok(()) => self.session.learn_token_offset(offset),
            Err(DriverError::BadVersion | DriverError::NodeExists | DriverError::NoNode) => {}
            Err(error) => self.wait_out(error).await?,
        }
        Ok(())
    }

    /// Takes a new transaction id for our node, by a write of the lock's directory.
    async fn write_directory(&mut self, offset: i64) -> Step<()> {
        let connection = self.session.connected().await?;
        let data = offset_data(offset);
        match connection.client.set_data(&self.claim.directory, &data, None).await {
            Ok(stat) => {
                if let Some(node) = &mut self.node {
                    node.base = stat.mzxid;
                }
            }
            Err(DriverError::NoNode) => {}
            Err(error) => self.wait_out(error).await?,
        }
        Ok(())
    }

    fn other_data(&self) -> Error {
        let path = names::token_offset(self.config.root());
        let message = format!(
            "the data of the node {path} is no token offset: write the largest token of all locks under this root path into it"
        );
        Error::new(ErrorKind::Misconfigured, message)
    }
}

fn exhausted() -> Error {
    let message = "ZooKeeper has no larger fencing token left under this root path: a token floor was set far too high";
    Error::new(ErrorKind::Misconfigured, message)
}
