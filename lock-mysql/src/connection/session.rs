//! A handle to a connection, which a task of its own runs: a caller that drops a request does not break the connection.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::backend::{HolderId, Lease, SentAt};
use lock_core::{Error, LostCause};
use lock_kit::runtime::RuntimeCheck;
use parking_lot::Mutex;
use sqlx::mysql::MySqlConnectOptions;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::driver::{self, EarlyResult};
use super::handshake::connect_for;
use super::liveness::LastAnswer;
use super::monitor::HoldRegistry;
use super::permits::{PermitSlot, PoolPermit};
use super::phase::{CarriedHold, LeaseSlot};
use super::worker::{Command, Gathered, RenewCommand, Worker};
use crate::error::SqlError;
use crate::protocol::{Answer, Autocommit, Identity, Job, JobDone, StatementResult, seconds_up};

/// The settings that all sessions of a backend have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionTerms {
    /// Variables that are set besides, each after a comma.
    pub(crate) settings: &'static str,
    /// The hold that a connection carries ends if the server is read-only for longer.
    pub(crate) max_read_only: Duration,
}

/// A handle to a connection. When the last one goes, the connection is closed, and with it what it holds.
pub(crate) struct Session {
    identity: Identity,
    commands: mpsc::UnboundedSender<Command>,
    task: AbortHandle,
    is_aborted: AtomicBool,
    /// Checks whether anybody drives the runtime of the task. Only callers on that runtime know it without asking.
    runtime: Arc<RuntimeCheck>,
    permit: Arc<PermitSlot>,
    /// The hold that it carries, or carried last.
    carried: Mutex<Option<(HolderId, LeaseSlot)>>,
    /// For how long it was being made.
    connected_in: Duration,
    /// The control connection whose server had this one when it was last asked.
    found_by: Mutex<Option<Identity>>,
}

