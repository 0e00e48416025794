//! The holders and the number of waiters of a lock, as the server has them now.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use lock_core::backend::{HolderStatus, LockStatus, Mode, WaiterStatus};
use lock_core::{FencingToken, LockName, Result};
use zookeeper_client::{Client, Error as DriverError, Stat};

use crate::connection::Session;
use crate::leftover::{KeptNode, server_time};
use crate::protocol::{self, NodeData};
use crate::{error, names};

/// The number of waiters' nodes that are read at a time.
const AT_ONCE: usize = 64;

/// Reads the status. All of it is as of one list, but for those who have left since.
pub(crate) async fn read(session: &Session, root: &str, name: &LockName) -> Result<LockStatus> {
    let path = names::directory(root, name);
    let (status, waiters) = read_holders(session, &path).await?;
    let connection = session.connected().await?;
    let reading = waiters
        .into_iter()
        .map(|(entry, mode)| read_waiter(&connection.client, format!("{path}/{entry}"), mode));
    let waiters: Vec<_> = stream::iter(reading).buffered(AT_ONCE).try_collect().await?;
    Ok(status.with_waiters(waiters.into_iter().flatten()))
}

/// The same, with the number of waiters alone.
pub(crate) async fn read_without_waiters(session: &Session, root: &str, name: &LockName) -> Result<LockStatus> {
    let (status, _) = read_holders(session, &names::directory(root, name)).await?;
    Ok(status)
}

/// The status of a directory with the number of waiters, and the entries of those.
pub(crate) async fn read_holders(session: &Session, path: &str) -> Result<(LockStatus, Vec<(String, Mode)>)> {
    loop {
        let connection = session.connected().await?;
        let client = &connection.client;
        let sync = session.sync(&connection);
        let list = client.get_children(path);
        let offset = client.get_data(path);
        let ((children, stat), (offset, _)) = match tokio::join!(sync, list, offset) {
            (Ok(()), Ok(children), Ok(offset)) => (children, offset),
            (Ok(()), Err(DriverError::NoNode), _) | (Ok(()), _, Err(DriverError::NoNode)) => {
                return Ok(free());
            }
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => return Err(error::lock_error(error)),
        };
        let directory = Directory {
            stat,
            offset: protocol::parse_offset(&offset),
        };
        let read = async |child: &str| -> Result<Option<(NodeData, Stat)>> {
            match client.get_data(&format!("{path}/{child}")).await {
                Ok((data, stat)) => Ok(Some((NodeData::parse(&data), stat))),
                Err(DriverError::NoNode) => Ok(None),
                Err(error) => Err(error::lock_error(error)),
            }
        };
        let (downgraded, first) = match protocol::may_be_downgraded(&children) {
            // Its data says who else has the lock.
            Some(first) => match read(first).await? {
                Some((data, node)) => (data.is_downgraded.then_some(first), Some((data, node))),
                None => continue,
            },
            None => (None, None),
        };
        let (holders, waiters) = protocol::holders(&children, downgraded);
        if !is_taken(client, path, &children).await? {
            return Ok(free());
        }
        let unread = holders.iter().skip(usize::from(first.is_some()));
        let others = join_all(unread.map(|(child, _)| read(child))).await;
        let found = first.map(|first| Ok(Some(first))).into_iter().chain(others);
        let mut shown = Vec::new();
        for (found, (entry, mode)) in found.zip(&holders) {
            shown.extend(found?.map(|(data, node)| directory.holder(entry, data, *mode, &node)));
        }
        // If all of them have left, somebody else may have the lock.
        if !shown.is_empty() {
            let status = LockStatus::held_by(shown).with_waiting(waiters.len());
            let waiters = waiters.into_iter().map(|(entry, mode)| (entry.to_owned(), mode));
            return Ok((status, waiters.collect()));
        }
    }
}

/// `None` if it has left.
async fn read_waiter(client: &Client, path: String, mode: Mode) -> Result<Option<WaiterStatus>> {
    let (data, node) = match client.get_data(&path).await {
        Ok(found) => found,
        Err(DriverError::NoNode) => return Ok(None),
        Err(error) => return Err(error::lock_error(error)),
    };
    let waiter = WaiterStatus::new().with_mode(mode).with_since(time(node.ctime));
    Ok(Some(match NodeData::parse(&data).label {
        Some(label) => waiter.with_label(label),
        None => waiter,
    }))
}

/// A time of ZooKeeper, in milliseconds since 1970.
fn time(milliseconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds.try_into().unwrap_or(0))
}

fn free() -> (LockStatus, Vec<(String, Mode)>) {
    (LockStatus::free().with_waiting(0), Vec::new())
}

/// True if anybody holds the name of this directory, or waits for it. A kept node that is over holds nothing.
pub(crate) async fn is_taken(client: &Client, path: &str, children: &[String]) -> Result<bool> {
    let (holders, waiters) = protocol::holders(children, None);
    let is_over = holders.len() == 1 && waiters.is_empty() && only_kept_is_over(client, path, children).await?;
    Ok(!holders.is_empty() && !is_over)
}

/// True if the only queue entry is a kept node that is over.
async fn only_kept_is_over(client: &Client, path: &str, children: &[String]) -> Result<bool> {
    let [kept] = protocol::left_kept(children)[..] else {
        return Ok(false);
    };
    let is_over = async {
        let Some(kept) = KeptNode::read(client, &format!("{path}/{kept}")).await? else {
            return Ok(true);
        };
        let now = server_time(client, path).await?;
        Ok(kept.is_over(now).unwrap_or(false))
    };
    match is_over.await {
        // Nobody knows the time; or the name is free by now, which the next list shows.
        Err(DriverError::NoAuth | DriverError::NoNode) => Ok(false),
        is_over => is_over.map_err(error::lock_error),
    }
}

struct Directory {
    stat: Stat,
    /// The token offset of the last grant.
    offset: Option<i64>,
}

impl Directory {
    fn holder(&self, entry: &str, data: NodeData, mode: Mode, node: &Stat) -> HolderStatus {
        let token = match data.token {
            Some(token) => FencingToken::new(token),
            // Its node keeps a minimum hold, and had no grant.
            None if data.keep.is_some() => None,
            None => self.token(mode, node),
        };
        let mut holder = HolderStatus::new().with_mode(mode).with_id(entry);
        if let Some(label) = data.label {
            holder = holder.with_label(label);
        }
        if let Some(since) = token.and_then(|token| self.since(token, node)) {
            holder = holder.with_since(since);
        }
        match token {
            Some(token) => holder.with_token(token),
            None => holder,
        }
    }

    fn token(&self, mode: Mode, node: &Stat) -> Option<FencingToken> {
        // The offset of one of several holders may be an older one.
        if mode != Mode::Exclusive && self.stat.mzxid > node.czxid {
            return None;
        }
        let base = protocol::known_base(mode, node.czxid, node.mzxid, self.stat.pzxid)?;
        protocol::token(base, self.offset?)
    }

    /// The time of the grant of the hold with this token, if the token's transaction is the creation of its node or the
    /// last write of it. A token that was raised has no such transaction.
    fn since(&self, token: FencingToken, node: &Stat) -> Option<SystemTime> {
        let at = |zxid| protocol::token(zxid, self.offset?);
        let token = Some(token);
        let created = (at(node.czxid) == token).then_some(node.ctime);
        let written = (at(node.mzxid) == token).then_some(node.mtime);
        created.or(written).map(time)
    }
}
