//! Makes connections, and asks what they lead to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::backend::HolderId;
use lock_core::{Error, ErrorKind, Result};
use lock_kit::identify::{first_answer, wrong_server};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

use super::tls::Handshake;
use super::{Connection, OnCall, State};
use crate::config::{Host, Pooler, PostgresConfig};
use crate::error::{SqlError, connect_error, may_be_foreign, pooler_between};
use crate::probe::{PROBE, Probe, SETTINGS};

/// How long another server may take to show what it is.
const SILENCE_LIMIT: Duration = Duration::from_millis(500);

/// TCP probes a connection over which nothing came for so long.
const KEEPALIVES_AFTER: Duration = Duration::from_secs(10);
/// TCP ends a connection on which data was not acknowledged for so long.
const UNANSWERED_FOR: Duration = Duration::from_secs(20);

/// What a connection needs besides what all need.
pub(crate) struct SetUp {
    /// Options in the first message, which the server itself reads. A pooler refuses or ignores them.
    pub(crate) options: Option<String>,
    /// Statements that are run after the probe, which would take what they set for the server's settings.
    /// [`Connection::answer_to_set_up`] has their rows.
    pub(crate) text: String,
    /// For how long the client keeps a connection over which nothing comes, at least.
    pub(crate) keep_silent: Duration,
}

/// Makes that of a connection with this [mark](Connection::mark).
type MakeSetUp = fn(&PostgresConfig, &str) -> SetUp;

/// Makes connections by one configuration.
#[derive(Debug)]
pub(crate) struct Dialer {
    config: PostgresConfig,
    set_up: Option<MakeSetUp>,
    /// Whether a server of ours ever answered.
    has_reached: AtomicBool,
}

impl Dialer {
    pub(crate) fn new(config: PostgresConfig) -> Self {
        Self {
            config,
            set_up: None,
            has_reached: AtomicBool::new(false),
        }
    }

    /// Has each connection set up like this besides.
    pub(crate) fn with_set_up(mut self, set_up: MakeSetUp) -> Self {
        self.set_up = Some(set_up);
        self
    }

