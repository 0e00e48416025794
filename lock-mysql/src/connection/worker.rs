//! The task that a connection runs in.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::SentAt;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

pub(super) use self::command::{Command, RenewCommand, Reply};
pub(super) use self::gather::Gathered;
use super::driver::{EarlyResult, IDLE_LIMIT_AT_SERVER, execute_early};
use super::liveness::LastAnswer;
use super::monitor::HoldRegistry;
use super::permits::PermitSlot;
use super::phase::{IDLE_LIMIT, PING_INTERVAL, Phase};
use crate::error::SqlError;
use crate::protocol::{Answer, Identity, seconds_up};

mod command;
mod gather;
mod read_only;
mod release;

/// The longest time for a connection's goodbye to the server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Worker {
    connection: MySqlConnection,
    commands: mpsc::UnboundedReceiver<Command>,
    /// A command that was received and is to be served next.
    next: Option<Command>,
    phase: Phase,
    /// The session's `wait_timeout`, where it is known.
    wait_timeout: Option<u64>,
    /// True if it stays open while it is idle.
    keep_open: bool,
    identity: Identity,
    holds: Option<Arc<HoldRegistry>>,
    /// Notified when a connection that carries a hold is to ask the server whether it is there.
    check: Arc<Notify>,
    last_answer: Arc<LastAnswer>,
    /// The hold ends if the server is read-only for longer.
    max_read_only: Duration,
    _permit: ReturnPermit,
}

/// Gives the permit back when the task ends, however it does.
struct ReturnPermit(Arc<PermitSlot>);

impl Drop for ReturnPermit {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

impl Worker {
    pub(super) fn new(
        connection: MySqlConnection,
        identity: Identity,
        commands: mpsc::UnboundedReceiver<Command>,
        permit: Arc<PermitSlot>,
        last_answer: Arc<LastAnswer>,
        max_read_only: Duration,
    ) -> Self {
        Self {
            connection,
            commands,
            next: None,
            phase: Phase::InUse,
            wait_timeout: None,
            keep_open: false,
            identity,
            holds: None,
            check: Arc::default(),
            last_answer,
            max_read_only,
            _permit: ReturnPermit(permit),
        }
    }

    /// Serves until nobody has a handle any more, the hold's time is over, or the connection breaks.
    pub(super) async fn run(mut self) {
        loop {
            let wake = self.phase.wakes_at(self.max_read_only);
            let command = match self.next.take() {
                Some(command) => Some(command),
                None => tokio::select! {
                    biased;
                    command = self.commands.recv() => match command {
                        None => return self.close().await,
                        command => command,
                    },
                    () = self.check.notified(), if self.phase.is_holding() => None,
                    () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => None,
                },
            };
            let flow = match command {
                Some(command) => self.serve(command).await,
                None => self.on_wake().await,
            };
            match flow {
                Continue(()) => {}
                Break(Exit::Disconnected) => return,
                Break(Exit::Finished) => return self.close().await,
            }
        }
    }

    async fn serve(&mut self, command: Command) -> ControlFlow<Exit> {
        match command {
            // Nobody waits for the answer any more.
            Command::Run { reply, .. } if reply.is_closed() => Continue(()),
            Command::Run {
                sql,
                wait_timeout,
                early,
                reply,
            } => {
                self.phase = Phase::InUse;
                let answer = self.round_trip_with(sql, wait_timeout, early).await;
                self.reply(answer, reply)
            }
            Command::Gather(first) => {
                let gathered = self.batch(first, |command| match command {
                    Command::Gather(another) => Ok(another),
                    other => Err(other),
                });
                self.gather(gathered).await
            }
            Command::Ping(reply) => {
                let replies = self.batch(reply, |command| match command {
                    Command::Ping(reply) => Ok(reply),
                    other => Err(other),
                });
                self.ping(replies).await
            }
            Command::Carry(hold) => {
                let holds = self.holds.as_ref();
                self.phase = Phase::Holding {
                    hold,
                    ping: Instant::now() + PING_INTERVAL,
                    read_only: None,
                    _registered: holds.map(|holds| holds.add(self.identity, self.check.clone())),
                };
                Continue(())
            }
            Command::Renew(renewal) => {
                let renewals = self.batch(renewal, |command| match command {
                    Command::Renew(renewal) => Ok(renewal),
                    other => Err(other),
                });
                self.renew(renewals).await
            }
            Command::Release {
                holder,
                sql,
                begun,
                reply,
            } => {
                // It fails if nobody waits for the release any more.
                let _ = begun.send(());
                self.release(holder, sql, reply).await
            }
            Command::Idle => {
                self.phase = Phase::Idle {
                    since: Instant::now(),
                    // The `wait_timeout` of one that is kept open stays as it was set when it was made.
                    extended: self.keep_open,
                };
                Continue(())
            }
            Command::KeepOpen => {
                self.keep_open = true;
                Continue(())
            }
            Command::Monitor(holds) => {
                self.holds = Some(holds);
                Continue(())
            }
        }
    }

