//! The task that a connection runs in.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{HolderId, SentAt};
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::driver::{SPARE_AT_SERVER, execute};
use super::last_answer::LastAnswer;
use super::permits::TakenPermit;
use super::phase::Held;
use super::session::{Answer, Command, Keep, Reply};
use crate::error::SqlError;
use crate::protocol::seconds_up;

/// How often a connection that carries a hold looks whether the server is still there. The driver does not notice by
/// itself that an idle connection was closed.
const PING: Duration = Duration::from_millis(500);
/// An unused connection is told to stay after this; before, it may be used again on the terms that it has.
const REST: Duration = Duration::from_millis(400);
/// How long an unused connection is kept.
const SPARE: Duration = Duration::from_secs(60);
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) struct Worker {
    connection: MySqlConnection,
    commands: mpsc::UnboundedReceiver<Command>,
    /// A command that was received and is to be served next.
    next: Option<Command>,
    phase: Phase,
    /// The session's `wait_timeout`, where it is known.
    idle: Option<u64>,
    last_answer: Arc<LastAnswer>,
    _permit: Leaving,
}

/// Gives the permit back when the task ends, however it does.
struct Leaving(Arc<TakenPermit>);

impl Drop for Leaving {
    fn drop(&mut self) {
        drop(self.0.leave());
    }
}

enum Phase {
    /// Somebody uses it.
    Working,
    /// Nobody does, since then.
    Resting { since: Instant, told: bool },
    /// It carries a hold.
    Holding { held: Held, ping: Instant },
    /// It carried this holder's hold until that was released, and nobody has used it since.
    Released(HolderId),
}

impl Worker {
    pub(super) fn new(
        connection: MySqlConnection,
        commands: mpsc::UnboundedReceiver<Command>,
        permit: Arc<TakenPermit>,
        last_answer: Arc<LastAnswer>,
    ) -> Self {
        Self {
            connection,
            commands,
            next: None,
            phase: Phase::Working,
            idle: None,
            last_answer,
            _permit: Leaving(permit),
        }
    }

    /// Serves until nobody has a handle any more, the hold's time is over, or the connection breaks.
    pub(super) async fn run(mut self) {
        loop {
            let wake = self.phase.wake();
            let command = match self.next.take() {
                Some(command) => Some(command),
                None => tokio::select! {
                    biased;
                    command = self.commands.recv() => match command {
                        None => return self.close().await,
                        command => command,
                    },
                    () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => None,
                },
            };
            let goes_on = match command {
                Some(command) => self.serve(command).await,
                None => self.wake().await,
            };
            match goes_on {
                Continue(()) => {}
                Break(Ending::Broken) => return,
                Break(Ending::Over) => return self.close().await,
            }
        }
    }

    async fn serve(&mut self, command: Command) -> ControlFlow<Ending> {
        match command {
            // Nobody waits for it any more, and nobody would know what it did.
            Command::Run { reply, .. } if reply.is_closed() => Continue(()),
            Command::Run { sql, idle, reply } => {
                self.phase = Phase::Working;
                let answer = self.ask(sql, idle).await;
                self.reply(answer, reply)
            }
            Command::Ping(reply) => {
                let replies = self.gather(reply, |command| match command {
                    Command::Ping(reply) => Ok(reply),
                    other => Err(other),
                });
                self.ping(replies).await
            }
            Command::Hold(held) => {
                self.phase = Phase::Holding {
                    held,
                    ping: Instant::now() + PING,
                };
                Continue(())
            }
            Command::Keep(keep) => {
                let keeps = self.gather(keep, |command| match command {
                    Command::Keep(keep) => Ok(keep),
                    other => Err(other),
                });
                self.keep(keeps).await
            }
            Command::Release {
                holder,
                sql,
                begun,
                reply,
            } => {
                // Nobody listens any more where it fails.
                let _ = begun.send(());
                self.release(holder, sql, reply).await
            }
            Command::Rest => {
                self.phase = Phase::Resting {
                    since: Instant::now(),
                    told: false,
                };
                Continue(())
            }
        }
    }

