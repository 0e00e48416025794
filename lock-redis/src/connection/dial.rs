//! Making a connection that can serve.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, ErrorKind, Result};
use lock_identify::{first_answer, is_tls, speaks_tls, wants_tls, wrong_server};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, ConnectionAddr, ProtocolVersion, PushInfo, PushKind, RedisError, Value, cmd};
use tokio::sync::Notify;

use crate::config::RedisConfig;
use crate::connection::inbox::Inbox;
use crate::error::lock_error;
use crate::probe::{Finding, Probe};
use crate::protocol::{self, Script};

/// Makes connections. Shows the server's address.
#[async_trait]
pub(super) trait Dial: fmt::Display + Send + Sync + 'static {
    /// Connects, and makes sure that the server serves, can keep locks and knows the scripts. Subscribes to the inbox. Has no
    /// time limit of its own.
    async fn dial(&self) -> Result<Dialed>;

    /// What is known of the server's settings.
    fn findings(&self) -> Vec<Finding>;
}

/// Connects to one Redis.
pub(super) struct Dialer {
    client: redis::Client,
    #[cfg(feature = "tls")]
    tls: Option<lock_tls::Tls>,
    probe: Probe,
    inbox: Arc<Inbox>,
    /// Whether a Redis was ever reached.
    reached: AtomicBool,
}

/// How long a server that did not answer as a Redis may take to show what it is.
pub(super) const IDENTIFY_LIMIT: Duration = Duration::from_millis(500);

/// Why a connection was not made.
pub(super) enum DialError {
    Driver(RedisError),
    /// TLS says what is wrong.
    #[cfg(feature = "tls")]
    Lock(Error),
}

impl From<RedisError> for DialError {
    fn from(error: RedisError) -> Self {
        Self::Driver(error)
    }
}

/// A connection just made.
pub(super) struct Dialed {
    pub(super) connection: MultiplexedConnection,
    #[cfg(feature = "tls")]
    pub(super) driver: Option<super::tls::Driver>,
    /// Notified when the connection ends.
    pub(super) ended: Arc<Notify>,
    /// Set whenever the server sends something unasked.
    pub(super) heard: Arc<AtomicBool>,
}

impl Dialer {
    pub(super) fn new(config: &RedisConfig, inbox: Arc<Inbox>) -> Result<Self> {
        // RESP3, since only there the driver reports when a connection ends.
        let settings = config
            .info()
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("polylock", env!("CARGO_PKG_VERSION"));
        let keepalive = TcpKeepalive::new()
            .with_time(config.response_timeout().max(Duration::from_secs(1)))
            .with_interval(Duration::from_secs(1));
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(2 * config.response_timeout());
        let info = config.info().clone().set_redis_settings(settings).set_tcp_settings(tcp);
        let client = redis::Client::open(info).map_err(|error| {
            Error::new(ErrorKind::Misconfigured, "the driver refuses these settings of a Redis").with_source(error)
        })?;
        Ok(Self {
            client,
            #[cfg(feature = "tls")]
            tls: config.tls().cloned(),
            probe: Probe::new(config.checks()),
            inbox,
            reached: AtomicBool::new(false),
        })
    }

    /// Why no connection was made: perhaps another kind of server answers there.
    async fn connect_error(&self, error: RedisError) -> Error {
        let may_be_another = error.kind() == redis::ErrorKind::Parse || error.is_connection_dropped();
        if let ConnectionAddr::Tcp(host, port) = self.client.get_connection_info().addr()
            && may_be_another
            && !self.is_secured()
            && !self.reached.load(Ordering::Relaxed)
        {
            let answer = first_answer(host, *port, Duration::ZERO, IDENTIFY_LIMIT).await;
            let answer = answer.unwrap_or_default();
            let is_secured = match answer.is_empty() {
                true => speaks_tls(host, *port, IDENTIFY_LIMIT).await,
                false => is_tls(&answer),
            };
            if is_secured {
                return wants_tls("Redis", self);
            }
            // A Redis answers with a status or an error.
            if answer.first().is_some_and(|first| !b"+-".contains(first)) {
                return wrong_server("Redis", self, &answer);
            }
        }
        self.lock_error(error)
    }

