//! The one connection of a backend, which comes back whatever happens to it.
//!
//! A task of its own, the supervisor, connects, watches over the connection, and connects again. It lives in the
//! runtime of the first caller. If that runtime has ended, the next call starts another supervisor in its own runtime. If
//! nobody drives it, a call on another runtime does so after half a second.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::backend::{HolderId, Lease};
use lock_core::{Error, ErrorKind, Result};
use redis::{Cmd, RedisError, ServerErrorKind, Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::RedisConfig;
use crate::error::{Failed, explain, is_answer, is_read_only};
use crate::probe::Finding;
use crate::protocol::Script;
use dial::{Dial, Dialer};
use inbox::Inbox;
use leases::Leases;
use signals::{MOMENT, Signals};
use state::{Phase, State, Supervisor};
use supervisor::Reign;

pub(crate) use leases::Watched;
pub(crate) use session::{Health, Session};

mod dial;
pub(crate) mod inbox;
mod leases;
mod session;
mod signals;
mod silence;
mod state;
mod supervisor;
#[cfg(test)]
mod tests;

/// The connection to the server, for as long as this lives.
pub(crate) struct Connection(Arc<Shared>);

/// What comes of a request.
pub(crate) type Answer = Result<Value, Failed>;

/// What callers and supervisor share.
struct Shared {
    dialer: Box<dyn Dial>,
    connect_timeout: Duration,
    response_timeout: Duration,
    state: watch::Sender<State>,
    leases: Leases,
    inbox: Arc<Inbox>,
}

impl Connection {
    /// Does no I/O.
    pub(crate) fn new(config: &RedisConfig, inbox: Arc<Inbox>) -> Result<Self> {
        let dialer = Box::new(Dialer::new(config, inbox.clone())?);
        Ok(Self::by(dialer, config, inbox))
    }

    fn by(dialer: Box<dyn Dial>, config: &RedisConfig, inbox: Arc<Inbox>) -> Self {
        Self(Arc::new(Shared {
            dialer,
            connect_timeout: config.connect_timeout(),
            response_timeout: config.response_timeout(),
            state: watch::Sender::new(State::new()),
            leases: Leases::default(),
            inbox,
        }))
    }

    /// The connection as it is, or as soon as there is one, but not later than the connect timeout or `given_up`.
    ///
    /// # Errors
    /// The reason why there is none, as not executed. If there was a connection before, or if the reason is final, this
    /// returns as soon as a try to connect has failed that began after the call.
    pub(crate) async fn session(&self, given_up: impl Future<Output = ()>) -> Result<Session> {
        if let Some(session) = self.0.state.borrow().session() {
            return Ok(session.clone());
        }
        self.next_session(given_up).await.map_err(Error::not_executed)
    }

    async fn next_session(&self, given_up: impl Future<Output = ()>) -> Result<Session> {
        let deadline = Instant::now() + self.0.connect_timeout;
        let mut states = self.0.state.subscribe();
        let dial = states.borrow().dials + 1;
        self.0.want(deadline);
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
            Shared::reign_anew(&self.0, State::is_unattended)?;
            tokio::select! {
                // Cannot fail: the sender is ours.
                _ = states.changed() => {}
                () = sleep_until(deadline) => return Err(self.0.unreached()),
                () = &mut given_up => return Err(self.0.unreached()),
                never = self.0.attend() => match never {},
            }
        }
    }

    /// Watches the supervisor: if nobody drives its runtime, another one takes over in the caller's runtime. To be polled
    /// by a caller that waits for something that the server says.
    pub(crate) async fn attend(&self) -> Infallible {
        self.0.attend().await
    }

    /// Whether there never was a connection, so that nothing was ever sent.
    pub(crate) fn is_unused(&self) -> bool {
        self.0.state.borrow().connected.is_none()
    }

    /// What is known of the settings of the server that was connected to last.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.0.dialer.findings()
    }

    /// Whether the server serves.
    ///
    /// # Errors
    /// Those of [`session`](Self::session), and why it does not serve.
    pub(crate) async fn check(&self) -> Result<()> {
        let session = self.session(std::future::pending()).await?;
        let pong = self.send(&session, &cmd("PING")).await;
        let is_pong = pong.and_then(|pong| dial::is_pong(&pong).map_err(Failed::Refused));
        is_pong.map_err(|failed| self.explain(failed))
    }

    /// Runs a script; the server learns it if it does not know it.
    ///
    /// # Cancel safety
    /// Dropped, it may still be executed, in its place in the order.
    pub(crate) async fn run(&self, on: &Session, script: &Script, keys: &[&str], args: &[&str]) -> Answer {
        match self.send(on, &script.run(keys, args)).await {
            Err(Failed::Refused(error)) if error.kind() == ServerErrorKind::NoScript.into() => {
                self.send(on, &script.run_in_full(keys, args)).await
            }
            answer => answer,
        }
    }

    /// Sends a command and waits for its answer for as long as the connection lasts.
    async fn send(&self, on: &Session, command: &Cmd) -> Answer {
        let answer = tokio::select! {
            biased;
            answer = on.send(command) => answer.map_err(Failed::Unanswered)?,
            never = self.0.attend() => match never {},
        };
        answer.map_err(|error| match is_answer(&error) {
            true => {
                // Another connection may lead to the primary.
                if is_read_only(&error) {
                    self.0.end(on, &self.0.explain(error.clone()));
                }
                Failed::Refused(error)
            }
            false => {
                let why = self.0.explain(error);
                self.0.end(on, &why);
                Failed::Unanswered(why)
            }
        })
    }

    /// Makes a hold suspect whenever a connection ends, for as long as the value lives; and now, if the connection of
    /// its grant has ended already.
    pub(crate) fn watch_over(&self, holder: HolderId, lease: &Lease, granted_on: &Session) -> Watched {
        let watched = self.0.leases.add(holder, lease);
        if granted_on.is_over() {
            lease.suspect();
        }
        watched
    }

    /// For people: why a request failed.
    pub(crate) fn explain(&self, failed: Failed) -> Error {
        failed.explain(&self.0.dialer)
    }
}

