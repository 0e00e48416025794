//! One connection to the server: requests, their answers, and its end.
//!
//! The driver matches answers by order and reads on if nobody waits for one. So a request may be dropped at any point, and many go
//! out without waiting for each other, but [behind a pooler of transactions](in_turn).

use std::fmt;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};
use lock_core::backend::SentAt;
use lock_kit::runtime::RuntimeCheck;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, SimpleQueryMessage};

pub(crate) use self::dial::{Dialer, SetUp};
pub(crate) use self::supervisor::Supervisor;

use self::in_turn::InTurn;
use self::prepared::Prepared;
use self::state::{EndOnDrop, State, UnansweredRequest};
use crate::error::SqlError;

mod attempts;
mod dial;
mod in_turn;
mod prepared;
#[cfg(test)]
pub(crate) mod scripted;
mod state;
mod supervisor;
mod tls;

/// A statement with parameters.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) types: Vec<Type>,
}

/// The parameters of a statement.
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The rows of a text of statements, as text: of all of its statements.
pub(crate) type TextRows = Vec<Vec<Option<String>>>;

/// What a row tells that begins with this word.
pub(crate) fn told<'a>(rows: &'a TextRows, word: &str) -> Option<&'a [Option<String>]> {
    let is_told = |row: &&Vec<Option<String>>| row.first().and_then(Option::as_deref) == Some(word);
    rows.iter().find(is_told)?.get(1..)
}

/// Takes the payload of each notification.
pub(crate) type OnCall = Box<dyn Fn(&str) + Send + Sync>;

/// Learns of the end of a connection.
pub(crate) type OnEnd = Box<dyn FnOnce() + Send>;

pub(crate) struct Connection {
    client: Arc<Client>,
    /// Behind a pooler that lends its connections for a transaction.
    in_turn: Option<InTurn>,
    state: Arc<State>,
    task: AbortHandle,
    /// What one round trip took when it was made.
    round_trip: Duration,
    /// Whether statements are prepared: not where a pooler may give each transaction another connection.
    prepares: AtomicBool,
    prepared: Mutex<Prepared<tokio_postgres::Statement>>,
    was_used: AtomicBool,
    /// What tells it from all other connections of this process.
    pub(crate) number: u64,
    /// What this connection alone was given: 32 hexadecimal digits.
    pub(crate) mark: String,
    pub(crate) answer_to_set_up: TextRows,
    /// When the text that set it up was sent.
    pub(crate) sent: SentAt,
    /// The one that its task runs on.
    runtime: Handle,
}

