//! A connection of our own, run by a task of its own: whoever waits for an answer may go away without breaking it.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Error;
use lock_core::backend::{HolderId, SentAt};
use sqlx::mysql::MySqlRow;
use sqlx::{Decode, MySql, Row, Type};
use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::last_answer::LastAnswer;
use super::permits::{Permit, TakenPermit};
use crate::config::MySqlConfig;
use crate::error::SqlError;
use crate::protocol::seconds_up;

use super::driver;
use super::liveness::Driven;
use super::phase::Held;
use super::worker::Worker;

/// How long a runtime that is driven may take to poll the task of a connection.
const UNDRIVEN: Duration = Duration::from_secs(1);

/// A handle to a connection. When the last one goes, the connection is closed, and with it what it holds.
pub(crate) struct Session {
    identity: Identity,
    commands: mpsc::UnboundedSender<Command>,
    task: AbortHandle,
    driven: Arc<Driven>,
    runtime: runtime::Id,
    permit: Arc<TakenPermit>,
}

/// By what a connection is found at the server: a named lock that only it has, and keeps to its end. Its number would
/// not do, as a restarted server counts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(HolderId);

impl Identity {
    fn random() -> Self {
        Self(HolderId::random())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'polylock:{}'", self.0)
    }
}

/// Whether every statement is a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commits {
    ByItself,
    WhenTold,
}

/// What the server answered to some statements.
pub(crate) struct Answer {
    /// Just before they were sent.
    pub(crate) sent: SentAt,
    /// The same for arithmetic.
    pub(crate) at: Instant,
    /// What each statement did.
    pub(crate) done: Vec<Done>,
}