impl Shared {
    /// Somebody waits for a connection until then.
    fn want(&self, deadline: Instant) {
        self.state.send_if_modified(|state| {
            state.wanted_until = state.wanted_until.max(deadline);
            if let Some(supervisor) = &state.supervisor {
                supervisor.signals.want();
            }
            false
        });
    }

    /// Nothing more is to be sent over this connection.
    fn end(&self, session: &Session, why: &Error) {
        if session.end(why.clone()) {
            self.leases.suspect();
        }
    }

    /// Starts a supervisor in the caller's runtime, in place of any other, if the state is `so`.
    ///
    /// # Errors
    /// Outside a runtime, and in one that is ending: it would cancel the task at once.
    fn reign_anew(this: &Arc<Self>, so: impl FnOnce(&State) -> bool) -> Result<()> {
        let runtime = Handle::try_current().map_err(|error| {
            let what = "the Redis backend works inside a tokio runtime only";
            Error::new(ErrorKind::Misconfigured, what).with_source(error)
        })?;
        let idle = || {
            let what = format!(
                "nobody drove the tokio runtime of the connection to Redis at {}",
                this.dialer
            );
            Error::new(ErrorKind::Unavailable, what)
        };
        let (mut is_refused, mut former, mut left) = (false, None, None);
        this.state.send_if_modified(|state| {
            if !so(state) {
                return false;
            }
            let (signals, has_begun) = (Arc::new(Signals::default()), Arc::new(AtomicBool::new(false)));
            signals.want();
            let task = runtime.spawn(supervisor::supervise(Reign {
                shared: this.clone(),
                number: state.reign + 1,
                signals: signals.clone(),
                has_begun: has_begun.clone(),
            }));
            is_refused = task.is_finished() && !has_begun.load(Ordering::SeqCst);
            if is_refused {
                return false;
            }
            state.reign += 1;
            left = match state.phase {
                Phase::Up(_) => state.leave(Phase::Connecting, idle()),
                _ => None,
            };
            state.phase = Phase::Connecting;
            former = state.supervisor.replace(Supervisor {
                task: task.abort_handle(),
                runtime: runtime.id(),
                signals,
            });
            true
        });
        if is_refused {
            let what = "the tokio runtime is ending, so no connection to Redis can be made in it";
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        if let Some(former) = former {
            former.task.abort();
        }
        if let Some(session) = left {
            this.end(&session, &idle());
        }
        Ok(())
    }

    async fn attend(self: &Arc<Self>) -> Infallible {
        const LONGEST: Duration = Duration::from_secs(1);
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        let mut pause = MOMENT;
        loop {
            let elsewhere = {
                let state = self.state.borrow();
                let supervisor = state.supervisor.as_ref();
                let elsewhere = supervisor.filter(|supervisor| Some(supervisor.runtime) != here);
                elsewhere.map(|supervisor| (state.reign, supervisor.signals.clone()))
            };
            let Some((reign, signals)) = elsewhere else {
                // As long as this runtime is driven, the supervisor is.
                return std::future::pending().await;
            };
            sleep(pause).await;
            pause = LONGEST.min(2 * pause);
            if !signals.is_answered().await {
                // Fails in a runtime that is ending, where nobody waits for long.
                let _ = Self::reign_anew(self, |state| state.reign == reign);
            }
        }
    }

    fn explain(&self, error: RedisError) -> Error {
        explain(error, &self.dialer)
    }

    fn unreached(&self) -> Error {
        let what = format!("Redis at {} was not reached in time", self.dialer);
        match self.state.borrow().trouble.clone() {
            // It says what to do.
            Some(cause) => Error::new(ErrorKind::Unavailable, what).with_source(cause),
            None => {
                let what = format!("{what}: check that it runs and that the address is right");
                Error::new(ErrorKind::Unavailable, what)
            }
        }
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
