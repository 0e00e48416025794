//! One connection to a server: a driver of its own, which ends with it.
//!
//! The driver would reconnect by itself, at ever longer intervals, and send the requests that were queued meanwhile. But
//! waiters must be served soon after an outage, and a request must not take effect after its caller has given up. So a
//! driver serves one connection only, and the session goes on with another one.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use asyncs::task::{Spawn, Task, enter};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;
#[cfg(feature = "sasl")]
use zookeeper_client::SaslOptions;
use zookeeper_client::{Client, Connector, Error, OneshotWatcher, SessionInfo, SessionState, WatchedEvent};

use super::heartbeat;
use crate::config::{Proof, ZooKeeperConfig};
use crate::error::catch_panic;

/// A connection. The driver closes the session when the last client is dropped, unless the connection was aborted.
pub(crate) struct Connection {
    pub(crate) client: Client,
    driver: Driver,
}

/// The task that serves a client.
struct Driver {
    task: AbortHandle,
    ended: Arc<watch::Sender<bool>>,
}

/// Why there is no connection.
pub(crate) enum DialError {
    Driver(Error),
    /// The credentials or the files for TLS cannot be read, or no server can serve us.
    Setup(lock_core::Error),
}

impl From<Error> for DialError {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl Connection {
    /// Connects, trying each of these servers once: for a new session, or to go on with an earlier one.
    pub(super) async fn dial(
        config: &ZooKeeperConfig,
        servers: &[String],
        session: Option<&SessionInfo>,
    ) -> Result<Self, DialError> {
        let mut connector = connector(config).await?;
        if let Some(session) = session {
            connector = connector.with_session(session.clone());
        }
        let servers = servers.join(",");
        let spawner = Spawner::default();
        let mut connecting = Box::pin(connect(connector, config, &servers));
        let client = poll_fn(|context| {
            let _scope = enter(&spawner);
            connecting.as_mut().poll(context)
        })
        .await?;
        let driver = spawner
            .spawned()
            .expect("a client is served by a task, spawned before it is there");
        Ok(Self { client, driver })
    }

    /// Ends it without closing the session. What was not sent yet never will be.
    pub(crate) fn abort(&self) {
        self.driver.task.abort();
    }

    /// Waits until it has ended. Returns what the driver knows of the session.
    pub(crate) async fn ended(&self) -> SessionState {
        let mut states = self.client.state_watcher();
        match states.state() {
            SessionState::SyncConnected => tokio::select! {
                biased;
                state = states.changed() => state,
                () = self.driver_ended() => SessionState::Disconnected,
            },
            state => state,
        }
    }

    /// Waits for the event of a watch that was set over this connection; `None` if the connection ends first.
    pub(crate) async fn watched(&self, watch: OneshotWatcher) -> Option<WatchedEvent> {
        self.watching(watch).await
    }

    /// The same without keeping the connection.
    pub(crate) fn watching(&self, watch: OneshotWatcher) -> impl Future<Output = Option<WatchedEvent>> + Send + use<> {
        let ended = self.driver_ended();
        async move {
            tokio::select! {
                // First, and free of tokio's budget: a watch panics when its driver has gone. It may go in between.
                biased;
                () = unconstrained(ended) => None,
                event = catch_panic(watch.changed()) => event.ok(),
            }
        }
    }

    fn driver_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.driver.ended.subscribe();
        async move {
            // Without a sender, it has ended as well.
            let _ = ended.wait_for(|ended| *ended).await;
        }
    }
}

async fn connect(connector: Connector, config: &ZooKeeperConfig, servers: &str) -> Result<Client, Error> {
    #[cfg(feature = "tls")]
    if config.tls().is_some() {
        return connector.secure_connect(servers).await;
    }
    #[cfg(not(feature = "tls"))]
    let _ = config;
    connector.connect(servers).await
}

async fn connector(config: &ZooKeeperConfig) -> Result<Connector, DialError> {
    let timeout = config.session_timeout();
    let mut connector = Client::connector()
        .with_session_timeout(timeout)
        .with_connection_timeout(heartbeat::read_timeout(timeout))
        .with_fail_eagerly();
    if let Some(proof) = config.proof().await.map_err(DialError::Setup)? {
        connector = with_proof(connector, config, proof);
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = config.tls() {
        return Ok(connector.with_tls(super::tls::options(tls).await?));
    }
    Ok(connector)
}

fn with_proof(connector: Connector, config: &ZooKeeperConfig, proof: Proof) -> Connector {
    #[cfg(feature = "sasl")]
    if config.has_sasl() {
        return connector.with_sasl(SaslOptions::digest_md5(proof.user, proof.password));
    }
    #[cfg(not(feature = "sasl"))]
    let _ = config;
    let digest = |password: &str| format!("{}:{password}", proof.user).into_bytes();
    let connector = connector.with_auth("digest", &digest(&proof.password));
    match &proof.previous_password {
        Some(previous) => connector.with_auth("digest", &digest(previous)),
        None => connector,
    }
}

/// Runs the driver's task on tokio, where it can be ended.
#[derive(Default)]
struct Spawner(Mutex<Option<Driver>>);

impl Spawner {
    fn spawned(&self) -> Option<Driver> {
        self.0.lock().take()
    }
}

impl Spawn for Spawner {
    fn spawn(&self, task: Task) {
        let ended = Arc::new(watch::Sender::new(false));
        let driving = DriverTask {
            driver: Box::into_pin(task.future),
            ended: ended.clone(),
        };
        let task = tokio::spawn(driving).abort_handle();
        *self.0.lock() = Some(Driver { task, ended });
    }
}

/// Reports its end before the driver is dropped, for whatever reason.
struct DriverTask {
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: Arc<watch::Sender<bool>>,
}

impl Future for DriverTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.driver.as_mut().poll(context)
    }
}

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.ended.send_replace(true);
    }
}