    /// Adds to `first` all commands like it that follow without a gap: one statement serves them all.
    fn batch<T>(&mut self, first: T, pick: impl Fn(Command) -> Result<T, Command>) -> Vec<T> {
        let mut batched = vec![first];
        while self.next.is_none()
            && let Ok(command) = self.commands.try_recv()
        {
            match pick(command) {
                Ok(another) => batched.push(another),
                Err(other) => self.next = Some(other),
            }
        }
        batched
    }

    /// One ping for all who ask for it. If it fails, the first learns why, and the others that the connection has
    /// ended.
    async fn ping(&mut self, replies: Vec<Reply<()>>) -> ControlFlow<Exit> {
        let answer = self.round_trip("DO 0".to_owned(), None).await;
        let flow = self.continue_after(&answer);
        let mut replies = replies.into_iter();
        match answer {
            Ok(_) => replies.for_each(|reply| drop(reply.send(Ok(())))),
            Err(error) => drop(replies.next().map(|reply| reply.send(Err(error)))),
        }
        flow
    }

    /// Renews the hold for all who ask for it, by the longest ttl, from the moment of sending on.
    async fn renew(&mut self, mut renewals: Vec<RenewCommand>) -> ControlFlow<Exit> {
        renewals.retain(|renewal| !renewal.reply.is_closed());
        let (ours, others): (Vec<_>, Vec<_>) = renewals
            .into_iter()
            .partition(|renewal| self.phase.hold_of(renewal.holder).is_some());
        for renewal in others {
            drop(renewal.reply.send(Ok(None)));
        }
        let Some(longest) = ours.iter().max_by_key(|renewal| renewal.ttl) else {
            return Continue(());
        };
        let Some(hold) = self.phase.hold_of(longest.holder) else {
            return Continue(());
        };
        let now = Instant::now();
        hold.renew(now, longest.ttl);
        let seconds = hold.wait_timeout(now);
        self.wait_timeout = None;
        let answer = self.round_trip(String::new(), Some(seconds)).await;
        let flow = self.continue_after(&answer);
        let renewed = match answer {
            Ok(answer) => Ok(Some(answer.sent)),
            // The connection was the hold, or its transaction.
            Err(error) if error.ends_connection() || error.may_end_transaction() => Ok(None),
            Err(error) => Err(error.into_lock_error()),
        };
        for renewal in ours {
            drop(renewal.reply.send(renewed.clone()));
        }
        flow
    }

    /// Does what the phase does unasked: a ping that keeps the connection, or its end.
    async fn on_wake(&mut self) -> ControlFlow<Exit> {
        let now = Instant::now();
        let seconds = match &mut self.phase {
            Phase::InUse | Phase::Released(_) => return Continue(()),
            Phase::Idle { since, .. } if *since + IDLE_LIMIT <= now => {
                if !self.keep_open {
                    return Break(Exit::Finished);
                }
                *since = now;
                seconds_up(IDLE_LIMIT_AT_SERVER)
            }
            Phase::Idle { extended, .. } => {
                *extended = true;
                seconds_up(IDLE_LIMIT_AT_SERVER)
            }
            Phase::Holding { hold, .. } if hold.expires_at() <= now => return Break(Exit::Finished),
            Phase::Holding { hold, .. } => hold.wait_timeout(now),
        };
        self.wait_timeout = None;
        let answer = self.round_trip(self.asks_of_hold(), Some(seconds)).await;
        if let Ok(answer) = &answer {
            if self.is_read_only_for_too_long(answer) {
                self.phase.lose_to_read_only();
                return Break(Exit::Finished);
            }
            self.count_ping_as_renewal(answer.sent);
        }
        self.continue_after(&answer)
    }

