//! The one connection of a backend, which comes back whatever happens to it.
//!
//! A task of its own, the supervisor, connects, watches over the connection, and connects again. It lives in the
//! runtime of whoever called first; when that runtime goes, the next call starts another one in its own.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::backend::{HolderId, Lease};
use lock_core::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::backoff;
use crate::checks::Finding;
use crate::config::RedisConfig;
use crate::error::{explain, is_answer, is_final, is_read_only};
use crate::inbox::Inbox;
use crate::script::Script;
use leases::Leases;

pub(crate) use leases::Watched;

mod dial;
mod leases;
mod supervisor;

/// So many requests in a row without an answer in time, and the connection is replaced.
const SILENCE: u32 = 2;

/// The connection to the server, for as long as this lives.
pub(crate) struct Connection(Arc<Shared>);

/// What callers and supervisor share.
struct Shared {
    dialer: dial::Dialer,
    connect_timeout: Duration,
    response_timeout: Duration,
    state: watch::Sender<State>,
    leases: Leases,
    inbox: Arc<Inbox>,
}

struct State {
    phase: Phase,
    /// Counts supervisors: only the newest may change the state.
    reign: u64,
    supervisor: Option<AbortHandle>,
    /// Counts connections.
    generation: u64,
    /// When the newest connection was made.
    connected: Option<Instant>,
    /// When the supervisor last said anything.
    reported: Instant,
    /// Failures to connect in a row; a connection that ended at once is one too.
    failures: u32,
    /// Until when somebody waits for the first contact.
    wanted_until: Instant,
}

enum Phase {
    /// Nobody connects: nothing was asked yet, the server was not to be had in time, or the runtime has gone.
    Idle(Option<Error>),
    /// The first contact, or the first try after a connection ended. With what went wrong so far.
    Connecting(Option<Error>),
    Up(Session),
    /// There was a connection, and the last try to get another one failed.
    Down(Error),
}

/// One established connection.
#[derive(Clone)]
pub(crate) struct Session {
    /// Which one it is. What was sent over one generation is executed in that order; but a script that the server has
    /// forgotten is sent once more, behind what was sent meanwhile.
    pub(crate) generation: u64,
    connection: MultiplexedConnection,
    /// Requests in a row that went unanswered.
    silent: Arc<AtomicU32>,
}

impl Connection {
    /// Does no I/O.
    pub(crate) fn new(config: &RedisConfig, inbox: Arc<Inbox>) -> Result<Self> {
        let state = State {
            phase: Phase::Idle(None),
            reign: 0,
            supervisor: None,
            generation: 0,
            connected: None,
            reported: Instant::now(),
            failures: 0,
            wanted_until: Instant::now(),
        };
        Ok(Self(Arc::new(Shared {
            dialer: dial::Dialer::new(config, inbox.clone())?,
            connect_timeout: config.connect_timeout(),
            response_timeout: config.response_timeout(),
            state: watch::Sender::new(state),
            leases: Leases::default(),
            inbox,
        })))
    }

    /// The connection as it is, or as soon as there is one, but not later than the connect timeout or `given_up`.
    ///
    /// # Errors
    /// The last failure to connect: at once where it is final, or where there was a connection before.
    pub(crate) async fn session(&self, given_up: impl Future<Output = ()>) -> Result<Session> {
        if let Phase::Up(session) = &self.0.state.borrow().phase {
            return Ok(session.clone());
        }
        let deadline = Instant::now() + self.0.connect_timeout;
        let mut states = self.0.state.subscribe();
        let mut is_watched = false;
        let mut cause = None;
        tokio::pin!(given_up);
        loop {
            let is_unattended = {
                let state = states.borrow_and_update();
                match &state.phase {
                    Phase::Up(session) => return Ok(session.clone()),
                    Phase::Idle(Some(error)) if is_watched && is_final(error) => return Err(error.clone()),
                    Phase::Down(error) if !self.0.is_unattended(&state) => return Err(error.clone()),
                    Phase::Idle(_) | Phase::Down(_) => {}
                    Phase::Connecting(error) => cause.clone_from(error),
                }
                self.0.is_unattended(&state)
            };
            self.0.want(deadline);
            if is_unattended {
                Shared::reign_anew(&self.0, |state| self.0.is_unattended(state))?;
            }
            is_watched = true;
            tokio::select! {
                // Cannot fail: the sender is ours.
                _ = states.changed() => {}
                () = sleep_until(deadline) => return Err(self.0.unreached(cause)),
                () = &mut given_up => return Err(self.0.unreached(cause)),
            }
        }
    }

