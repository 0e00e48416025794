//! The beginning of a session, and the close of an orphaned one.

use std::sync::Arc;

use lock_core::{Error, ErrorKind, Result};
use lock_kit::runtime::RuntimeCheck;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, CreateMode, Error as DriverError, SessionInfo};

use super::backoff;
use super::dial::dial;
use super::driver::{Connection, DialError};
use super::heartbeat::Heartbeat;
use super::session::Session;
use crate::config::ZooKeeperConfig;
use crate::error;
use crate::probe::diagnose;
use crate::protocol::create_options;
use crate::state::StateReporter;

/// Makes one attempt at a session whose root path exists and is accessible. Passes the reason for a delay to `report`.
pub(super) async fn connect(
    config: &ZooKeeperConfig,
    runtime_check: &Arc<RuntimeCheck>,
    reporter: &StateReporter,
    report: impl Fn(Error),
) -> Result<Session> {
    #[cfg(feature = "tls")]
    if let Some(tls) = config.tls() {
        tls.check().await?;
    }
    let beat = Heartbeat::now();
    let mut cause = None;
    let connecting = dial(config, None, |diagnosis| {
        diagnosis.why.clone().into_iter().for_each(report);
        cause.clone_from(&diagnosis.why);
    });
    let connected = connecting.await;
    let connection = match connected {
        Ok(connection) => connection,
        Err(DialError::Setup(error)) => return Err(error),
        Err(DialError::Driver(DriverError::AuthFailed)) => return Err(error::lock_error(DriverError::AuthFailed)),
        Err(DialError::Driver(error)) => {
            let cause = match cause {
                None => diagnose(config, None).await.why,
                found => found,
            };
            let silent = || Error::new(ErrorKind::Unavailable, "ZooKeeper gave no session").with_source(error);
            return Err(cause.unwrap_or_else(silent));
        }
    };
    ensure_root(&connection.client, config).await?;
    Ok(Session::new(
        connection,
        beat,
        config,
        runtime_check.clone(),
        reporter.clone(),
    ))
}

/// Closes a session whose runtime has gone, so that its nodes go before it expires.
pub(super) async fn close(config: &ZooKeeperConfig, session: SessionInfo) {
    let mut delays = backoff::delays(backoff::MAX_DELAY);
    loop {
        match dial(config, Some(&session), |_| {}).await {
            Ok(connection) => {
                let closed = closed(Arc::new(connection));
                if timeout(config.session_timeout(), closed).await.is_ok() {
                    return;
                }
            }
            Err(DialError::Driver(DriverError::SessionExpired | DriverError::AuthFailed)) => return,
            Err(_) => {}
        }
        sleep(delays.next().unwrap_or(backoff::MAX_DELAY)).await;
    }
}

/// Gives up the last use of a connection, so that its driver closes the session. Waits for the server's answer.
pub(super) async fn closed(connection: Arc<Connection>) {
    let mut states = connection.client.state_watcher();
    drop(connection);
    while !states.changed().await.is_terminated() {}
}

/// Creates the root path unless it exists, and checks that we may read it.
pub(crate) async fn ensure_root(client: &Client, config: &ZooKeeperConfig) -> Result<()> {
    loop {
        match client.get_data(config.root()).await {
            Ok(_) => return Ok(()),
            Err(DriverError::NoNode) => {}
            Err(DriverError::NoAuth) => return Err(error::no_permission("READ", config.root())),
            Err(error) => return Err(error::lock_error(error)),
        }
        let options = create_options(config, CreateMode::Persistent);
        match client.mkdir(config.root(), &options).await {
            // NoNode: it was removed at the same time.
            Ok(()) | Err(DriverError::NoNode) => {}
            Err(DriverError::NoAuth) => return Err(error::no_root(config.root())),
            Err(error) => return Err(error::lock_error(error)),
        }
    }
}