    /// A new connection to the first host that takes writes.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if none could be reached in time; others if trying again would fail in the same way.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn dial(&self) -> Result<Arc<Connection>> {
        self.dial_with(|| Box::new(|_: &str| {})).await
    }

    /// The same, and has `on_call` take the payloads of notifications.
    pub(crate) async fn dial_with(&self, on_call: impl Fn() -> OnCall) -> Result<Arc<Connection>> {
        let (begun, limit) = (Instant::now(), self.config.connect_timeout);
        let mut failed: Option<Error> = None;
        for (number, host) in self.config.hosts.iter().enumerate() {
            let left = u32::try_from(self.config.hosts.len() - number).unwrap_or(1);
            let limit = limit.saturating_sub(begun.elapsed()) / left;
            let dialled = match timeout(limit, self.dial_host(host, limit, on_call())).await {
                Ok(dialled) => dialled,
                Err(_) => {
                    let message =
                        format!("the PostgreSQL server at {host} did not accept a connection within {limit:?}");
                    Err(Error::new(ErrorKind::Unavailable, message).not_executed())
                }
            };
            match dialled {
                Ok(connection) => return Ok(connection),
                // One that cannot be reached may be the right one.
                Err(error) => match &failed {
                    Some(before) if before.kind() == ErrorKind::Unavailable => {}
                    _ => failed = Some(error),
                },
            }
        }
        Err(failed.unwrap_or_else(|| Error::new(ErrorKind::Misconfigured, "no host is named").not_executed()))
    }

    async fn dial_host(&self, host: &Host, limit: Duration, on_call: OnCall) -> Result<Arc<Connection>> {
        let (user, password) = self.config.login(limit).await.map_err(Error::not_executed)?;
        let mark = HolderId::random().to_string();
        let set_up = self.set_up.map(|set_up| set_up(&self.config, &mark));
        let silent = set_up.as_ref().map_or(Duration::ZERO, |set_up| set_up.keep_silent);
        let mut options = Config::new();
        options
            .user(user)
            .dbname(&self.config.database)
            .application_name("polylock")
            .keepalives_idle(silent.max(KEEPALIVES_AFTER))
            .tcp_user_timeout(silent.max(UNANSWERED_FOR));
        if let Some(password) = password {
            options.password(password);
        }
        match host {
            Host::Tcp(host, port) => options.host(host).port(*port),
            #[cfg(unix)]
            Host::Socket(directory, port) => options.host_path(directory).port(*port),
            #[cfg(not(unix))]
            Host::Socket(..) => {
                return Err(Error::new(ErrorKind::Misconfigured, "there are no Unix sockets here").not_executed());
            }
        };
        let has_options = set_up.as_ref().is_some_and(|set_up| set_up.options.is_some());
        if let Some(text) = set_up.as_ref().and_then(|set_up| set_up.options.as_ref()) {
            options.options(text);
        }
        let address = host.to_string();
        let connected = match &self.config.tls {
            Some(tls) => {
                options.ssl_mode(SslMode::Require);
                let handshake = Handshake {
                    tls: tls.clone(),
                    server: format!("the PostgreSQL server at {address}"),
                    host: String::new(),
                };
                let connected = options.connect(handshake).await;
                connected.map(|(client, driver)| Connection::spawn(client, driver, on_call))
            }
            None => {
                options.ssl_mode(SslMode::Disable);
                let connected = options.connect(NoTls).await;
                connected.map(|(client, driver)| Connection::spawn(client, driver, on_call))
            }
        };
        match connected {
            Ok(connected) => self.set_up(connected, &address, mark, set_up).await,
            // The server itself takes these options.
            Err(error) if has_options && error.code().is_some_and(|code| code.code() == "08P01") => {
                Err(pooler_between(&address).with_source(error).not_executed())
            }
            Err(error) => {
                let is_foreign = !self.has_reached.load(Ordering::Relaxed) && may_be_foreign(&error);
                let error = connect_error(error, &address);
                match is_foreign {
                    true => Err(foreign_server(host).await.unwrap_or(error)),
                    false => Err(error),
                }
            }
        }
    }

    /// Sets what locks need, and asks what the server is, in one round trip.
    async fn set_up(
        &self,
        made: (Client, Arc<State>, AbortHandle),
        address: &str,
        mark: String,
        set_up: Option<SetUp>,
    ) -> Result<Arc<Connection>> {
        let is_own = self.config.pooler != Pooler::Transaction;
        let text = match (is_own, set_up) {
            (false, _) => PROBE.to_owned(),
            (true, None) => format!("{SETTINGS};{PROBE}"),
            (true, Some(set_up)) => format!("{SETTINGS};{PROBE};{}", set_up.text),
        };
        let mut connection = Connection::new(made, !is_own, mark);
        let asked = Instant::now();
        let answer = connection.run(&text, None).await;
        let answer = answer.map_err(|error| SqlError::into_lock_error(error).not_executed())?;
        self.has_reached.store(true, Ordering::Relaxed);
        connection.round_trip = asked.elapsed();
        connection.probe = Probe::read(&answer).map_err(SqlError::into_lock_error)?;
        let checked = connection.probe.check(&self.config, address);
        checked.map_err(Error::not_executed)?;
        connection.answer_to_set_up = answer;
        connection.was_used = AtomicBool::new(false);
        Ok(Arc::new(connection))
    }
}

/// The error that names a server of another kind, if one answers there.
async fn foreign_server(host: &Host) -> Option<Error> {
    let Host::Tcp(name, port) = host else {
        return None;
    };
    let answer = first_answer(name, *port, SILENCE_LIMIT, SILENCE_LIMIT).await.ok()?;
    (!answer.is_empty()).then(|| wrong_server("PostgreSQL", host, &answer).not_executed())
}