    /// Adds to `first` all commands like it that follow without a gap: one statement serves them all.
    fn gather<T>(&mut self, first: T, pick: impl Fn(Command) -> Result<T, Command>) -> Vec<T> {
        let mut gathered = vec![first];
        while self.next.is_none()
            && let Ok(command) = self.commands.try_recv()
        {
            match pick(command) {
                Ok(another) => gathered.push(another),
                Err(other) => self.next = Some(other),
            }
        }
        gathered
    }

    /// One ping for all who ask for it. If it fails, the first learns why, and the others that the connection has
    /// ended.
    async fn ping(&mut self, replies: Vec<Reply<()>>) -> ControlFlow<Ending> {
        let answer = self.ask("DO 0".to_owned(), None).await;
        let goes_on = self.go_on_after(&answer);
        let mut replies = replies.into_iter();
        match answer {
            Ok(_) => replies.for_each(|reply| drop(reply.send(Ok(())))),
            Err(error) => drop(replies.next().map(|reply| reply.send(Err(error)))),
        }
        goes_on
    }

    /// Prolongs the hold for all who ask for it, by the longest ttl, from the moment of sending on.
    async fn keep(&mut self, mut keeps: Vec<Keep>) -> ControlFlow<Ending> {
        keeps.retain(|keep| !keep.reply.is_closed());
        let (ours, others): (Vec<_>, Vec<_>) = keeps
            .into_iter()
            .partition(|keep| self.phase.hold_of(keep.holder).is_some());
        for keep in others {
            drop(keep.reply.send(Ok(None)));
        }
        let Some(longest) = ours.iter().max_by_key(|keep| keep.ttl) else {
            return Continue(());
        };
        let Some(held) = self.phase.hold_of(longest.holder) else {
            return Continue(());
        };
        let now = Instant::now();
        held.prolong(now, longest.ttl);
        let seconds = held.term().seconds(now);
        self.idle = None;
        let answer = self.ask(longest.sql.clone(), Some(seconds)).await;
        let goes_on = self.go_on_after(&answer);
        let kept = match answer {
            Ok(answer) => Ok(Some(answer.sent)),
            // The connection was the hold.
            Err(error) if error.is_end() => Ok(None),
            Err(error) => Err(error.into_error()),
        };
        for keep in ours {
            drop(keep.reply.send(kept.clone()));
        }
        goes_on
    }

    async fn release(&mut self, holder: HolderId, sql: String, reply: Reply<()>) -> ControlFlow<Ending> {
        if matches!(self.phase, Phase::Released(released) if released == holder) {
            drop(reply.send(Ok(())));
            return Continue(());
        }
        if self.phase.hold_of(holder).is_none() {
            drop(reply.send(Err(SqlError::NotHeld)));
            return Continue(());
        }
        let mut answer = self.ask(sql, None).await;
        if answer.as_ref().is_err_and(SqlError::leaves_connection_whole) {
            // Refused, as on a server that became read-only: the transaction is still open, and the hold with it. The
            // row does not get the token, but the server's clock has passed it.
            answer = self.ask("ROLLBACK".to_owned(), None).await;
        }
        if answer.is_ok()
            && let Phase::Holding { held, .. } = std::mem::replace(&mut self.phase, Phase::Released(holder))
        {
            held.let_go();
        }
        let goes_on = self.go_on_after(&answer);
        drop(reply.send(answer.map(drop)));
        goes_on
    }

    /// It is time for what the phase wants.
    async fn wake(&mut self) -> ControlFlow<Ending> {
        let now = Instant::now();
        let idle = match &mut self.phase {
            Phase::Working | Phase::Released(_) => return Continue(()),
            Phase::Resting { since, .. } if *since + SPARE <= now => return Break(Ending::Over),
            Phase::Resting { told, .. } => {
                *told = true;
                seconds_up(SPARE_AT_SERVER)
            }
            Phase::Holding { held, .. } if held.term().end() <= now => return Break(Ending::Over),
            Phase::Holding { held, .. } => held.term().seconds(now),
        };
        self.idle = None;
        let answer = self.ask(String::new(), Some(idle)).await;
        if let Ok(answer) = &answer {
            self.renewed_by_ping(answer.sent);
        }
        self.go_on_after(&answer)
    }