impl Connection {
    /// One that was just made. If it `takes_turns`, a pooler is in between that lends its connections for a transaction.
    fn new((client, state, task): (Client, Arc<State>, AbortHandle), takes_turns: bool, mark: String) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let client = Arc::new(client);
        Self {
            in_turn: takes_turns.then(|| InTurn::spawn(client.clone(), state.clone())),
            client,
            state,
            task,
            round_trip: Duration::ZERO,
            prepares: AtomicBool::new(!takes_turns),
            prepared: Mutex::default(),
            was_used: AtomicBool::new(false),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            mark,
            answer_to_set_up: TextRows::new(),
            sent: SentAt::now(),
            runtime: Handle::current(),
        }
    }

    /// Spawns the task of a connection on this runtime.
    fn spawn<S, T>(
        client: Client,
        mut driver: tokio_postgres::Connection<S, T>,
        on_call: OnCall,
    ) -> (Client, Arc<State>, AbortHandle)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let state = Arc::new(State {
            check: RuntimeCheck::new(),
            ended: AtomicBool::new(false),
            reason: Mutex::default(),
            unanswered: Mutex::default(),
            on_end: Mutex::default(),
        });
        let end = EndOnDrop(state.clone());
        let task = tokio::spawn(async move {
            let end = end;
            let run = async {
                while let Some(message) = poll_fn(|context| driver.poll_message(context)).await {
                    match message {
                        Ok(AsyncMessage::Notification(call)) => on_call(call.payload()),
                        Ok(_) => {}
                        Err(error) => {
                            *end.0.reason.lock() = Some(Arc::new(error));
                            break;
                        }
                    }
                }
            };
            // Its panic is the end of the connection.
            drop(end.0.check.watch(lock_kit::panics::catch(run)).await);
        });
        (client, state, task.abort_handle())
    }

    /// Spawns a task on the runtime on which the connection's own task runs.
    pub(crate) fn spawn_beside(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Has this called when the connection has ended, or at once if it has.
    pub(crate) fn on_end(&self, on_end: OnEnd) {
        *self.state.on_end.lock() = Some(on_end);
        if self.has_ended() {
            self.state.end();
        }
    }

    /// Why it has ended.
    pub(crate) fn end_error(&self) -> SqlError {
        SqlError::Disconnected(self.state.reason.lock().clone())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.ended.load(Ordering::SeqCst) || self.client.is_closed()
    }

    /// Whether it served a request before: its server may have closed it since.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    /// Whether a request has had no answer for so long that the connection may be dead.
    pub(crate) fn is_silent(&self) -> bool {
        const SILENT_AFTER: Duration = Duration::from_millis(1500);
        let oldest = self.state.unanswered.lock().since.values().next().copied();
        oldest.is_some_and(|oldest| oldest.elapsed() > SILENT_AFTER.max(self.round_trip * 4))
    }

    /// Whether no request is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let unanswered = self.state.unanswered.lock();
        unanswered.since.is_empty() && unanswered.queued == 0
    }

    /// Whether it can be used here: its runtime is driven.
    pub(crate) async fn is_driven(&self) -> bool {
        self.state.check.is_driven().await
    }

    pub(crate) fn is_here(&self) -> bool {
        self.state.check.is_here()
    }

    /// Ends it. Requests under way have an unknown outcome.
    pub(crate) fn abort(&self) {
        self.state.end();
        self.task.abort();
    }

    /// Runs a statement in one round trip, in a transaction of its own. The first poll sends it. Without a `limit` it waits for
    /// as long as the caller does; with one, the connection ends when that is over. Where requests [take turns](in_turn), the limit counts
    /// from the turn on, and a request whose turn does not come within two limits is not sent.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the statement is then executed or not.
    pub(crate) async fn query(
        self: &Arc<Self>,
        statement: &Statement,
        parameters: Parameters<'_>,
        limit: Option<Duration>,
    ) -> Result<Vec<Row>, SqlError> {
        if let Some(in_turn) = &self.in_turn {
            let (begin, begun) = oneshot::channel();
            return self
                .answer_in_turn(in_turn.query(statement, parameters, begin), begun, limit)
                .await;
        }
        let key = std::ptr::from_ref(statement).addr();
        let prepared = self.prepared.lock().get(key);
        let Some(prepared) = prepared else {
            let typed: Vec<_> = parameters
                .iter()
                .copied()
                .zip(statement.types.iter().cloned())
                .collect();
            let asked = self.client.query_typed(&statement.sql, &typed);
            let rows = self.answer(asked.map_err(SqlError::from), limit).await?;
            self.prepare_in_background(statement, key);
            return Ok(rows);
        };
        let asked = self.client.query(&prepared, parameters);
        let rows = self.answer(asked.map_err(SqlError::from), limit).await;
        if rows.as_ref().is_err_and(SqlError::is_unprepared) {
            // Behind a pooler that was not declared. The statement was refused, so the caller may repeat it.
            self.prepares.store(false, Ordering::Relaxed);
            self.prepared.lock().clear();
        }
        rows
    }

    /// Runs a text of statements in one round trip and one transaction.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub(crate) async fn run(&self, sql: &str, limit: Option<Duration>) -> Result<TextRows, SqlError> {
        let messages = match &self.in_turn {
            Some(in_turn) => {
                let (begin, begun) = oneshot::channel();
                self.answer_in_turn(in_turn.run(sql, begin), begun, limit).await?
            }
            None => {
                let asked = self.client.simple_query(sql);
                self.answer(asked.map_err(SqlError::from), limit).await?
            }
        };
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|column| row.get(column).map(str::to_owned))
                    .collect(),
            ),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Sends a text of statements whose answer nobody needs.
    pub(crate) fn send(&self, sql: &str) {
        if self.has_ended() {
            return;
        }
        match &self.in_turn {
            Some(in_turn) => in_turn.send(sql),
            // The first poll sends it, and the driver reads the answer.
            None => drop(self.client.simple_query(sql).now_or_never()),
        }
    }

    async fn answer<T>(
        &self,
        request: impl Future<Output = Result<T, SqlError>>,
        limit: Option<Duration>,
    ) -> Result<T, SqlError> {
        if self.has_ended() {
            return Err(SqlError::NotConnected);
        }
        let _unanswered = UnansweredRequest::begin(&self.state);
        let too_late = async {
            match limit {
                Some(limit) => sleep(limit).await,
                None => pending().await,
            }
            SqlError::TimedOut(limit.unwrap_or_default())
        };
        self.answer_unless(request, too_late).await
    }

    /// The same for a request that says by `begun` that it is sent.
    async fn answer_in_turn<T>(
        &self,
        request: impl Future<Output = Result<T, SqlError>>,
        mut begun: oneshot::Receiver<()>,
        limit: Option<Duration>,
    ) -> Result<T, SqlError> {
        if self.has_ended() {
            return Err(SqlError::NotConnected);
        }
        let too_late = async {
            let Some(limit) = limit else { pending().await };
            // If an earlier one with this limit has no answer, the connection ends before.
            let turn_within = limit * 2;
            if timeout(turn_within, &mut begun).await.is_err() {
                begun.close();
                if begun.try_recv().is_err() {
                    return SqlError::NotSent(turn_within);
                }
            }
            sleep(limit).await;
            SqlError::TimedOut(limit)
        };
        self.answer_unless(request, too_late).await
    }

    async fn answer_unless<T>(
        &self,
        request: impl Future<Output = Result<T, SqlError>>,
        too_late: impl Future<Output = SqlError>,
    ) -> Result<T, SqlError> {
        let answer = tokio::select! {
            biased;
            answer = request => answer,
            () = self.state.check.undriven() => Err(SqlError::RuntimeNotDriven),
            error = too_late => {
                if matches!(error, SqlError::TimedOut(_)) {
                    self.abort();
                }
                Err(error)
            }
        };
        self.was_used.store(true, Ordering::Relaxed);
        if answer.as_ref().is_err_and(SqlError::is_read_only) {
            // It was the primary. The next one may lead to the server that is.
            self.abort();
        }
        match answer {
            Err(SqlError::Disconnected(None)) => Err(self.end_error()),
            answer => answer,
        }
    }

    /// From the second time on, the server need not read the text of the statement.
    fn prepare_in_background(self: &Arc<Self>, statement: &Statement, key: usize) {
        if !self.prepares.load(Ordering::Relaxed) || !self.prepared.lock().begin(key) {
            return;
        }
        let (this, sql, types) = (self.clone(), statement.sql.clone(), statement.types.clone());
        self.runtime.spawn(async move {
            let prepared = this.client.prepare_typed(&sql, &types).await;
            this.prepared.lock().end(key, prepared.ok());
        });
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("has_ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}
