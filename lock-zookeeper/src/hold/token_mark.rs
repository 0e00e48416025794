//! The token in the data of a holder's node.

use lock_core::FencingToken;
use zookeeper_client::{Client, Error as DriverError};

use crate::error::{self, Failure};
use crate::protocol::NodeData;

/// The write by which a hold that lasts for some time shows its token: to those who ask for the status, and to
/// [`revoke`](crate::revoke). Others cannot tell by which list of the queue a grant was made.
pub(crate) struct TokenMark {
    data: Vec<u8>,
    /// The node's version before it.
    version: i32,
}

impl TokenMark {
    pub(crate) fn new(data: &NodeData, token: FencingToken, version: i32) -> Self {
        let marked = NodeData {
            token: Some(token.as_u64()),
            ..data.clone()
        };
        Self {
            data: marked.encode(),
            version,
        }
    }

    /// Writes it. Does nothing if the holder's process has written the node since, as that write has the token, too. False if the outcome is
    /// unknown. May be dropped: it overwrites no later write of the holder's process.
    pub(crate) async fn write(&self, client: &Client, path: &str) -> bool {
        match client.set_data(path, &self.data, Some(self.version)).await {
            Ok(_) | Err(DriverError::BadVersion | DriverError::NoNode) => true,
            Err(error) => error::classify(&error) == Failure::Rejected,
        }
    }
}
