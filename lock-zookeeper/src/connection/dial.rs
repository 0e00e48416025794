//! An attempt at a connection, which leaves out the servers that do not serve as soon as that is known.
//!
//! The driver tries the servers in a random order. For a silent one it waits as long as for an answer over a live connection.

use std::time::Duration;

use lock_core::ErrorKind;
use tokio::time::sleep;
use zookeeper_client::SessionInfo;

use super::driver::{Connection, DialError};
use crate::config::ZooKeeperConfig;
use crate::probe::{Diagnosis, diagnose};

/// The time without a connection before we probe the servers.
pub(super) const PROBE_AFTER: Duration = Duration::from_millis(300);

/// Tries each server once: for a new session, or to go on with an earlier one. If that takes longer, the servers are probed, and what was
/// found goes to `report`. From then on only the servers that serve are tried, if there are any.
///
/// A server that was given up may still read the request later. Then a new session carries nothing, and expires. An earlier session moves
/// to that server, so its newer connection ends and it connects once more.
pub(super) async fn dial(
    config: &ZooKeeperConfig,
    session: Option<&SessionInfo>,
    report: impl FnOnce(&Diagnosis),
) -> Result<Connection, DialError> {
    let mut dialing = Box::pin(Connection::dial(config, config.servers(), session));
    let diagnosis = tokio::select! {
        biased;
        dialed = &mut dialing => return dialed,
        diagnosis = async { sleep(PROBE_AFTER).await; diagnose(config).await } => diagnosis,
    };
    report(&diagnosis);
    match diagnosis.why {
        // A session that there is may outlast what is wrong now.
        Some(why) if session.is_none() && why.kind() != ErrorKind::Unavailable => Err(DialError::Setup(why)),
        Some(_) if !diagnosis.serving.is_empty() => {
            drop(dialing);
            Connection::dial(config, &diagnosis.serving, session).await
        }
        _ => dialing.await,
    }
}