    /// How long anybody waits for a connection.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.0.connect_timeout
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
        let pong = dial::ping(&mut session.connection.clone()).await;
        self.judge(&session, pong.as_ref().err());
        pong.map_err(|error| self.explain(error))
    }

    /// Runs a script; the server learns it if it does not know it.
    ///
    /// # Errors
    /// The driver's: tell the server's own answers from unknown outcomes by [`is_answer`].
    ///
    /// # Cancel safety
    /// Dropped, it may still be executed, in its place in the order.
    pub(crate) async fn run(&self, on: &Session, script: &Script, keys: &[&str], args: &[&str]) -> RedisResult<Value> {
        let mut connection = on.connection.clone();
        let answer = send(&mut connection, &script.run(keys, args)).await;
        let answer = match answer {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                send(&mut connection, &script.run_in_full(keys, args)).await
            }
            answer => answer,
        };
        self.judge(on, answer.as_ref().err());
        answer
    }

    /// Makes a hold suspect whenever a connection ends, for as long as the value lives; and now, if the connection of
    /// its grant has ended already.
    pub(crate) fn watch_over(&self, holder: HolderId, lease: &Lease, granted_on: &Session) -> Watched {
        let watched = self.0.leases.add(holder, lease);
        if !self.0.is_up(granted_on) {
            lease.suspect();
        }
        watched
    }

    /// For people: what the driver's error means here.
    pub(crate) fn explain(&self, error: RedisError) -> Error {
        explain(error, &self.0.dialer)
    }

    /// Replaces the connection after an error that another one may not have.
    fn judge(&self, on: &Session, error: Option<&RedisError>) {
        let is_bad = match error {
            Some(error) if !is_answer(error) => {
                !error.is_timeout() || on.silent.fetch_add(1, Ordering::Relaxed) + 1 >= SILENCE
            }
            answered => {
                on.silent.store(0, Ordering::Relaxed);
                answered.is_some_and(is_read_only)
            }
        };
        if is_bad {
            // Outside a runtime there is nobody to connect: the next call sees to it.
            let _ = Shared::reign_anew(&self.0, |state| state.is_up(on));
        }
    }
}

async fn send(connection: &mut MultiplexedConnection, command: &redis::Cmd) -> RedisResult<Value> {
    connection
        .send_packed_command(command)
        .await
        .and_then(Value::extract_error)
}

impl Shared {
    /// Somebody waits for the first contact until then.
    fn want(&self, deadline: Instant) {
        self.state.send_if_modified(|state| {
            state.wanted_until = state.wanted_until.max(deadline);
            false
        });
    }

    /// Where the state is so, starts a supervisor in the caller's runtime, in place of any other.
    fn reign_anew(this: &Arc<Self>, so: impl FnOnce(&State) -> bool) -> Result<()> {
        let runtime = Handle::try_current().map_err(|error| {
            let what = "the Redis backend works inside a tokio runtime only";
            Error::new(ErrorKind::Misconfigured, what).with_source(error)
        })?;
        let mut former = None;
        this.state.send_if_modified(|state| {
            if !so(state) {
                return false;
            }
            state.reign += 1;
            state.reported = Instant::now();
            state.note_end();
            state.phase = Phase::Connecting(None);
            let task = runtime.spawn(supervisor::supervise(this.clone(), state.reign));
            former = state.supervisor.replace(task.abort_handle());
            true
        });
        if let Some(former) = former {
            former.abort();
            this.leases.suspect();
        }
        Ok(())
    }

    /// Whether nobody connects: nobody was asked to, or the supervisor was born in a dying runtime and never ran, or it
    /// lives in one that nobody drives.
    fn is_unattended(&self, state: &State) -> bool {
        let is_over = state.supervisor.as_ref().is_none_or(AbortHandle::is_finished);
        let silence = self.connect_timeout + 3 * backoff::LONGEST_PAUSE;
        match state.phase {
            Phase::Idle(_) => true,
            Phase::Connecting(_) | Phase::Down(_) => is_over || state.reported.elapsed() > silence,
            Phase::Up(_) => is_over,
        }
    }

    fn is_up(&self, session: &Session) -> bool {
        self.state.borrow().is_up(session)
    }

    fn unreached(&self, cause: Option<Error>) -> Error {
        let what = format!("Redis at {} was not reached in time", self.dialer);
        match cause {
            // It says what to do.
            Some(cause) => Error::new(ErrorKind::Unavailable, what).with_source(cause),
            None => {
                let what = format!("{what}: check that it runs and that the address is right");
                Error::new(ErrorKind::Unavailable, what)
            }
        }
    }
}

impl State {
    fn is_up(&self, session: &Session) -> bool {
        matches!(&self.phase, Phase::Up(newest) if newest.generation == session.generation)
    }

    /// A connection that served for a while ended by chance; one that ended at once will do so again.
    fn note_end(&mut self) {
        const A_WHILE: Duration = Duration::from_secs(1);
        if matches!(self.phase, Phase::Up(_)) {
            let served = self.connected.is_some_and(|since| since.elapsed() >= A_WHILE);
            self.failures = if served { 0 } else { self.failures.saturating_add(1) };
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let supervisor = self.0.state.borrow().supervisor.clone();
        if let Some(supervisor) = supervisor {
            supervisor.abort();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.borrow();
        let phase = match &state.phase {
            Phase::Idle(_) => "idle",
            Phase::Connecting(_) => "connecting",
            Phase::Up(_) => "up",
            Phase::Down(_) => "down",
        };
        f.debug_struct("Connection")
            .field("server", &format_args!("{}", self.0.dialer))
            .field("phase", &phase)
            .field("generation", &state.generation)
            .finish_non_exhaustive()
    }
}
