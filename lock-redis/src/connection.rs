//! The one connection of a backend, which is made again whenever it ends.
//!
//! A task, the supervisor, connects, monitors the connection, and connects again. It lives in the runtime of the first
//! caller. If that runtime has ended, the next call starts another supervisor in its own runtime. If nobody drives that
//! runtime, a call on another one does so after half a second.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lock_core::backend::{HolderId, Lease};
use lock_core::{Error, ErrorKind, Guarantee, Result, Verdict};
use redis::{Cmd, RedisResult, ServerErrorKind, Value, cmd};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::config::RedisConfig;
use crate::error::Failure;
use crate::names;
use crate::probe::Finding;
use crate::protocol::{PubSub, Request, Script};
use dial::Dial;
use identity::Identity;
use inbox::Inbox;
use sentinel::SentinelDialer;
use state::{Phase, Shared, State};

pub(crate) use dial::Dialer;
pub(crate) use opened::Role;
pub(crate) use session::{Health, Session};
pub(crate) use state::{LeaseRegistration, Leases};
pub(crate) use window::Room;

mod access;
mod acknowledged;
mod acknowledger;
mod channels;
mod dial;
mod followed;
mod gatherer;
mod heartbeat;
mod identity;
pub(crate) mod inbox;
mod member;
mod opened;
mod queue;
mod run;
mod sentinel;
mod session;
mod state;
mod subscriptions;
mod supervisor;
mod takeover;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod unloaded;
mod window;

/// The connection to the server, for as long as this lives.
pub(crate) struct Connection(Arc<Shared>);

/// The server's reply to a request.
pub(crate) type Reply = Result<Value, Failure>;

impl Connection {
    /// Does no I/O.
    pub(crate) fn new(config: &RedisConfig, inbox: Arc<Inbox>) -> Result<Self> {
        match config.sentinels() {
            Some(sentinels) => {
                let dialer = Box::new(SentinelDialer::new(config, sentinels, inbox.clone())?);
                let (generations, leases) = (Arc::default(), Leases::default());
                Ok(Self::with_dialer(
                    dialer,
                    config,
                    inbox,
                    generations,
                    leases,
                    Role::Alone,
                ))
            }
            None => Self::of_role(Role::Alone, config, inbox, Arc::default(), Leases::default()),
        }
    }

    /// One of several connections of a backend, which share the arguments.
    pub(crate) fn of_role(
        role: Role,
        config: &RedisConfig,
        inbox: Arc<Inbox>,
        generations: Arc<AtomicU64>,
        leases: Leases,
    ) -> Result<Self> {
        let dialer = Box::new(Dialer::new(config, inbox.clone(), role)?);
        Ok(Self::with_dialer(dialer, config, inbox, generations, leases, role))
    }

    fn with_dialer(
        dialer: Box<dyn Dial>,
        config: &RedisConfig,
        inbox: Arc<Inbox>,
        generations: Arc<AtomicU64>,
        leases: Leases,
        role: Role,
    ) -> Self {
        Self(Arc::new(Shared {
            dialer,
            connect_timeout: config.connect_timeout(),
            response_timeout: config.response_timeout(),
            state: watch::Sender::new(State::new()),
            leases,
            inbox,
            generations,
            wakes: role.wakes(),
        }))
    }

    /// The connection as it is, or as soon as there is one, but not later than the connect timeout or `given_up`.
    ///
    /// # Errors
    /// The reason why there is none, as not executed. If there was a connection before, or if the reason is permanent, this
    /// returns as soon as a try to connect has failed that began after the call.
    pub(crate) async fn session(&self, given_up: impl Future<Output = ()>) -> Result<Session> {
        if let Some(session) = self.0.state.borrow().session() {
            return Ok(session.clone());
        }
        // Boxed: seldom needed.
        Box::pin(self.next_session(given_up)).await.map_err(Error::not_executed)
    }