    /// A renewal that had to wait behind a ping on a slow line may be answered too late. So the ping counts as one.
    fn count_ping_as_renewal(&mut self, sent: SentAt) {
        self.next = self.next.take().or_else(|| self.commands.try_recv().ok());
        if let Some(Command::Renew(renewal)) = &self.next
            && !renewal.reply.is_closed()
            && let Some(hold) = self.phase.hold_of(renewal.holder)
        {
            hold.count_ping_as_renewal(sent);
        }
    }

    /// Replies. If the connection broke, its hold is lost before the reply is out.
    fn reply<T>(&mut self, answer: Result<T, SqlError>, reply: Reply<T>) -> ControlFlow<Exit> {
        let flow = self.continue_after(&answer);
        drop(reply.send(answer));
        flow
    }

    /// Decides whether the connection still serves. If it does not, all that it carries has ended.
    fn continue_after<T>(&mut self, answer: &Result<T, SqlError>) -> ControlFlow<Exit> {
        match answer {
            // With the transaction, the row's lock is gone.
            Err(error) if !error.is_refusal() || self.phase.is_holding() && error.may_end_transaction() => {
                self.phase.lose_because(error);
                self.phase = Phase::InUse;
                Break(Exit::Disconnected)
            }
            _ => Continue(()),
        }
    }

    /// One round trip, which also sets `wait_timeout` where it is another. On a connection that carries a hold it ends
    /// with the hold's time.
    async fn round_trip(&mut self, sql: String, wait_timeout: Option<u64>) -> Result<Answer, SqlError> {
        self.round_trip_with(sql, wait_timeout, None).await
    }

    async fn round_trip_with(
        &mut self,
        mut sql: String,
        wait_timeout: Option<u64>,
        mut early: Option<EarlyResult>,
    ) -> Result<Answer, SqlError> {
        let prefix = wait_timeout.filter(|_| wait_timeout != self.wait_timeout);
        if let Some(seconds) = prefix {
            // Not known until it is answered.
            self.wait_timeout = None;
            sql = format!("SET SESSION wait_timeout={seconds};{sql}");
            if let Some(early) = &mut early {
                early.statement += 1;
            }
        }
        let sql = sql.trim_end_matches(';').to_owned();
        let (sent, sent_instant) = (SentAt::now(), Instant::now());
        let deadline = self.phase.deadline();
        let executed = execute_early(&mut self.connection, sql, early);
        let executed = match deadline {
            Some(deadline) => timeout_at(deadline, executed)
                .await
                .unwrap_or(Err(SqlError::Disconnected)),
            None => executed.await,
        };
        if let Phase::Holding { ping, .. } = &mut self.phase {
            *ping = Instant::now() + PING_INTERVAL;
        }
        if executed.as_ref().err().is_none_or(|error| error.code().is_some()) {
            self.last_answer.note();
        }
        let mut results = executed?;
        if prefix.is_some() {
            results.remove(0);
            self.wait_timeout = prefix;
        }
        Ok(Answer {
            sent,
            sent_instant,
            results,
        })
    }

    /// Closes the connection with a goodbye, so that the server frees at once what it holds.
    async fn close(self) {
        let Self {
            connection,
            commands,
            phase,
            _permit,
            ..
        } = self;
        // Commands are refused from now on, and the hold is lost before another can begin.
        drop((commands, phase));
        drop(timeout(CLOSE_TIMEOUT, connection.close()).await);
    }
}

/// Why a connection ends.
enum Exit {
    /// It broke.
    Disconnected,
    /// It is not needed any more.
    Finished,
}
