//! The kept node of a hold: a persistent node that has the name taken when the hold's own node is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zookeeper_client::{Client, CreateMode, Error as DriverError, MultiWriteError};

use crate::config::ZooKeeperConfig;
use crate::connection::Session;
use crate::error::{self, Failure, RETRY_DELAY};
use crate::protocol::{self, NodeData, create_options};

/// The kept node that a hold has or may get.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    path: String,
    label: Option<Arc<str>>,
    config: Arc<ZooKeeperConfig>,
    /// The minimum with which it was made before the grant.
    minimum: Option<Duration>,
    is_there: bool,
}

/// A kept node, as a task has read it.
pub(crate) struct SeenKept {
    pub(crate) name: String,
    /// The transaction id of its last write.
    pub(crate) mzxid: i64,
    pub(crate) at: Instant,
}

/// The effect on the hold's own node of the transaction that writes the kept one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnNode {
    /// It must be there.
    Check,
    Delete,
}

impl Keep {
    pub(crate) fn new(path: String, label: Option<Arc<str>>, config: &Arc<ZooKeeperConfig>) -> Self {
        Self {
            path,
            label,
            config: config.clone(),
            minimum: None,
            is_there: false,
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// True if the node was made. Another minimum may be written over it.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there
    }

    /// The same for a grant with this minimum.
    pub(crate) fn with_minimum(self, minimum: Duration) -> Self {
        let minimum = Some(minimum);
        Self { minimum, ..self }
    }

    /// Has the name kept for so long from the server's write, in one transaction with what becomes of the hold's own node. The first
    /// request is sent by the first poll. Fails with `NoNode` if the own node is gone: then nothing was changed.
    pub(crate) async fn write(
        &mut self,
        client: &Client,
        own: (&str, OwnNode),
        time: impl Fn() -> Duration,
    ) -> Result<(), DriverError> {
        let options = create_options(&self.config, CreateMode::Persistent);
        loop {
            let data = NodeData {
                keep: Some(milliseconds(time())),
                ..NodeData::labelled(self.label.clone())
            };
            let mut writer = client.new_multi_writer();
            match own {
                (path, OwnNode::Check) => writer.add_check_version(path, ANY_VERSION)?,
                (path, OwnNode::Delete) => writer.add_delete(path, None)?,
            }
            match self.is_there {
                true => writer.add_set_data(&self.path, &data.encode(), None)?,
                false => writer.add_create(&self.path, &data.encode(), &options)?,
            }
            match writer.commit().await {
                Ok(_) => {
                    self.is_there = true;
                    return Ok(());
                }
                // An earlier write was answered by nobody; or somebody else deleted it.
                Err(MultiWriteError::OperationFailed { index: 1, source }) => match (source, self.is_there) {
                    (DriverError::NodeExists, false) => self.is_there = true,
                    (DriverError::NoNode, true) => self.is_there = false,
                    (error, _) => return Err(error),
                },
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Deletes it when the minimum of its grant is over: the hold ended before without a release.
    pub(crate) fn delete_after_minimum(&self, session: &Arc<Session>, granted: Instant) {
        if let Some(minimum) = self.minimum {
            self.delete_after(session, minimum.saturating_sub(granted.elapsed()));
        }
    }

    /// Deletes it when so much time has passed for everybody. It was written before this call, and nobody else may be there who would.
    pub(crate) fn delete_after(&self, session: &Arc<Session>, time: Duration) {
        let (weak, path) = (Arc::downgrade(session), self.path.clone());
        session.runtime.spawn(async move {
            sleep(protocol::wait_for(time)).await;
            // If the session has ended or the server refuses, the next acquire of the name deletes it.
            while let Some(session) = weak.upgrade()
                && let Ok(connection) = session.connected().await
                && let Err(error) = connection.client.delete(&path, None).await
                && matches!(error::classify(&error), Failure::Ambiguous)
            {
                sleep(RETRY_DELAY).await;
            }
        });
    }
}

/// Of a node that only has to be there.
pub(super) const ANY_VERSION: i32 = -1;

/// Rounded up.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_up() {
        let milliseconds = |nanoseconds| milliseconds(Duration::from_nanos(nanoseconds));
        assert_eq!((milliseconds(0), milliseconds(1), milliseconds(2_000_000)), (0, 1, 2));
    }
}
