//! Who has a lock, and how many wait, as the server has it now.

use futures_util::future::join_all;
use lock_core::backend::{HolderStatus, LockStatus, Mode};
use lock_core::{FencingToken, LockName, Result};
use zookeeper_client::{Client, Error as DriverError, Stat};

use crate::connection::Session;
use crate::leftover::{KeptNode, server_time};
use crate::protocol::{self, NodeData};
use crate::{error, names};

/// Reads the status. All of it is as of one list, but for holders that have left since.
pub(crate) async fn read(session: &Session, root: &str, name: &LockName) -> Result<LockStatus> {
    let path = names::directory(root, name);
    loop {
        let connection = session.connected().await?;
        let client = &connection.client;
        let sync = session.sync(&connection);
        let list = client.get_children(&path);
        let offset = client.get_data(&path);
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
        let (holders, waiting) = protocol::holders(&children, downgraded);
        if holders.is_empty() || waiting == 0 && only_kept_is_over(client, &path, &children).await? {
            return Ok(free());
        }
        let unread = holders.iter().skip(usize::from(first.is_some()));
        let others = join_all(unread.map(|(child, _)| read(child))).await;
        let found = first.map(|first| Ok(Some(first))).into_iter().chain(others);
        let found = found.zip(holders.iter().map(|(_, mode)| *mode));
        let mut shown = Vec::new();
        for (found, mode) in found {
            shown.extend(found?.map(|(data, node)| directory.holder(data, mode, &node)));
        }
        // If all of them have left, somebody else may have the lock.
        if !shown.is_empty() {
            return Ok(LockStatus::held_by(shown).with_waiting(waiting));
        }
    }
}

fn free() -> LockStatus {
    LockStatus::free().with_waiting(0)
}

/// Whether the only queue entry is a kept node that is over.
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
    fn holder(&self, data: NodeData, mode: Mode, node: &Stat) -> HolderStatus {
        let mut holder = HolderStatus::new().with_mode(mode);
        let token = match data.token {
            Some(token) => FencingToken::new(token),
            // Its node keeps a minimum hold, and had no grant.
            None if data.keep.is_some() => None,
            None => self.token(mode, node),
        };
        if let Some(label) = data.label {
            holder = holder.with_label(label);
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
}
