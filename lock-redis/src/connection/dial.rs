//! Making a connection that can serve.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, Guarantee, Result, Verdict};
use lock_kit::identify::{first_answer, is_tls, speaks_tls, wants_tls, wrong_server};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, PushInfo, PushKind, RedisError, Value, cmd};
use tokio::sync::Notify;

use super::access::Access;
use super::acknowledger::Acknowledger;
use super::identity::Identity;
use super::member::Member;
use super::opened::{DialError, IDENTIFY_LIMIT, Opened, Role, is_pong, open};
use super::unloaded::Unloaded;
use super::window::DRIVER_SLOTS;
use crate::config::RedisConfig;
use crate::connection::channels::Channels;
use crate::connection::followed::Followed;
use crate::connection::inbox::Inbox;
use crate::error::lock_error;
use crate::probe::{Finding, Probe, Setup};
use crate::protocol::{self, ScriptForm};

/// Makes connections. Shows the server's address.
#[async_trait]
pub(super) trait Dial: fmt::Display + Send + Sync + 'static {
    /// Connects, and makes sure that the server serves, can keep locks and knows the scripts. Subscribes to the inbox. Has no
    /// time limit of its own.
    async fn dial(&self) -> Result<Dialed>;

    /// The findings about the server's settings.
    fn findings(&self) -> Vec<Finding>;

    /// The verdict of the server that was last connected to on a guarantee.
    fn keeps(&self, guarantee: Guarantee) -> Verdict;

    /// Never returns. To be polled for as long as connections are made.
    async fn watch(&self) -> Infallible {
        std::future::pending().await
    }

    /// Waits until another server than the last one is to be used.
    async fn moved(&self) {
        std::future::pending().await
    }
}

/// Connects to one Redis.
pub(crate) struct Dialer {
    access: Access,
    #[cfg(feature = "tls")]
    tls: Option<lock_tls::Tls>,
    probe: Probe,
    /// The number of replicas that have to acknowledge a grant.
    replicas: u32,
    /// For how long a server that may have forgotten holds gives no fresh grant.
    restart_delay: Option<Duration>,
    prefix: String,
    /// The time for which a connection may be silent after a request.
    silence: Duration,
    inbox: Arc<Inbox>,
    role: Role,
    /// True if a Redis was ever reached.
    reached: AtomicBool,
}

/// A connection just made.
pub(super) struct Dialed {
    pub(super) connection: MultiplexedConnection,
    #[cfg(feature = "tls")]
    pub(super) driver: Option<super::tls::Driver>,
    /// Over a second connection, if replicas have to acknowledge.
    pub(super) acknowledger: Option<Acknowledger>,
    /// Present if a server that may have forgotten holds gives no fresh grant for a while.
    pub(super) member: Option<Member>,
    pub(super) unloaded: Arc<Unloaded>,
    /// Notified when a connection ends.
    pub(super) ended: Arc<Notify>,
    /// Set whenever the server sends something unasked.
    pub(super) heard: Arc<AtomicBool>,
    /// Kept up to date by the server's messages.
    pub(super) channels: Arc<Channels>,
    /// Notified of each change that the server reports.
    pub(super) followed: Arc<Followed>,
}

impl Dialed {
    fn new(opened: Opened, ended: Arc<Notify>, heard: Arc<AtomicBool>, channels: Arc<Channels>) -> Self {
        Self {
            connection: opened.connection,
            #[cfg(feature = "tls")]
            driver: opened.driver,
            acknowledger: None,
            member: None,
            unloaded: Arc::default(),
            ended,
            heard,
            channels,
            followed: Arc::default(),
        }
    }
}

impl Dialer {
    pub(crate) fn new(config: &RedisConfig, inbox: Arc<Inbox>, role: Role) -> Result<Self> {
        Ok(Self {
            access: Access::new(config.info(), config.credentials(), config.timeouts())?,
            #[cfg(feature = "tls")]
            tls: config.tls().cloned(),
            probe: Probe::new(config.checks(), Setup::new(config, role != Role::Alone)),
            replicas: config.replicas(),
            restart_delay: config.restart_delay(),
            prefix: config.prefix().into(),
            silence: config.response_timeout(),
            inbox,
            role,
            reached: AtomicBool::new(false),
        })
    }

    async fn dial_error(&self, error: DialError) -> Error {
        match error {
            DialError::Driver(error) => self.connect_error(error).await,
            DialError::Lock(error) => error,
        }
    }

