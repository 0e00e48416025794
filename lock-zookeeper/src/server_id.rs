//! The id of a server or an ensemble, which no other has.

use lock_core::Result;
use zookeeper_client::{Error as DriverError, Stat};

use crate::connection::Session;
use crate::error;

/// The node that every server has.
const BUILT_IN: &str = "zookeeper";
/// A session id is the moment at which its server was started, in milliseconds, and a number of this many bits.
const NUMBER_BITS: u32 = 16;

/// The history of the top node and of the first node in it that somebody made, which is the same at all servers of an ensemble, with
/// [what tells servers apart](start) that were set up at the same moment. `None` if nobody made such a node, or if it may not be read.
pub(crate) async fn read(session: &Session) -> Result<Option<String>> {
    let connection = session.connected().await?;
    let client = &connection.client;
    // Two nodes of a quorum may be connected to two servers of an ensemble, one of which is late.
    let sync = session.sync(&connection);
    let (synced, list, config) = tokio::join!(sync, client.get_children("/"), client.get_config());
    synced.map_err(error::lock_error)?;
    let (children, top) = match list {
        Err(DriverError::NoAuth) => return Ok(None),
        list => list.map_err(error::lock_error)?,
    };
    let config = match config {
        Err(DriverError::NoAuth | DriverError::NoNode) => Vec::new(),
        config => config.map_err(error::lock_error)?.0,
    };
    let Some(first) = children.iter().filter(|child| *child != BUILT_IN).min() else {
        return Ok(None);
    };
    let made = client
        .check_stat(&format!("/{first}"))
        .await
        .map_err(error::lock_error)?;
    let session_id = client.session_id().0;
    Ok(made.map(|made| history(first, &top, &made) + &start(&config, session_id)))
}

fn history(first: &str, top: &Stat, made: &Stat) -> String {
    let (changed, changes) = (top.pzxid, top.cversion);
    format!(
        "zookeeper {changed:x}.{changes} {first} {:x}.{}",
        made.czxid, made.ctime
    )
}

/// A server that stands alone has an empty configuration, and is told by the moment of its start as well. Each server of an ensemble
/// may call the others by names of its own, so that the configuration itself tells nothing.
fn start(config: &[u8], session_id: i64) -> String {
    match config {
        [] => format!(" alone since {:x}", session_id >> NUMBER_BITS),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_server_are_told_from_those_of_another_one() {
        let of = |session_id| start(b"", session_id);
        assert_eq!(of(0x0100_1234_5678_0000), of(0x0100_1234_5678_0009));
        assert_ne!(of(0x0100_1234_5678_0000), of(0x0100_1234_5679_0000));
    }

    #[test]
    fn servers_of_an_ensemble_are_one() {
        let configs = ["server.1=0.0.0.0:2888:3888", "server.1=a:2888:3888"];
        assert_eq!(
            start(configs[0].as_bytes(), 1 << 56),
            start(configs[1].as_bytes(), 2 << 56)
        );
    }
}
