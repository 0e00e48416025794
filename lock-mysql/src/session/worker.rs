//! The task that a connection runs in.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{HolderId, Sent};
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::connection::{SPARE_AT_SERVER, execute};
use super::{Answer, Command, Held, Reply, Seat};
use crate::error::SqlError;
use crate::sql::seconds_up;

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
    phase: Phase,
    /// The session's `wait_timeout`, where it is known.
    idle: Option<u64>,
    _seat: Leaving,
}

/// Gives the permit back when the task ends, however it does.
struct Leaving(Arc<Seat>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}

enum Phase {
    /// Somebody uses it.
    Working,
    /// Nobody does, since then.
    Resting { since: Instant, told: bool },
    /// It carries a hold.
    Holding { held: Held, ping: Instant },
}

impl Worker {
    pub(super) fn new(
        connection: MySqlConnection,
        commands: mpsc::UnboundedReceiver<Command>,
        seat: Arc<Seat>,
    ) -> Self {
        Self {
            connection,
            commands,
            phase: Phase::Working,
            idle: None,
            _seat: Leaving(seat),
        }
    }

    /// Serves until nobody has a handle any more, the hold's time is over, or the connection breaks.
    pub(super) async fn run(mut self) {
        loop {
            let wake = self.phase.wake();
            let command = tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    None => return self.close().await,
                    command => command,
                },
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => None,
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
            Command::Run { sql, idle, reply } => {
                self.phase = Phase::Working;
                self.answer(sql, idle, reply).await
            }
            Command::Hold(held) => {
                self.phase = Phase::Holding {
                    held,
                    ping: Instant::now() + PING,
                };
                Continue(())
            }
            Command::Keep {
                holder,
                ttl,
                sql,
                reply,
            } => {
                let now = Instant::now();
                let Some(held) = self.phase.hold_of(holder) else {
                    drop(reply.send(Err(SqlError::NotHeld)));
                    return Continue(());
                };
                held.prolong(now, ttl);
                let seconds = held.term().seconds(now);
                self.idle = None;
                self.answer(sql, Some(seconds), reply).await
            }
            Command::Release { holder, sql, reply } => {
                if self.phase.hold_of(holder).is_none() {
                    drop(reply.send(Err(SqlError::NotHeld)));
                    return Continue(());
                }
                let answer = self.ask(sql, None).await;
                let whole = is_whole(&answer);
                match std::mem::replace(&mut self.phase, Phase::Working) {
                    Phase::Holding { held, .. } if answer.is_ok() => held.let_go(),
                    // Not released: dropped, and so lost.
                    _ => {}
                }
                drop(reply.send(answer));
                whole
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

    /// It is time for what the phase wants.
    async fn wake(&mut self) -> ControlFlow<Ending> {
        let now = Instant::now();
        let idle = match &mut self.phase {
            Phase::Working => return Continue(()),
            Phase::Resting { since, .. } if *since + SPARE <= now => return Break(Ending::Over),
            Phase::Resting { told, .. } => {
                *told = true;
                seconds_up(SPARE_AT_SERVER)
            }
            Phase::Holding { held, .. } if held.term().end() <= now => return Break(Ending::Over),
            Phase::Holding { held, .. } => held.term().seconds(now),
        };
        self.idle = None;
        is_whole(&self.ask(String::new(), Some(idle)).await)
    }

    /// Asks and replies. A hold on a connection that broke is lost before anybody hears of it.
    async fn answer(&mut self, sql: String, idle: Option<u64>, reply: Reply) -> ControlFlow<Ending> {
        let answer = self.ask(sql, idle).await;
        let whole = is_whole(&answer);
        if whole.is_break() {
            self.phase = Phase::Working;
        }
        drop(reply.send(answer));
        whole
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
        let (sent, at) = (Sent::now(), Instant::now());
        let end = self.phase.end();
        let executed = execute(&mut self.connection, sql);
        let mut done = match end {
            Some(end) => timeout_at(end, executed).await.map_err(|_| SqlError::Ended)??,
            None => executed.await?,
        };
        if prefix.is_some() {
            done.remove(0);
            self.idle = prefix;
        }
        if let Phase::Holding { ping, .. } = &mut self.phase {
            *ping = Instant::now() + PING;
        }
        Ok(Answer { sent, at, done })
    }

    /// Takes leave, so that the server need not find out; with the connection ends whatever it holds.
    async fn close(self) {
        let Self {
            connection,
            commands,
            phase,
            _seat,
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

fn is_whole(answer: &Result<Answer, SqlError>) -> ControlFlow<Ending> {
    match answer {
        Err(error) if !error.leaves_connection_whole() => Break(Ending::Broken),
        _ => Continue(()),
    }
}

impl Phase {
    /// When there is something to do without being asked.
    fn wake(&self) -> Option<Instant> {
        match self {
            Self::Working => None,
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
            Self::Working | Self::Resting { .. } => None,
        }
    }
}