/// What one statement did.
#[derive(Default)]
pub(crate) struct Done {
    /// The rows that it gave.
    pub(crate) rows: Vec<MySqlRow>,
    /// How many rows it matched, whether it changed them or not.
    pub(crate) matched: u64,
    /// What it said to be its `LAST_INSERT_ID`.
    pub(crate) id: u64,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, SqlError>>;

pub(super) enum Command {
    /// Runs statements in one round trip. While the connection is idle after them, the server keeps it for `idle`
    /// seconds, where given.
    Run {
        sql: String,
        idle: Option<u64>,
        reply: Reply<Answer>,
    },
    /// Asks the server whether it is there.
    Ping(Reply<()>),
    /// From now on the connection carries a hold.
    Hold(Held),
    /// Prolongs the hold.
    Keep(Keep),
    /// Runs the statements that end this holder's hold. Repeated, it does nothing.
    Release {
        holder: HolderId,
        sql: String,
        /// Told when what was under way before has been answered.
        begun: oneshot::Sender<()>,
        reply: Reply<()>,
    },
    /// There is nothing to do for the time being: keep the connection open.
    Rest,
}

/// Prolongs this holder's hold to at least `ttl` from now, by statements of its own besides.
pub(super) struct Keep {
    pub(super) holder: HolderId,
    pub(super) ttl: Duration,
    pub(super) sql: String,
    /// When the statements that did it were sent; `None` when the hold has ended.
    pub(super) reply: oneshot::Sender<Result<Option<SentAt>, Error>>,
}

impl Session {
    /// Connects, within `limit`.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn open(
        config: &MySqlConfig,
        commits: Commits,
        limit: Duration,
        last_answer: &Arc<LastAnswer>,
    ) -> Result<Arc<Self>, SqlError> {
        let runtime = Handle::try_current().map_err(|_| SqlError::NoRuntime)?;
        let permit = Arc::<TakenPermit>::default();
        let driven = Arc::<Driven>::default();
        let (commands, receiver) = mpsc::unbounded_channel();
        let (ready, connected) = oneshot::channel();
        let identity = Identity::random();
        let options = config.options().clone();
        let (task_permit, task_driven, last_answer) = (permit.clone(), driven.clone(), last_answer.clone());
        let serve = async move {
            match driver::connect(&options, commits, identity).await {
                Ok(connected) => {
                    if ready.send(Ok(())).is_ok() {
                        Worker::new(connected, receiver, task_permit, last_answer).run().await;
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        };
        let task = runtime.spawn(async move { task_driven.watch(serve).await });
        let task = AbortOnDrop(Some(task.abort_handle()));
        match timeout(limit, connected).await {
            Err(_) => return Err(SqlError::TimedOut(limit)),
            Ok(Err(_dropped)) => return Err(SqlError::ShuttingDown),
            Ok(Ok(connected)) => connected?,
        }
        Ok(Arc::new(Self {
            identity,
            commands,
            task: task.keep(),
            driven,
            runtime: runtime.id(),
            permit,
        }))
    }

    /// Runs statements in one round trip; see [`Command::Run`]. An outcome that is not known within `limit` stays
    /// unknown: the connection is ended.
    ///
    /// # Cancel safety
    /// When dropped, the statements run on; nobody may use the session any more unless they are idempotent.
    pub(crate) async fn run(&self, sql: String, idle: Option<Duration>, limit: Duration) -> Result<Answer, SqlError> {
        let idle = idle.map(seconds_up);
        let answer = self.ask(|reply| Command::Run { sql, idle, reply }, after(limit)).await;
        if answer.as_ref().is_err_and(SqlError::is_silence) {
            self.abort();
        }
        answer?
    }

    /// Waits until the server answers, in one round trip for all who ask at the same time. If it does not within
    /// `limit`, the connection is ended.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn ping(&self, limit: Duration) -> Result<(), SqlError> {
        let answer = self.ask(Command::Ping, after(limit)).await;
        if answer.as_ref().is_err_and(SqlError::is_silence) {
            self.abort();
        }
        answer?
    }

    /// Prolongs the hold, running these statements in the same round trip; returns when they were sent, or `None` when
    /// the hold has ended. An unanswered one leaves the connection as it is: the server may yet answer. Without a
    /// `limit` it waits until the hold's time is over.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn keep(
        &self,
        holder: HolderId,
        ttl: Duration,
        sql: String,
        limit: Option<Duration>,
    ) -> Result<Option<SentAt>, Error> {
        let command = |reply| {
            Command::Keep(Keep {
                holder,
                ttl,
                sql,
                reply,
            })
        };
        let limit = async {
            match limit {
                Some(limit) => after(limit).await,
                None => pending().await,
            }
        };
        match self.ask(command, limit).await {
            Ok(kept) => kept,
            // The connection is the hold.
            Err(error) if error.is_end() => Ok(None),
            Err(error) => Err(error.into_error()),
        }
    }

    /// Ends the hold with these statements. Once they are answered, a repetition is answered alike without asking the
    /// server. An outcome that is not known within `limit` stays unknown: the connection is ended. A renewal that is
    /// under way has the same time before that.
    ///
    /// # Cancel safety
    /// When dropped, the release goes on.
    pub(crate) async fn release(&self, holder: HolderId, sql: String, limit: Duration) -> Result<(), SqlError> {
        let (begun, has_begun) = oneshot::channel();
        let command = |reply| Command::Release {
            holder,
            sql,
            begun,
            reply,
        };
        let limit = async {
            match timeout(limit, has_begun).await {
                Ok(_) => after(limit).await,
                Err(_elapsed) => limit,
            }
        };
        let answer = self.ask(command, limit).await.and_then(|answer| answer);
        match answer {
            Ok(()) | Err(SqlError::NotHeld | SqlError::Gone) => {}
            Err(_) => self.abort(),
        }
        answer
    }

    /// From now on the connection carries this hold; if it has ended already, the hold is lost at once.
    pub(crate) fn hold(&self, held: Held) {
        // A command that nobody takes is dropped, and a `Held` that is dropped is lost.
        drop(self.commands.send(Command::Hold(held)));
    }

    /// Nothing is under way: the connection stays open for a while. Gives back the permit.
    pub(crate) fn rest(&self) -> Option<Permit> {
        let permit = self.permit.leave();
        drop(self.commands.send(Command::Rest));
        permit
    }

    /// Counts this connection as in use.
    pub(crate) fn take_permit(&self, permit: Permit) {
        self.permit.take(permit);
        // The task may have ended just before, and would not give it back.
        if self.has_ended() {
            self.leave_permit();
        }
    }

    /// Counts this connection as in use no longer.
    pub(crate) fn leave_permit(&self) {
        drop(self.permit.leave());
    }

    /// Ends the connection without a word, whatever is under way on it. The server may need to be told otherwise.
    pub(crate) fn abort(&self) {
        self.task.abort();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.commands.is_closed()
    }

    /// The runtime that its task runs on. Only there can it be relied on: another runtime may live and yet not be
    /// driven.
    pub(crate) fn runtime(&self) -> runtime::Id {
        self.runtime
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
        limit: impl Future<Output = Duration>,
    ) -> Result<T, SqlError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).map_err(|_| SqlError::Gone)?;
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| SqlError::Ended),
            () = self.undriven() => Err(SqlError::Undriven),
            limit = limit => Err(SqlError::TimedOut(limit)),
        }
    }

    /// Returns only if nobody drives the runtime that the connection runs on.
    async fn undriven(&self) {
        if Some(self.runtime) == here() || self.driven.is_polled(UNDRIVEN).await {
            pending().await
        }
    }
}

/// Waits for the time that a request has.
async fn after(limit: Duration) -> Duration {
    sleep(limit).await;
    limit
}

/// The runtime of the caller.
pub(crate) fn here() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

impl Answer {
    /// The first row that this statement gave, if any; they are counted from 0.
    pub(crate) fn row(&self, statement: usize) -> Option<&MySqlRow> {
        self.done.get(statement)?.rows.first()
    }
}

/// A column of a row; `what` names it for the error.
pub(crate) fn column<'r, T>(row: &'r MySqlRow, index: usize, what: &'static str) -> Result<T, SqlError>
where
    T: Decode<'r, MySql> + Type<MySql>,
{
    row.try_get(index).map_err(|_| SqlError::Shape(what))
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("identity", &self.identity)
            .field("ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}

/// Ends a task whose starter went away before it had a handle to give out.
struct AbortOnDrop(Option<AbortHandle>);

impl AbortOnDrop {
    fn keep(mut self) -> AbortHandle {
        self.0.take().expect("taken only here, and this takes self")
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