    async fn next_session(&self, given_up: impl Future<Output = ()>) -> Result<Session> {
        let deadline = Instant::now() + self.0.connect_timeout;
        let mut states = self.0.state.subscribe();
        let dial = states.borrow().dials + 1;
        self.0.request_connection(deadline);
        tokio::pin!(given_up);
        loop {
            {
                let state = states.borrow_and_update();
                if let Some(session) = state.session() {
                    return Ok(session.clone());
                }
                if let Some(error) = state.failure(dial) {
                    return Err(error);
                }
            }
            takeover::start_supervisor(&self.0, State::lacks_supervisor)?;
            tokio::select! {
                // Cannot fail: the sender is ours.
                _ = states.changed() => {}
                () = sleep_until(deadline) => return Err(self.0.unreached()),
                () = &mut given_up => return Err(self.0.unreached()),
                never = takeover::watch_supervisor(&self.0) => match never {},
            }
        }
    }

    /// Watches the supervisor: if nobody drives its runtime, another one takes over in the caller's runtime. To be polled
    /// by a caller that waits for a message from the server.
    pub(crate) async fn watch_supervisor(&self) -> Infallible {
        takeover::watch_supervisor(&self.0).await
    }

    /// True if there never was a connection, so that nothing was ever sent.
    pub(crate) fn is_unused(&self) -> bool {
        self.0.state.borrow().connected.is_none()
    }