impl Session {
    /// Connects within `limit`.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn open(
        options: MySqlConnectOptions,
        terms: SessionTerms,
        autocommit: Autocommit,
        limit: Duration,
        last_answer: &Arc<LastAnswer>,
    ) -> Result<Arc<Self>, SqlError> {
        let home = Handle::try_current().map_err(|_| SqlError::NoRuntime)?;
        let runtime = Arc::new(RuntimeCheck::new());
        let permit = Arc::<PermitSlot>::default();
        let (commands, receiver) = mpsc::unbounded_channel();
        let (mut ready, connected) = oneshot::channel();
        let identity = Identity::random();
        let (task_permit, task_check, last_answer) = (permit.clone(), runtime.clone(), last_answer.clone());
        let serve = async move {
            let connecting = driver::connect(&options, autocommit, terms.settings, identity);
            let Some(connected) = connect_for(&mut ready, connecting).await else {
                return;
            };
            match connected {
                Ok(connected) => {
                    if ready.send(Ok(())).is_ok() {
                        Worker::new(
                            connected,
                            identity,
                            receiver,
                            task_permit,
                            last_answer,
                            terms.max_read_only,
                        )
                        .run()
                        .await;
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        };
        let begun = Instant::now();
        let task = home.spawn(async move { task_check.watch(serve).await });
        let task = task.abort_handle();
        match timeout(limit, connected).await {
            Err(_) => return Err(SqlError::TimedOut(limit)),
            Ok(Err(_dropped)) => return Err(SqlError::RuntimeShutDown),
            Ok(Ok(connected)) => connected?,
        }
        Ok(Arc::new(Self {
            identity,
            commands,
            task,
            is_aborted: AtomicBool::new(false),
            runtime,
            permit,
            carried: Mutex::default(),
            connected_in: begun.elapsed(),
            found_by: Mutex::default(),
        }))
    }

    /// Runs statements in one round trip; see [`Command::Run`]. An outcome that is not known within `limit` stays
    /// unknown: the connection is ended.
    ///
    /// # Cancel safety
    /// When dropped, the statements run on; nobody may use the session any more unless they are idempotent.
    pub(crate) async fn run(
        &self,
        sql: String,
        wait_timeout: Option<Duration>,
        limit: Duration,
    ) -> Result<Answer, SqlError> {
        self.run_with(sql, wait_timeout, limit, None).await
    }

    /// The same, and sends the result of one statement, counted from 0, while those that follow it may still wait. In the
    /// answer that one is empty.
    ///
    /// # Cancel safety
    /// As that of [`run`](Self::run).
    pub(crate) async fn run_early(
        &self,
        sql: String,
        wait_timeout: Option<Duration>,
        limit: Duration,
        statement: usize,
        reply: oneshot::Sender<StatementResult>,
    ) -> Result<Answer, SqlError> {
        let early = EarlyResult { statement, reply };
        self.run_with(sql, wait_timeout, limit, Some(early)).await
    }

    async fn run_with(
        &self,
        sql: String,
        wait_timeout: Option<Duration>,
        limit: Duration,
        early: Option<EarlyResult>,
    ) -> Result<Answer, SqlError> {
        let wait_timeout = wait_timeout.map(seconds_up);
        let answer = self
            .ask(
                |reply| Command::Run {
                    sql,
                    wait_timeout,
                    early,
                    reply,
                },
                after(limit),
            )
            .await;
        if let Some(error) = answer.as_ref().err().filter(|error| error.is_unanswered()) {
            self.abort_because(error);
        }
        answer?
    }

    /// Runs a job in one round trip with all that wait at the same time. Without an answer it waits for ever: the caller
    /// decides when the connection is to be ended.
    ///
    /// # Cancel safety
    /// If it is dropped before the job was sent, the job is not sent.
    pub(crate) async fn gather(&self, job: Job) -> Result<JobDone, SqlError> {
        self.ask(|reply| Command::Gather(Gathered { job, reply }), pending())
            .await?
    }

    /// Has the connection count as idle until the first job: without a statement, which could delay that.
    pub(super) fn gather_nothing(&self) {
        // Nobody waits for an answer, so the job is never sent.
        let (reply, _) = oneshot::channel();
        let job = Job::Statement(String::new());
        drop(self.commands.send(Command::Gather(Gathered { job, reply })));
    }

    /// Waits until the server answers, in one round trip for all who ask at the same time. If it does not within
    /// `limit`, the connection is ended.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn ping(&self, limit: Duration) -> Result<(), SqlError> {
        let answer = self.ask(Command::Ping, after(limit)).await;
        if let Some(error) = answer.as_ref().err().filter(|error| error.is_unanswered()) {
            self.abort_because(error);
        }
        answer?
    }

    /// Keeps the hold for at least `ttl` from now, by the session's `wait_timeout` alone: nothing is written, so that a
    /// read-only server or a backup's global read lock stops no renewal. Returns when it was sent, or `None` when the hold
    /// has ended. An unanswered one leaves the connection as it is: the server may yet answer. Without a `limit` it waits
    /// until the hold's time is over.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn renew(
        &self,
        holder: HolderId,
        ttl: Duration,
        limit: Option<Duration>,
    ) -> Result<Option<SentAt>, Error> {
        let command = |reply| Command::Renew(RenewCommand { holder, ttl, reply });
        let limit = async {
            match limit {
                Some(limit) => after(limit).await,
                None => pending().await,
            }
        };
        match self.ask(command, limit).await {
            Ok(renewed) => renewed,
            // The connection is the hold.
            Err(error) if error.ends_connection() => Ok(None),
            Err(error) => Err(error.into_lock_error()),
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
        let limit = after_begun(has_begun, limit);
        let answer = self.ask(command, limit).await.and_then(|answer| answer);
        match &answer {
            Ok(()) | Err(SqlError::HoldEnded | SqlError::NotConnected) => {}
            Err(error) => self.abort_because(error),
        }
        answer
    }

    /// From now on the connection carries this hold; if it has ended already, the hold is lost at once.
    pub(crate) fn carry(&self, hold: CarriedHold) {
        *self.carried.lock() = Some((hold.holder(), hold.lease().clone()));
        // A command that nobody takes is dropped, and a `CarriedHold` that is dropped is lost.
        drop(self.commands.send(Command::Carry(hold)));
    }

    /// Passes the hold on to the next one under the same holder id: from now on a loss is that lease's. False if the
    /// connection does not carry this holder's hold any more.
    pub(crate) fn pass(&self, holder: HolderId, next: &Lease) -> bool {
        let carried = self.carried.lock();
        carried
            .as_ref()
            .is_some_and(|(carried, lease)| *carried == holder && lease.pass_to(next))
    }

    /// Nothing is under way: the connection stays open for a while. Gives back the permit.
    pub(super) fn set_idle(&self) -> Option<PoolPermit> {
        let permit = self.permit.take();
        drop(self.commands.send(Command::Idle));
        permit
    }

    /// Keeps the connection open while it is idle, for as long as anybody has a handle.
    pub(super) fn keep_open(&self) {
        drop(self.commands.send(Command::KeepOpen));
    }

    /// Has the holds that the connection carries monitored by way of this registry.
    pub(super) fn monitor_by(&self, holds: Arc<HoldRegistry>) {
        drop(self.commands.send(Command::Monitor(holds)));
    }

    /// Counts this connection as in use.
    pub(super) fn take_permit(&self, permit: PoolPermit) {
        self.permit.put(permit);
        // The task may have ended just before, and would not give it back.
        if self.has_ended() {
            self.return_permit();
        }
    }

    /// Counts this connection as in use no longer.
    pub(crate) fn return_permit(&self) {
        drop(self.permit.take());
    }

    /// Ends the connection here, whatever is under way on it. The server may not notice:
    /// `Client::end` ends it there as well.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
        self.task.abort();
    }

    /// The same, and a hold that it carries is lost for this reason.
    fn abort_because(&self, error: &SqlError) {
        let carried = self.carried.lock().as_ref().map(|(_, lease)| lease.clone());
        if let Some(lease) = carried {
            lease.lose(LostCause::Disconnected, Some(error.why_lost()));
        }
        self.abort();
    }

    /// True if it serves no command any more. One that was [aborted](Self::abort) would still take commands, and drop
    /// them, until its runtime drops the task.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire) || self.commands.is_closed()
    }

    /// True if the caller is on the runtime of its task.
    pub(crate) fn is_here(&self) -> bool {
        self.runtime.is_here()
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    pub(super) fn connected_in(&self) -> Duration {
        self.connected_in
    }

    /// The server of this control connection has this one.
    pub(super) fn note_found_by(&self, control: Identity) {
        *self.found_by.lock() = Some(control);
    }

    /// True if it was this control connection that [found](Self::note_found_by) this one last.
    pub(super) fn was_found_by(&self, control: Identity) -> bool {
        *self.found_by.lock() == Some(control)
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
        limit: impl Future<Output = Duration>,
    ) -> Result<T, SqlError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).map_err(|_| SqlError::NotConnected)?;
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| SqlError::Disconnected),
            () = self.runtime.undriven() => Err(SqlError::RuntimeNotDriven),
            limit = limit => Err(SqlError::TimedOut(limit)),
        }
    }
}

/// Waits for the time that a request has.
async fn after(limit: Duration) -> Duration {
    sleep(limit).await;
    limit
}

/// Waits for the time that a request has, which counts from when it begins.
async fn after_begun(has_begun: oneshot::Receiver<()>, limit: Duration) -> Duration {
    match timeout(limit, has_begun).await {
        Ok(_) => after(limit).await,
        Err(_elapsed) => limit,
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