    /// A renewal that had to wait behind a ping on a slow line may be answered too late. So the ping counts as one.
    fn renewed_by_ping(&mut self, sent: SentAt) {
        self.next = self.next.take().or_else(|| self.commands.try_recv().ok());
        if let Some(Command::Keep(keep)) = &self.next
            && !keep.reply.is_closed()
            && let Some(held) = self.phase.hold_of(keep.holder)
        {
            held.renewed_by_ping(sent);
        }
    }

    /// Replies. A hold on a connection that broke is lost before anybody hears of it.
    fn reply<T>(&mut self, answer: Result<T, SqlError>, reply: Reply<T>) -> ControlFlow<Ending> {
        let goes_on = self.go_on_after(&answer);
        drop(reply.send(answer));
        goes_on
    }

    /// Whether the connection still serves. If it does not, what it carries has ended.
    fn go_on_after<T>(&mut self, answer: &Result<T, SqlError>) -> ControlFlow<Ending> {
        match answer {
            Err(error) if !error.leaves_connection_whole() => {
                self.phase = Phase::Working;
                Break(Ending::Broken)
            }
            _ => Continue(()),
        }
    }

    /// One round trip, which also sets `wait_timeout` where it is another. On a connection that carries a hold it ends
    /// with the hold's time.
    async fn ask(&mut self, mut sql: String, idle: Option<u64>) -> Result<Answer, SqlError> {
        let prefix = idle.filter(|_| idle != self.idle);
        if let Some(seconds) = prefix {
            // Not known until it is answered.
            self.idle = None;
            sql = format!("SET SESSION wait_timeout={seconds};{sql}");
        }
        let sql = sql.trim_end_matches(';').to_owned();
        let (sent, at) = (SentAt::now(), Instant::now());
        let end = self.phase.end();
        let executed = execute(&mut self.connection, sql);
        let executed = match end {
            Some(end) => timeout_at(end, executed).await.unwrap_or(Err(SqlError::Ended)),
            None => executed.await,
        };
        if let Phase::Holding { ping, .. } = &mut self.phase {
            *ping = Instant::now() + PING;
        }
        if executed.as_ref().err().is_none_or(|error| error.code().is_some()) {
            self.last_answer.note();
        }
        let mut done = executed?;
        if prefix.is_some() {
            done.remove(0);
            self.idle = prefix;
        }
        Ok(Answer { sent, at, done })
    }

    /// Takes leave, so that the server need not find out; with the connection ends whatever it holds.
    async fn close(self) {
        let Self {
            connection,
            commands,
            phase,
            _permit,
            ..
        } = self;
        // Nobody sends any more, and the hold is over before anybody else can have it.
        drop((commands, phase));
        drop(timeout(FAREWELL, connection.close()).await);
    }
}

/// Why a connection ends.
enum Ending {
    /// It broke.
    Broken,
    /// It is not needed any more.
    Over,
}

impl Phase {
    /// When there is something to do without being asked.
    fn wake(&self) -> Option<Instant> {
        match self {
            Self::Working | Self::Released(_) => None,
            Self::Resting { since, told: false } => Some(*since + REST),
            Self::Resting { since, told: true } => Some(*since + SPARE),
            Self::Holding { held, ping } => Some(held.term().end().min(*ping)),
        }
    }

    /// The hold that the connection carries, if it is this holder's: the connection may have gone to another since.
    fn hold_of(&mut self, holder: HolderId) -> Option<&mut Held> {
        match self {
            Self::Holding { held, .. } if held.is_of(holder) => Some(held),
            _ => None,
        }
    }

    /// When whatever is under way is of no use any more.
    fn end(&self) -> Option<Instant> {
        match self {
            Self::Holding { held, .. } => Some(held.term().end()),
            Self::Working | Self::Resting { .. } | Self::Released(_) => None,
        }
    }
}
