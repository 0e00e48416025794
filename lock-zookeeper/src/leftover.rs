//! Kept nodes of processes that have ended: whether they are over, and their deletion where nobody asks for the name again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};
use zookeeper_client::{Client, Error as DriverError, Stat};

use crate::connection::Session;
use crate::protocol::{self, NodeData, Passed, ServerTime};

/// The number of directories that are listed at a time, with a pause after that.
const AT_A_TIME: usize = 64;
const PAUSE: Duration = Duration::from_secs(1);
/// The most directories that one sweep lists.
const MOST: usize = 4096;
/// The time from the beginning of one sweep to the next.
const AGAIN: Duration = Duration::from_secs(120);

/// A kept node, as it was read.
pub(crate) struct KeptNode {
    data: Vec<u8>,
    stat: Stat,
}

impl KeptNode {
    /// `None` if it is gone.
    pub(crate) async fn read(client: &Client, path: &str) -> Result<Option<Self>, DriverError> {
        match client.get_data(path).await {
            Ok((data, stat)) => Ok(Some(Self { data, stat })),
            Err(DriverError::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True if its time has passed at `now`. `None` if nobody knows, as after an election.
    pub(crate) fn is_over(&self, now: ServerTime) -> Option<bool> {
        let written = ServerTime {
            zxid: self.stat.mzxid,
            at: self.stat.mtime,
        };
        // Others know when it ends.
        let Some(time) = NodeData::parse(&self.data).keep.map(Duration::from_millis) else {
            return Some(false);
        };
        match protocol::passed(written, now) {
            Passed::AtLeast(passed) => Some(passed >= time),
            Passed::Nothing => Some(false),
            Passed::Unknown => None,
        }
    }
}

/// The time of ZooKeeper's leader: that of a write of this directory, which leaves its data as it is.
pub(crate) async fn server_time(client: &Client, directory: &str) -> Result<ServerTime, DriverError> {
    loop {
        let (data, stat) = client.get_data(directory).await?;
        match client.set_data(directory, &data, Some(stat.version)).await {
            Ok(stat) => {
                return Ok(ServerTime {
                    zxid: stat.mzxid,
                    at: stat.mtime,
                });
            }
            Err(DriverError::BadVersion) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Begins a sweep now and then.
#[derive(Debug, Default)]
pub(crate) struct Sweeper(Mutex<Option<Instant>>);

impl Sweeper {
    /// Deletes kept nodes under this root path that are over, in the background, unless the last sweep began a short time ago.
    pub(crate) fn sweep(&self, session: &Arc<Session>, root: &str) {
        let now = Instant::now();
        let mut next = self.0.lock();
        if next.is_none_or(|next| next <= now) {
            *next = Some(now + AGAIN);
            // An error leaves the rest to the next sweep.
            session.runtime.spawn(sweep(Arc::downgrade(session), root.to_owned()));
        }
    }
}

async fn sweep(session: Weak<Session>, root: String) -> Result<(), DriverError> {
    let connection = || session.upgrade().and_then(|session| session.connection());
    let Some(first) = connection() else { return Ok(()) };
    let mut names = first.client.list_children(&root).await?;
    drop(first);
    if names.is_empty() {
        return Ok(());
    }
    // Many processes list different parts.
    let start = RandomState::new().hash_one(()) as usize % names.len();
    names.rotate_left(start);
    names.truncate(MOST);
    for names in names.chunks(AT_A_TIME) {
        let Some(connection) = connection() else { return Ok(()) };
        let now = OnceCell::new();
        let sweeping = names
            .iter()
            .map(|name| sweep_directory(&connection.client, format!("{root}/{name}"), &now));
        join_all(sweeping).await;
        drop(connection);
        sleep(PAUSE).await;
    }
    Ok(())
}

/// `now` is the leader's time, once a directory had to be written to know it.
async fn sweep_directory(client: &Client, directory: String, now: &OnceCell<ServerTime>) -> Result<(), DriverError> {
    let children = client.list_children(&directory).await?;
    for name in protocol::left_kept(&children) {
        let path = format!("{directory}/{name}");
        let Some(kept) = KeptNode::read(client, &path).await? else {
            continue;
        };
        let now = *now.get_or_try_init(|| server_time(client, &directory)).await?;
        // By its version: it may have been written meanwhile.
        let version = Some(kept.stat.version);
        match kept.is_over(now) {
            Some(true) => client.delete(&path, version).await?,
            Some(false) => {}
            // Its time begins anew.
            None => drop(client.set_data(&path, &kept.data, version).await?),
        }
    }
    Ok(())
}
