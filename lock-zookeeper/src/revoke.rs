//! Forced release at once: the deletion of the holder's node, once the server knows that the hold has the token.
//!
//! The name of a node has the id of one request, and the server's number. So it is no other hold's node, whatever happens between the
//! reading and the deletion. A holder whose token the server does not know yet writes it soon: see [`TokenMark`](crate::hold::TokenMark).
//! Until then, nobody but the holder can tell whether the token is its own or that of a holder before it.

use std::time::Duration;

use lock_core::backend::{HolderStatus, Revoked};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use tokio::time::timeout;
use zookeeper_client::{Client, Error as DriverError, MultiWriteError};

use crate::connection::Session;
use crate::protocol::{self, NodeData, TOKENS_PER_ZXID};
use crate::{error, names, status};

/// Ends the hold with this token at once. Waits at most so long for holders whose tokens the server does not know yet.
pub(crate) async fn now(
    session: &Session,
    root: &str,
    name: &LockName,
    token: FencingToken,
    limit: Duration,
) -> Result<Revoked> {
    let directory = names::directory(root, name);
    let revoked = timeout(limit, revoke(session, &directory, token)).await;
    revoked.unwrap_or_else(|_| Err(unknown_token()))
}

async fn revoke(session: &Session, directory: &str, token: FencingToken) -> Result<Revoked> {
    loop {
        let holders = status::read_holders(session, directory).await?.0.holders;
        let client = &session.connected().await?.client;
        match find(&holders, token) {
            Found::Entry(entry) => {
                // If it is gone, the hold was released or has ended.
                let is_done = delete(client, directory, entry).await.map_err(error::lock_error)?;
                return Ok(if is_done { Revoked::done(None) } else { Revoked::NotHeld });
            }
            Found::Unknown(entry) => shows_token(session, &format!("{directory}/{entry}")).await?,
            Found::Nobody => return Ok(Revoked::NotHeld),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Found<'a> {
    /// The hold with the token has this entry.
    Entry(&'a str),
    /// The holder with this entry may have the token.
    Unknown(&'a str),
    Nobody,
}

/// The holder that has the token. A hold also has the numbers behind its token, for passes within its process.
fn find(holders: &[HolderStatus], token: FencingToken) -> Found<'_> {
    let has_token = |first: FencingToken| {
        let behind = token.as_i64().checked_sub(first.as_i64());
        behind.is_some_and(|behind| (0..TOKENS_PER_ZXID).contains(&behind))
    };
    // The rest of a minimum hold does not count as a hold.
    let entries = holders
        .iter()
        .filter_map(|holder| Some((holder.id.as_deref()?, holder.token)));
    let mut unknown = Found::Nobody;
    for (entry, shown) in entries.filter(|(entry, _)| !protocol::is_kept(entry)) {
        match shown {
            Some(first) if has_token(first) => return Found::Entry(entry),
            Some(_) => {}
            None => unknown = Found::Unknown(entry),
        }
    }
    unknown
}

/// Deletes the entry, and the node that keeps its minimum hold. False if the entry is gone: then nothing was changed.
async fn delete(client: &Client, directory: &str, entry: &str) -> Result<bool, DriverError> {
    let path = format!("{directory}/{entry}");
    if let Some(kept) = protocol::kept_name(entry) {
        let mut writer = client.new_multi_writer();
        writer.add_delete(&path, None)?;
        writer.add_delete(&format!("{directory}/{kept}"), None)?;
        match writer.commit().await {
            Ok(_) => return Ok(true),
            Err(MultiWriteError::OperationFailed {
                index: 0,
                source: DriverError::NoNode,
            }) => return Ok(false),
            // It has no minimum.
            Err(MultiWriteError::OperationFailed {
                index: 1,
                source: DriverError::NoNode,
            }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match client.delete(&path, None).await {
        Ok(()) => Ok(true),
        Err(DriverError::NoNode) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits until the holder with this node shows its token, or is gone.
async fn shows_token(session: &Session, path: &str) -> Result<()> {
    let connection = session.connected().await?;
    match connection.client.get_and_watch_data(path).await {
        // The watch ends without an event if the connection does: the next one shows what has become of it.
        Ok((data, _, watcher)) if NodeData::parse(&data).token.is_none() => drop(connection.watched(watcher).await),
        Ok(_) | Err(DriverError::NoNode) => {}
        Err(error) => return Err(error::lock_error(error)),
    }
    Ok(())
}

fn unknown_token() -> Error {
    let message = "a holder has not shown its token yet, so that nobody knows whether the token is its own: repeat it after a twelfth of \
                   the session timeout. If the holder is another library or an older version, end its process, or delete its node";
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "_c_01234567-89ab-cdef-0123-456789abcdef";

    fn holder(entry: &str, token: Option<u64>) -> HolderStatus {
        let holder = HolderStatus::new().with_id(format!("{UUID}{entry}"));
        match token {
            Some(token) => holder.with_token(FencingToken::new(token).expect("a token")),
            None => holder,
        }
    }

    #[test]
    fn a_hold_has_sixteen_tokens() {
        let holders = [
            holder("-read-lock-0000000001", Some(160)),
            holder("-read-lock-0000000002", Some(192)),
        ];
        let found = |token| match find(&holders, FencingToken::new(token).expect("a token")) {
            Found::Entry(entry) => entry.chars().last(),
            Found::Unknown(_) => panic!("all are known"),
            Found::Nobody => None,
        };
        assert_eq!(
            [159, 160, 175, 176, 191, 192, 207, 208].map(found),
            [None, Some('1'), Some('1'), None, None, Some('2'), Some('2'), None]
        );
    }

    /// It may be a holder with that token, or with another one.
    #[test]
    fn a_holder_whose_token_is_unknown_may_have_it() {
        let token = FencingToken::new(160).expect("a token");
        let unknown = holder("-lock-0000000001", None);
        assert!(matches!(find(std::slice::from_ref(&unknown), token), Found::Unknown(_)));
        let known = holder("-read-lock-0000000002", Some(160));
        assert!(matches!(find(&[known, unknown], token), Found::Entry(_)));
        let kept = holder("-keep-lock-0000000001", None);
        assert_eq!(find(&[kept], token), Found::Nobody);
        assert_eq!(find(&[], token), Found::Nobody);
    }
}