    /// Why no connection was made: perhaps another kind of server answers there.
    async fn connect_error(&self, error: RedisError) -> Error {
        let may_be_another = error.kind() == redis::ErrorKind::Parse || error.is_connection_dropped();
        if let ConnectionAddr::Tcp(host, port) = self.access.info().addr()
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

    pub(super) fn lock_error(&self, error: RedisError) -> Error {
        let shown = lock_error(error.clone(), self);
        self.access.hide_quoted(&error, shown)
    }

    /// Returns the replies to the probe's commands, too.
    async fn connect(&self) -> Result<(Dialed, Vec<Value>), DialError> {
        let (ended, heard) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(true)));
        let channels = Arc::new(Channels::default());
        let followed = Arc::new(Followed::default());
        let (on_push, inbox, on_change, on_report) =
            (heard.clone(), self.inbox.clone(), channels.clone(), followed.clone());
        let opened = self.open(ended.clone(), move |push| {
            on_push.store(true, Ordering::Relaxed);
            on_change.receive(push);
            on_report.receive(push);
            inbox.receive(push);
        });
        let mut opened = opened.await?;
        if self.role == Role::Listener {
            return Ok((Dialed::new(opened, ended, heard, channels), Vec::new()));
        }
        let checks = self.probe.commands();
        let count = checks.len();
        let mut commands = redis::pipe();
        let scripts = protocol::all(self.restart_delay.is_some()).map(|script| script.form(self.role.wakes()));
        for command in checks.into_iter().chain(scripts.map(ScriptForm::load)) {
            commands.add_command(command);
        }
        // Errors are among the replies: where SCRIPT LOAD is not permitted, EVAL loads the script later.
        let connection = &mut opened.connection;
        let mut replies = connection.send_packed_commands(&commands, 0, commands.len()).await?;
        let loaded = replies.drain(count..).zip(scripts);
        let unloaded = loaded.filter(|(reply, _)| matches!(reply, Value::ServerError(_)));
        let unloaded = Unloaded::new(unloaded.map(|(_, script)| script.hash().to_owned()));
        let mut dialed = Dialed::new(opened, ended, heard, channels);
        dialed.unloaded = Arc::new(unloaded);
        dialed.followed = followed;
        Ok((dialed, replies))
    }

    /// The reply to one command, over a connection of its own.
    pub(crate) async fn ask(&self, command: &redis::Cmd) -> Result<Value> {
        let (mut dialed, _) = match self.connect().await {
            Ok(connected) => connected,
            Err(error) => return Err(self.dial_error(error).await),
        };
        let reply = dialed.connection.send_packed_command(command).await;
        reply
            .and_then(Value::extract_error)
            .map_err(|error| self.lock_error(error))
    }

    /// Makes a connection to a server that serves. Messages that the server sends unasked go to `on_push`.
    async fn open(
        &self,
        ended: Arc<Notify>,
        on_push: impl Fn(&PushInfo) + Send + Sync + 'static,
    ) -> Result<Opened, DialError> {
        // Without timeouts: the supervisor limits a dial, and ends a connection on which nothing comes.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(DRIVER_SLOTS)
            .set_push_sender(move |push: PushInfo| {
                match push.kind {
                    PushKind::Disconnection => ended.notify_one(),
                    _ => on_push(&push),
                }
                Ok::<(), Infallible>(())
            });
        #[cfg(feature = "tls")]
        let server = format!("Redis at {self}");
        #[cfg(feature = "tls")]
        let opened = open(&self.access, (self.tls.as_ref(), &server), config);
        #[cfg(not(feature = "tls"))]
        let opened = open(&self.access, config);
        let mut opened = opened.await?;
        let pong = opened.connection.send_packed_command(&cmd("PING")).await?;
        is_pong(&pong.extract_error()?)?;
        Ok(opened)
    }

    /// Makes the second connection, by which replicas acknowledge. If it ends, the first one is replaced, too.
    async fn acknowledger(&self, identity: &Identity, ended: &Arc<Notify>) -> Result<Acknowledger, DialError> {
        let mut opened = self.open(ended.clone(), |_| {}).await?;
        // The address may lead to another server by now, whose replicas acknowledge something else.
        if Identity::of(&mut opened.connection).await? != *identity {
            let error = "two connections lead to two servers: it may be failing over";
            return Err(RedisError::from(std::io::Error::other(error)).into());
        }
        Ok(Acknowledger::start(opened, self.role, self.replicas, self.silence))
    }
}

#[async_trait]
impl Dial for Dialer {
    async fn dial(&self) -> Result<Dialed> {
        let (mut dialed, replies) = match self.connect().await {
            Ok(connected) => connected,
            Err(error) => return Err(self.dial_error(error).await),
        };
        self.reached.store(true, Ordering::Relaxed);
        self.probe.evaluate(&replies, self)?;
        if self.role == Role::Alone {
            let subscribed = dialed.connection.subscribe(self.inbox.channel()).await;
            subscribed.map_err(|error| self.lock_error(error))?;
        }
        if self.role == Role::Listener || (self.replicas == 0 && self.restart_delay.is_none()) {
            return Ok(dialed);
        }
        let identity = Identity::of(&mut dialed.connection).await;
        let identity = identity.map_err(|error| self.lock_error(error))?;
        if let Some(delay) = self.restart_delay {
            let of_cluster = self.role != Role::Alone;
            let member = Member::new(&mut dialed.connection, &self.prefix, &identity, delay, of_cluster).await;
            dialed.member = Some(member.map_err(|error| self.lock_error(error))?);
        }
        if self.replicas > 0 {
            match self.acknowledger(&identity, &dialed.ended).await {
                Ok(acknowledger) => dialed.acknowledger = Some(acknowledger),
                Err(error) => return Err(self.dial_error(error).await),
            }
        }
        Ok(dialed)
    }

    fn findings(&self) -> Vec<Finding> {
        self.probe.findings()
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        self.probe.keeps(guarantee)
    }
}

impl fmt::Display for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.access.info().addr().fmt(f)
    }
}
