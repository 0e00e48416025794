//! Following a name: the status, and a watch that fires when somebody else may have the lock.
//!
//! The watch is that of the first node of the queue: its end is the end of a hold, and its writes are tokens that
//! become known. So those who join the queue behind it wake nobody. An empty queue is watched for its first node.

use lock_core::backend::{Change, LockStatus};
use lock_core::{LockName, Result};
use zookeeper_client::{Client, Error as DriverError, OneshotWatcher};

use crate::connection::Session;
use crate::{error, names, protocol, status};

/// Reads the status, and returns what completes when it may have changed.
pub(crate) async fn follow(session: &Session, root: &str, name: &LockName) -> Result<(LockStatus, Change)> {
    let path = names::directory(root, name);
    loop {
        let connection = session.connected().await?;
        // First, so that no change falls between the two.
        let watching = watch(&connection.client, &path).await.map_err(error::lock_error)?;
        if let Some(watcher) = watching {
            let watched = connection.watching(watcher);
            let status = status::read_without_waiters(session, root, name).await?;
            return Ok((status, Change::new(async move { drop(watched.await) })));
        }
    }
}

/// Watches the first node, or for one to come. `None` if that came or went meanwhile.
async fn watch(client: &Client, directory: &str) -> Result<Option<OneshotWatcher>, DriverError> {
    let children = match client.list_children(directory).await {
        Ok(children) => children,
        Err(DriverError::NoNode) => {
            let (found, watcher) = client.check_and_watch_stat(directory).await?;
            return Ok(found.is_none().then_some(watcher));
        }
        Err(error) => return Err(error),
    };
    let (holders, _) = protocol::holders(&children, None);
    let watching = match holders.first() {
        Some((first, _)) => {
            let path = format!("{directory}/{first}");
            client
                .get_and_watch_data(&path)
                .await
                .map(|(.., watcher)| Some(watcher))
        }
        None => {
            let listing = client.list_and_watch_children(directory).await;
            listing.map(|(now, watcher)| (now == children).then_some(watcher))
        }
    };
    match watching {
        Err(DriverError::NoNode) => Ok(None),
        watching => watching,
    }
}
