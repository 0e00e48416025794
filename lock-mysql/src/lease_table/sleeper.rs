//! Waking those who wait: each process that waits has one connection on which it sleeps at the server.
//!
//! A waiter leaves its mark in the row, with the number of that connection. The release finds the number in its answer, and
//! ends the sleep by `KILL QUERY`, which needs no permission among connections of one user. A named lock identifies the
//! connection. The mark keeps the name for this waiter for a moment. So a release costs a second statement only if somebody
//! waits, and a waiter is woken for its own name alone.
//!
//! A row has one mark. Those who find another's have [queue entries](super::queue), and the next grant calls one of them.
//!
//! Other ways that were considered: a named lock to wait for takes a connection for each waiting name, and polling alone
//! takes either many questions or long pauses. With 128 processes that waited for one name, those without the mark asked 2,200
//! times a second together, and the server was busy with little else; with queue entries they ask 340 times. Whatever is lost here, a
//! question after a pause finds.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::LockName;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::Shared;
use crate::connection::Session;
use crate::error::SqlError;
use crate::protocol::lease_table::sharing::is_kind;
use crate::protocol::lease_table::{free_for, sleeper_lock, sleeper_of, wake};
use crate::protocol::{Autocommit, Job, NO_SUCH_CONNECTION, StatementResult, column};

/// The ways in which waiters of this process can be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// By this number.
    By(u64),
    /// Not yet: the connection is being made. When it is there, or has failed, all are told to ask.
    Soon,
    No,
}

/// The connection that sleeps, if there is one.
#[derive(Debug, Default)]
pub(super) struct Sleeper(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Its number, once it can be woken.
    number: Option<u64>,
    is_running: bool,
    /// No new one before that.
    pause_until: Option<Instant>,
}

/// The length of a sleep by one statement.
const SLEEP: Duration = Duration::from_secs(20);
/// How long the end of a hold waits until the server has woken the next waiter. If the process exits before that, the waiter is
/// not woken.
const WOKEN_WITHIN: Duration = Duration::from_millis(250);
/// If there is none, the next one is tried after this.
const PAUSE: Duration = Duration::from_secs(5);
/// The most names that are looked for with one statement.
const NAMES_AT_ONCE: usize = 500;

impl Shared {
    /// By which connection waiters of this process are woken. If there is none, one is made in the background.
    pub(super) fn sleeper(self: &Arc<Self>) -> Awaited {
        if let Ok(runtime) = Handle::try_current()
            && let Some(running) = self.next_running()
        {
            // Without the lock: a runtime that shuts down drops the task within `spawn`, and the drop of `Running` takes it.
            runtime.spawn(async move { running.run().await });
        }
        let state = self.sleeper.0.lock();
        match state.number {
            Some(number) => Awaited::By(number),
            None if state.is_running => Awaited::Soon,
            None => Awaited::No,
        }
    }

    /// What the next task that sleeps runs. `None` if there is such a task, or if it is too early for another one.
    fn next_running(self: &Arc<Self>) -> Option<Running> {
        let mut state = self.sleeper.0.lock();
        let is_due = !state.is_running && state.pause_until.is_none_or(|until| until <= Instant::now());
        state.is_running |= is_due;
        is_due.then(|| Running(Arc::downgrade(self)))
    }

    /// Begins to wake the waiter that the answer to a release names; 0 for none.
    pub(super) fn wake_waiter(self: &Arc<Self>, name: &LockName, sleeper: u64) -> Option<JoinHandle<()>> {
        let runtime = Handle::try_current().ok().filter(|_| sleeper != 0)?;
        let (shared, name) = (self.clone(), name.clone());
        Some(runtime.spawn(async move {
            let woken = shared.keep_job(Job::Statement(wake(sleeper))).await;
            // Nobody waits there.
            if woken.is_err_and(|error| error.code() == Some(NO_SUCH_CONNECTION)) {
                let unmark = shared.statements.unmark(&name, sleeper);
                drop(shared.keep_job(Job::Statement(unmark)).await);
            }
        }))
    }

    /// Has those waiters ask whose name is free.
    async fn wake_those_who_may(&self) {
        let names = self.waits.called();
        if let [_one] = &*names {
            return self.waits.wake(|_, _| true);
        }
        for names in names.chunks(NAMES_AT_ONCE) {
            // Otherwise they ask by themselves.
            let Ok(found) = self.query(self.statements.free_for(names)).await else {
                continue;
            };
            let free: Result<HashMap<_, _>, _> = found.rows.iter().map(free_for).collect();
            if let Ok(free) = free {
                self.waits
                    .wake(|name, holder| match free.get(name.as_str().as_bytes()) {
                        // The mark that those have in common who wait to share it.
                        Some(Some(waiter)) if is_kind(waiter) => true,
                        Some(Some(waiter)) => *waiter == holder.to_string().as_bytes(),
                        Some(None) => true,
                        None => false,
                    });
            }
        }
    }
}

