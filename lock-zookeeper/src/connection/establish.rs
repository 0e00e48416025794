//! How sessions begin, and how those end that nobody keeps.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, CreateMode, Error as Driver, SessionInfo};

use super::backoff;
use super::driver::Connection;
use super::heartbeat::Beat;
use super::runtime_check::Pulse;
use super::session::Session;
use crate::config::ZooKeeperConfig;
use crate::error;
use crate::probe::diagnose;
use crate::protocol::create_options;

/// How long the driver may take to connect before we look what answers.
const PROBE_AFTER: Duration = Duration::from_millis(300);

/// One attempt at a session on which the root path is there and ours. Tells `say_why` what keeps it, if anything.
pub(super) async fn connect(config: &ZooKeeperConfig, pulse: &Arc<Pulse>, say_why: impl Fn(Error)) -> Result<Session> {
    let beat = Beat::now();
    let connecting = Connection::dial(config, None);
    tokio::pin!(connecting);
    let mut cause = None;
    let connected = tokio::select! {
        connected = &mut connecting => connected,
        found = async { sleep(PROBE_AFTER).await; diagnose(config.servers()).await } => match found {
            Some(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
            found => {
                found.clone().into_iter().for_each(say_why);
                cause = found;
                connecting.await
            }
        },
    };
    let connection = match connected {
        Ok(connection) => connection,
        Err(Driver::AuthFailed) => return Err(error::from_driver(Driver::AuthFailed)),
        Err(error) => {
            let cause = match cause {
                None => diagnose(config.servers()).await,
                found => found,
            };
            let silent = || Error::new(ErrorKind::Unavailable, "ZooKeeper gave no session").with_source(error);
            return Err(cause.unwrap_or_else(silent));
        }
    };
    ensure_root(&connection.client, config).await?;
    Ok(Session::new(connection, beat, config.root().to_owned(), pulse.clone()))
}

/// Ends a session whose runtime has gone, so that its nodes go before it expires.
pub(super) async fn close(config: &ZooKeeperConfig, session: SessionInfo) {
    let mut rests = backoff::rests(backoff::LONGEST);
    loop {
        match Connection::dial(config, Some(&session)).await {
            Ok(connection) => {
                let mut states = connection.client.state_watcher();
                // The driver closes the session.
                drop(connection);
                let closed = async { while !states.changed().await.is_terminated() {} };
                if timeout(config.session_timeout(), closed).await.is_ok() {
                    return;
                }
            }
            Err(Driver::SessionExpired | Driver::AuthFailed) => return,
            Err(_) => {}
        }
        sleep(rests.next().unwrap_or(backoff::LONGEST)).await;
    }
}

/// Makes the root path, unless it is there, and checks that we may use it.
pub(crate) async fn ensure_root(client: &Client, config: &ZooKeeperConfig) -> Result<()> {
    loop {
        match client.get_data(config.root()).await {
            Ok(_) => return Ok(()),
            Err(Driver::NoNode) => {}
            Err(error) => return Err(error::from_driver(error)),
        }
        let options = create_options(config, CreateMode::Persistent);
        match client.mkdir(config.root(), &options).await {
            // Or it was removed again at the same time.
            Ok(()) | Err(Driver::NoNode) => {}
            Err(error) => return Err(error::from_driver(error)),
        }
    }
}
