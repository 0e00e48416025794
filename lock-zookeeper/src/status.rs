//! Who has a lock, and how many wait, as the server has it now.

use futures_util::future::join_all;
use lock_core::backend::{HolderStatus, LockStatus, Mode};
use lock_core::{FencingToken, LockName, Result};
use zookeeper_client::{Error as DriverError, Stat};

use crate::connection::Session;
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
                return Ok(LockStatus::free());
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
        if holders.is_empty() {
            return Ok(LockStatus::free());
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