    /// The findings about the settings of the server that was last connected to.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.0.dialer.findings()
    }

    /// The verdict of the server that was last connected to on a guarantee.
    pub(crate) fn keeps(&self, guarantee: Guarantee) -> Verdict {
        self.0.dialer.keeps(guarantee)
    }

    /// Checks that the server serves.
    ///
    /// # Errors
    /// Those of [`session`](Self::session), and the reason why it does not serve.
    pub(crate) async fn check(&self) -> Result<()> {
        let session = self.session(std::future::pending()).await?;
        let pong = self.send(&session, &cmd("PING")).await;
        let is_pong = pong.and_then(|pong| opened::is_pong(&pong).map_err(Failure::Rejected));
        is_pong.map_err(|failure| self.lock_error(failure))
    }

    /// The run id of the server that answers, if it reports one.
    ///
    /// # Errors
    /// Those of [`session`](Self::session), and of the connection.
    pub(crate) async fn run_id(&self) -> Result<Option<String>> {
        let session = self.session(std::future::pending()).await?;
        self.run_of(&session).await
    }

    /// The run id of this connection's server, which is asked once.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) async fn run_of(&self, session: &Session) -> Result<Option<String>> {
        let asked =
            session
                .run_id()
                .get_or_try_init(async || match self.send(session, cmd("INFO").arg("server")).await {
                    Ok(info) => Ok(identity::run_id(&info)),
                    Err(Failure::Rejected(error)) if identity::states_none(&error) => Ok(None),
                    Err(failure) => Err(self.lock_error(failure)),
                });
        asked.await.cloned()
    }

    /// Runs a script, and loads it if the server does not know it.
    ///
    /// # Cancel safety
    /// If dropped, the server may still execute the script, in the order in which it was sent.
    pub(crate) async fn run(&self, on: &Session, script: &'static Script, keys: &[&str], args: &[&str]) -> Reply {
        self.run_as(on, script, keys, args, None).await
    }

    /// The same for an acquire. Its room says afterwards, also if this was dropped, whether it was sent.
    pub(crate) async fn ask(
        &self,
        on: &Session,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        room: &mut Room,
    ) -> Reply {
        self.run_as(on, script, keys, args, Some(room)).await
    }

    async fn run_as(
        &self,
        on: &Session,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        room: Option<&mut Room>,
    ) -> Reply {
        let kind = Request::kind_of(script, keys, args);
        if on.queue().is_busy() || (kind.is_some() && on.has_unanswered()) {
            let slot = match self.0.wakes {
                PubSub::Plain => 0,
                PubSub::Sharded => names::slot(keys[0]),
            };
            let mut asked = on.queue().push(Request::new(script, keys, args), kind, slot, room);
            return tokio::select! {
                biased;
                reply = &mut asked => reply,
                why = on.ended() => Err(asked.cut_off(why)),
                never = takeover::watch_supervisor(&self.0) => match never {},
            };
        }
        if let Some(room) = room {
            room.sending();
        }
        // Boxed, so that a request that waits in the queue has no room for it.
        let running = Box::pin(self.0.run(on, script, keys, args));
        tokio::select! {
            biased;
            reply = running => reply,
            never = takeover::watch_supervisor(&self.0) => match never {},
        }
    }

    /// The same on a master that takes over the hash slot, which serves only requests that begin with ASKING.
    pub(crate) async fn run_asking(&self, on: &Session, script: &Script, keys: &[&str], args: &[&str]) -> Reply {
        let (script, args) = &self.0.form(on, script, args);
        let asking = |command: Cmd| {
            let mut commands = redis::pipe();
            commands.add_command(cmd("ASKING")).add_command(command);
            commands
        };
        match self.reply(on, on.send_last(&asking(script.run(keys, args)))).await {
            Err(Failure::Rejected(error)) if error.kind() == ServerErrorKind::NoScript.into() => {
                self.reply(on, on.send_last(&asking(script.run_with_text(keys, args))))
                    .await
            }
            reply => reply,
        }
    }

    /// Makes sure that the server has not been promoted since the connection was made, where a grant depends on that. If it
    /// has, the connection ends: the next one knows since when.
    ///
    /// # Errors
    /// If it has been promoted, or cannot be asked.
    pub(crate) async fn check_data(&self, on: &Session) -> Result<()> {
        let Some(data) = on.data() else { return Ok(()) };
        let reply = self.send(on, cmd("INFO").arg("replication")).await;
        let reply = reply.map_err(|failure| self.lock_error(failure))?;
        if Identity::has_data(&reply, data) {
            return Ok(());
        }
        let why = Error::new(
            ErrorKind::Unavailable,
            format!("Redis at {} was promoted since the connection was made", self.0.dialer),
        );
        self.0.end(on, &why);
        Err(why)
    }

    /// Ends the use of this connection. Requests that were sent have an unknown outcome.
    pub(crate) fn end(&self, session: &Session, why: &Error) {
        self.0.end(session, why);
    }

    /// The connection, if there is one.
    pub(crate) fn current(&self) -> Option<Session> {
        self.0.state.borrow().session().cloned()
    }

    /// Sends a command and waits for its reply for as long as the connection lasts.
    pub(crate) async fn send(&self, on: &Session, command: &Cmd) -> Reply {
        self.reply(on, on.send(command)).await
    }

    async fn reply(&self, on: &Session, sending: impl Future<Output = Result<RedisResult<Value>>>) -> Reply {
        tokio::select! {
            biased;
            reply = self.0.reply(on, sending) => reply,
            never = takeover::watch_supervisor(&self.0) => match never {},
        }
    }

    /// The error of a session that gives no fresh grant for this time.
    pub(crate) fn delay_error(&self, of: &Session, rest: Duration) -> Error {
        let why = match of.lacks_marks() {
            true => "had no hash slots when this process connected to it",
            false => "was restarted or promoted",
        };
        let what = format!(
            "Redis at {} {why}, so it may have forgotten locks: it gives no new ones for another {rest:?} (restart_delay)",
            self.0.dialer
        );
        Error::new(ErrorKind::Unavailable, what)
    }

    /// Makes a lease suspect whenever a connection ends, for as long as the registration lives; and now, if the connection
    /// of its grant has ended already.
    pub(crate) fn register_lease(
        &self,
        slot: u16,
        holder: HolderId,
        lease: &Lease,
        granted_on: &Session,
    ) -> LeaseRegistration {
        let registration = self.0.leases.register(slot, holder, lease);
        if granted_on.has_ended() {
            lease.suspect();
        }
        registration
    }

    /// The same for the lease of the hold's next holder in this process. From here on it hears of losses in place of the
    /// earlier one.
    pub(crate) fn pass_lease(&self, slot: u16, holder: HolderId, next: &Lease) -> LeaseRegistration {
        self.0.leases.pass(slot, holder, next)
    }

    /// The lock's error for a failed request.
    pub(crate) fn lock_error(&self, failure: Failure) -> Error {
        failure.into_lock_error(&self.0.dialer)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let task = {
            let state = self.0.state.borrow();
            state.supervisor.as_ref().map(|supervisor| supervisor.task.clone())
        };
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.borrow();
        let phase = match &state.phase {
            Phase::Idle => "idle",
            Phase::Connecting => "connecting",
            Phase::Up(_) => "up",
        };
        f.debug_struct("Connection")
            .field("server", &format_args!("{}", self.0.dialer))
            .field("phase", &phase)
            .field("generation", &state.generation)
            .finish_non_exhaustive()
    }
}