/// Waits until the server has woken those whom the end of a hold calls. What takes longer goes on in the background.
pub(super) async fn woken(calls: [Option<JoinHandle<()>>; 2]) {
    drop(timeout(WOKEN_WITHIN, join_all(calls.into_iter().flatten())).await);
}

/// The task that sleeps. It ends with the backend, or when nobody waits any more.
struct Running(Weak<Shared>);

impl Running {
    async fn run(self) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        // From 1 to 2^63 - 1, as the column takes it.
        let number = rand::random_range(1..=u64::MAX >> 1);
        let limit = shared.config.response_timeout;
        let Ok(session) = shared.dialer.open(Autocommit::On).await else {
            return shared.sleeper.0.lock().pause_until = Some(Instant::now() + PAUSE);
        };
        let asking = shared.asking.clone();
        drop(shared);
        let ready = timeout(limit, take_lock(&session, &sleeper_lock(number))).await;
        let ready = matches!(ready, Ok(Ok(())))
            && match asking.member(None).await {
                Ok(member) => matches!(
                    timeout(limit, bind(&session, member.session(), number)).await,
                    Ok(Ok(()))
                ),
                Err(_) => false,
            };
        // It ends with the backend, and its lock with it: that ends the sleep.
        drop(asking);
        if !ready {
            return self.pause();
        }
        if let Some(shared) = self.0.upgrade() {
            shared.sleeper.0.lock().number = Some(number);
            // So that they leave the number.
            shared.waits.wake_all();
        }
        let mut was_woken = false;
        loop {
            let sleep = Job::Statement(get_lock(&held_elsewhere(number), SLEEP.as_secs()));
            // It sleeps again before it does anything else: a call in between would be lost.
            let wakes = async {
                if let Some(shared) = self.0.upgrade().filter(|_| was_woken) {
                    shared.wake_those_who_may().await;
                }
            };
            let (slept, ()) = tokio::join!(timeout(SLEEP + limit, session.gather(sleep)), wakes);
            let Some(shared) = self.0.upgrade() else {
                return;
            };
            was_woken = match slept {
                Ok(Ok(done)) => match first_number(&done.result) {
                    // It slept to the end.
                    Ok(Some(0)) => false,
                    // The holder of the lock is gone, so there is nothing to wait for.
                    Ok(Some(_)) => return,
                    _ => true,
                },
                // The woken waiter may not be known yet.
                Ok(Err(error)) if error.is_interrupted() => true,
                _ => return self.pause(),
            };
            if !was_woken && shared.waits.is_empty() {
                return;
            }
        }
    }

    fn pause(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.sleeper.0.lock().pause_until = Some(Instant::now() + PAUSE);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            let mut state = shared.sleeper.0.lock();
            state.is_running = false;
            state.number = None;
            drop(state);
            // Until there is another one, they ask by themselves.
            shared.waits.wake_all();
        }
    }
}

/// The lock for which a connection waits in order to sleep. A `SLEEP` takes a mutex of all connections on MariaDB: there, to
/// interrupt one while others sleep took two seconds.
fn held_elsewhere(number: u64) -> String {
    format!("'polylock:sleeper:{number}:held'")
}

fn get_lock(lock: &str, seconds: u64) -> String {
    format!("SELECT CAST(GET_LOCK({lock},{seconds}) AS SIGNED)")
}

/// Has the connection of acquires take the lock for which the sleeping one waits, and has that one be found by the number of the
/// other.
async fn bind(sleeping: &Session, asking: &Session, number: u64) -> Result<(), SqlError> {
    take_lock(asking, &held_elsewhere(number)).await?;
    let id = Job::Statement("SELECT CAST(CONNECTION_ID() AS SIGNED)".to_owned());
    let id = first_number(&asking.gather(id).await?.result)?;
    let id = id.and_then(|id| u64::try_from(id).ok());
    take_lock(
        sleeping,
        &sleeper_of(id.ok_or(SqlError::UnexpectedAnswer("connection"))?),
    )
    .await
}

/// Takes a named lock that nobody else takes.
async fn take_lock(session: &Session, lock: &str) -> Result<(), SqlError> {
    let done = session.gather(Job::Statement(get_lock(lock, 0))).await?;
    match first_number(&done.result)? {
        Some(1) => Ok(()),
        _ => Err(SqlError::UnexpectedAnswer("named lock")),
    }
}

/// The number in the first row.
fn first_number(result: &StatementResult) -> Result<Option<i64>, SqlError> {
    const WHAT: &str = "number";
    column(result.rows.first().ok_or(SqlError::UnexpectedAnswer(WHAT))?, 0, WHAT)
}
