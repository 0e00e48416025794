//! A connection of our own, run by a task of its own: whoever waits for an answer may go away without breaking it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::backend::{HolderId, Sent};
use sqlx::mysql::MySqlRow;
use sqlx::{Decode, MySql, Row, Type};
use tokio::runtime::{self, Handle};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::config::MySqlConfig;
use crate::error::SqlError;
use crate::sql::seconds_up;

use self::worker::Worker;

mod connection;
mod held;
mod worker;

pub(crate) use self::held::Held;

/// A handle to a connection. When the last one goes, the connection is closed, and with it what it holds.
pub(crate) struct Session {
    identity: Identity,
    commands: mpsc::UnboundedSender<Command>,
    task: AbortHandle,
    runtime: runtime::Id,
    seat: Arc<Seat>,
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
    pub(crate) sent: Sent,
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

type Reply = oneshot::Sender<Result<Answer, SqlError>>;

enum Command {
    /// Runs statements in one round trip. While the connection is idle after them, the server keeps it for `idle`
    /// seconds, where given.
    Run {
        sql: String,
        idle: Option<u64>,
        reply: Reply,
    },
    /// From now on the connection carries a hold.
    Hold(Held),
    /// Prolongs this holder's hold to at least `ttl` from now, by statements of its own besides.
    Keep {
        holder: HolderId,
        ttl: Duration,
        sql: String,
        reply: Reply,
    },
    /// Runs the statements that end this holder's hold.
    Release {
        holder: HolderId,
        sql: String,
        reply: Reply,
    },
    /// There is nothing to do for the time being: keep the connection open.
    Rest,
}

/// A permit to have a connection in use; given back when the connection ends, even while somebody keeps its handle.
#[derive(Debug, Default)]
pub(crate) struct Seat(Mutex<Option<OwnedSemaphorePermit>>);

impl Session {
    /// Connects, within `limit`.
    pub(crate) async fn open(config: &MySqlConfig, commits: Commits, limit: Duration) -> Result<Arc<Self>, SqlError> {
        let runtime = Handle::try_current().map_err(|_| SqlError::NoRuntime)?;
        let seat = Arc::<Seat>::default();
        let (commands, receiver) = mpsc::unbounded_channel();
        let (ready, connected) = oneshot::channel();
        let (options, task_seat) = (config.options().clone(), seat.clone());
        let identity = Identity::random();
        // Also a panic of the driver's on garbage ends here, and not in the caller.
        let task = runtime.spawn(async move {
            match connection::connect(&options, commits, identity).await {
                Ok(connected) => {
                    if ready.send(Ok(())).is_ok() {
                        Worker::new(connected, receiver, task_seat).run().await;
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        let task = AbortOnDrop(Some(task.abort_handle()));
        match timeout(limit, connected).await {
            Err(_) => return Err(SqlError::TimedOut(limit)),
            Ok(Err(_panicked)) => return Err(sqlx::Error::Protocol("the driver cannot read it".into()).into()),
            Ok(Ok(connected)) => connected?,
        }
        Ok(Arc::new(Self {
            identity,
            commands,
            task: task.keep(),
            runtime: runtime.id(),
            seat,
        }))
    }

    /// Runs statements in one round trip; see [`Command::Run`]. An outcome that is not known within `limit` stays
    /// unknown: the connection is ended.
    ///
    /// # Cancel safety
    /// When dropped, the statements run on; nobody may use the session any more unless they are idempotent.
    pub(crate) async fn run(&self, sql: String, idle: Option<Duration>, limit: Duration) -> Result<Answer, SqlError> {
        let idle = idle.map(seconds_up);
        let answer = self.ask(|reply| Command::Run { sql, idle, reply }, limit).await;
        if let Err(SqlError::TimedOut(_)) = answer {
            self.abort();
        }
        answer
    }

    /// Prolongs the hold, running these statements in the same round trip. An unanswered one leaves the connection as
    /// it is: the server may yet answer.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn keep(
        &self,
        holder: HolderId,
        ttl: Duration,
        sql: String,
        limit: Duration,
    ) -> Result<Answer, SqlError> {
        self.ask(
            |reply| Command::Keep {
                holder,
                ttl,
                sql,
                reply,
            },
            limit,
        )
        .await
    }

    /// Ends the hold with these statements. An outcome that is not known within `limit` stays unknown: the connection
    /// is ended.
    ///
    /// # Cancel safety
    /// When dropped, the release goes on.
    pub(crate) async fn release(&self, holder: HolderId, sql: String, limit: Duration) -> Result<Answer, SqlError> {
        let answer = self.ask(|reply| Command::Release { holder, sql, reply }, limit).await;
        match answer {
            Ok(_) | Err(SqlError::NotHeld | SqlError::Gone) => {}
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
    pub(crate) fn rest(&self) -> Option<OwnedSemaphorePermit> {
        let permit = self.seat.lock().take();
        drop(self.commands.send(Command::Rest));
        permit
    }

    /// Counts this connection as in use.
    pub(crate) fn take_seat(&self, permit: OwnedSemaphorePermit) {
        *self.seat.lock() = Some(permit);
        // The task may have ended just before, and would not give it back.
        if self.has_ended() {
            self.seat.leave();
        }
    }

    /// Ends the connection without a word, whatever is under way on it. The server may need to be told otherwise.
    pub(crate) fn abort(&self) {
        self.task.abort();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.commands.is_closed()
    }

    /// Whether its task runs where the caller does: another runtime may live and yet not be driven.
    pub(crate) fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|runtime| runtime.id() == self.runtime)
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    async fn ask(&self, command: impl FnOnce(Reply) -> Command, limit: Duration) -> Result<Answer, SqlError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).map_err(|_| SqlError::Gone)?;
        match timeout(limit, answer).await {
            Err(_) => Err(SqlError::TimedOut(limit)),
            Ok(Err(_ended)) => Err(SqlError::Ended),
            Ok(Ok(answer)) => answer,
        }
    }
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

impl Seat {
    fn leave(&self) {
        self.lock().take();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