    fn is_secured(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Hides an error that may quote the password, as a server does that does not know the command for it.
    fn lock_error(&self, error: RedisError) -> Error {
        let password = self.client.get_connection_info().redis_settings().password();
        let is_quoted = password
            .filter(|password| !password.is_empty())
            .is_some_and(|password| {
                let words = format!("{error} {error:?}");
                words.contains(password) || words.contains("with args beginning with")
            });
        let error = lock_error(error, self);
        match is_quoted {
            true => error.with_source("the server's words quote the password, so they are not shown"),
            false => error,
        }
    }

    /// Returns the replies to the probe's commands, too.
    async fn connect(&self) -> Result<(Dialed, Vec<Value>), DialError> {
        let (ended, heard) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(true)));
        let (on_end, on_push, inbox) = (ended.clone(), heard.clone(), self.inbox.clone());
        // Without timeouts: the supervisor limits a dial, and ends a connection on which nothing comes.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024)
            .set_push_sender(move |push: PushInfo| {
                match push.kind {
                    PushKind::Disconnection => on_end.notify_one(),
                    _ => {
                        on_push.store(true, Ordering::Relaxed);
                        inbox.receive(&push);
                    }
                }
                Ok::<(), std::convert::Infallible>(())
            });
        #[cfg(feature = "tls")]
        let (mut connection, driver) = match &self.tls {
            Some(tls) => {
                let info = self.client.get_connection_info();
                let (connection, driver) = super::tls::connect(tls, info, config).await?;
                (connection, Some(driver))
            }
            None => (self.connect_plain(&config).await?, None),
        };
        #[cfg(not(feature = "tls"))]
        let mut connection = self.connect_plain(&config).await?;
        let pong = connection.send_packed_command(&cmd("PING")).await?;
        is_pong(&pong.extract_error()?)?;
        let checks = self.probe.commands();
        let count = checks.len();
        let mut commands = redis::pipe();
        for command in checks.into_iter().chain(protocol::all().map(Script::load)) {
            commands.add_command(command);
        }
        // Errors are among the replies: where SCRIPT LOAD is not permitted, EVAL loads the script later.
        let mut replies = connection.send_packed_commands(&commands, 0, commands.len()).await?;
        replies.truncate(count);
        let dialed = Dialed {
            connection,
            #[cfg(feature = "tls")]
            driver,
            ended,
            heard,
        };
        Ok((dialed, replies))
    }

    async fn connect_plain(&self, config: &AsyncConnectionConfig) -> Result<MultiplexedConnection, RedisError> {
        self.client.get_multiplexed_async_connection_with_config(config).await
    }
}

#[async_trait]
impl Dial for Dialer {
    async fn dial(&self) -> Result<Dialed> {
        let (mut dialed, replies) = match self.connect().await {
            Ok(connected) => connected,
            Err(DialError::Driver(error)) => return Err(self.connect_error(error).await),
            #[cfg(feature = "tls")]
            Err(DialError::Lock(error)) => return Err(error),
        };
        self.reached.store(true, Ordering::Relaxed);
        self.probe.evaluate(&replies, self)?;
        let subscribed = dialed.connection.subscribe(self.inbox.channel()).await;
        subscribed.map_err(|error| self.lock_error(error))?;
        Ok(dialed)
    }

    fn findings(&self) -> Vec<Finding> {
        self.probe.findings()
    }
}

/// Whether this is the reply to PING of a server that serves.
pub(super) fn is_pong(reply: &Value) -> Result<(), RedisError> {
    match reply {
        Value::SimpleString(pong) if pong == "PONG" => Ok(()),
        _ => Err((redis::ErrorKind::Parse, "PING was not answered with PONG").into()),
    }
}

impl fmt::Display for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.get_connection_info().addr().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_to_be_sent_and_silence_ends_a_connection() {
        let config = RedisConfig::new("localhost", 6379).with_response_timeout(Duration::from_secs(3));
        let inbox = Arc::new(Inbox::new(config.prefix()));
        let dialer = Dialer::new(&config, inbox).expect("a good configuration");
        let tcp = dialer.client.get_connection_info().tcp_settings();
        assert!(tcp.nodelay());
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(3))
            .with_interval(Duration::from_secs(1));
        assert_eq!(format!("{:?}", tcp.keepalive()), format!("{:?}", Some(keepalive)));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        assert_eq!(tcp.user_timeout(), Some(Duration::from_secs(6)));
    }
}
