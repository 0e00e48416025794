//! Keeps a session for as long as the backend lives: establishes a new one when one has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Error, ErrorKind, Result};
use lock_kit::backoff::DIAL_SPACING;
use lock_kit::runtime::RuntimeCheck;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use zookeeper_client::SessionInfo;

use self::session_task::{Lookup, ReportEnd, SessionTask, Status};
use super::backoff::{self, Backoff, MAX_DELAY};
use super::driver::Connection;
use super::establish::{close, closed, connect};
use super::granted::GrantedTimeout;
use super::session::Session;
use crate::config::ZooKeeperConfig;
use crate::error::{self, catch_panic};
use crate::state::{SessionState, StateReporter};

mod session_task;

/// Hands out the session, and starts the task that keeps it: at the first use, some time after it failed, and when its
/// runtime has ended or is not driven.
#[derive(Debug)]
pub(crate) struct Supervisor {
    config: Arc<ZooKeeperConfig>,
    granted: Arc<GrantedTimeout>,
    reporter: StateReporter,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    task: Option<Arc<SessionTask>>,
    /// The number of tasks in a row that have failed.
    failures: u32,
    /// Sessions whose runtime has gone, for the next task to close.
    orphans: Vec<SessionInfo>,
}

impl Supervisor {
    pub(super) fn new(config: Arc<ZooKeeperConfig>, granted: Arc<GrantedTimeout>, reporter: StateReporter) -> Self {
        Self {
            config,
            granted,
            reporter,
            state: Mutex::default(),
        }
    }

    /// A connected session, within the connect timeout.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        let limit = self.config.connect_timeout();
        let found = timeout(limit, self.wait_for_session()).await;
        found.unwrap_or_else(|_| Err(error::unreachable(self.config.servers(), limit, self.outage())))
    }

    async fn wait_for_session(&self) -> Result<Arc<Session>> {
        loop {
            let (task, is_new) = self.task()?;
            match task.session().await {
                Lookup::Session(session) => return Ok(session),
                Lookup::Failed(error) => return Err(error),
                // The caller's own runtime is about to end, if nobody else ended the task: another one would fare no better.
                Lookup::Gone if is_new && self.has(&task) => return Err(error::runtime_ends()),
                Lookup::Gone => {}
                Lookup::Undriven => self.stop_task(&task),
            }
        }
    }

    /// Why there is no session to send requests over, where that is known.
    pub(crate) fn outage(&self) -> Option<Error> {
        let task = self.state.lock().task.clone()?;
        let status = task.status.borrow();
        match &*status {
            Status::Connecting(why) => why.clone(),
            Status::Connected(session) => session.outage(),
            Status::Failed(error, _) => Some(error.clone()),
            Status::Gone(_) => None,
        }
    }

    /// The session that there is, connected or not.
    pub(super) fn current(&self) -> Option<Arc<Session>> {
        let task = self.state.lock().task.clone()?;
        match &*task.status.borrow() {
            Status::Connected(session) => Some(session.clone()),
            _ => None,
        }
    }

    /// Ends the task that keeps this session, if it is of this supervisor.
    pub(super) fn stop(&self, session: &Session) {
        let task = self.state.lock().task.clone();
        if let Some(task) = task.filter(|task| Arc::ptr_eq(&task.runtime_check, &session.runtime_check)) {
            self.stop_task(&task);
        }
    }

    /// True if this is still its task: not one that was [closed](Self::close), stopped or replaced.
    fn has(&self, task: &Arc<SessionTask>) -> bool {
        self.state
            .lock()
            .task
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, task))
    }

    /// The task that runs, or a new one on the caller's runtime; and whether it is a new one.
    fn task(&self) -> Result<(Arc<SessionTask>, bool)> {
        let mut state = self.state.lock();
        if let Some(task) = state.task.take() {
            let status = task.status.borrow().clone();
            match status {
                Status::Connecting(_) | Status::Connected(_) => {
                    state.task = Some(task.clone());
                    return Ok((task, false));
                }
                Status::Failed(error, at) => {
                    let earlier = if task.had_session.load(Ordering::SeqCst) {
                        0
                    } else {
                        state.failures
                    };
                    if at.elapsed() < delay_after(earlier) {
                        state.task = Some(task);
                        return Err(error);
                    }
                    state.failures = earlier.saturating_add(1);
                }
                Status::Gone(session) => state.orphans.extend(session),
            }
            state.orphans.append(&mut task.orphans.lock());
        }
        let task = Arc::new(SessionTask {
            status: watch::Sender::new(Status::Connecting(None)),
            backoff: Backoff::default(),
            runtime_check: Arc::new(RuntimeCheck::new()),
            stop: Notify::new(),
            had_session: AtomicBool::new(false),
            orphans: Mutex::new(std::mem::take(&mut state.orphans)),
        });
        state.task = Some(task.clone());
        // A runtime that is shutting down drops it at once.
        let keeper = Keeper {
            config: self.config.clone(),
            granted: self.granted.clone(),
            reporter: self.reporter.clone(),
        };
        tokio::spawn(keeper.supervise(ReportEnd(task.clone())));
        Ok((task, true))
    }

    /// Ends a task, and with it its session: the next request starts another one.
    fn stop_task(&self, task: &Arc<SessionTask>) {
        let mut state = self.state.lock();
        if let Some(task) = state.task.take_if(|current| Arc::ptr_eq(current, task)) {
            task.stop.notify_one();
            state.orphans.append(&mut task.orphans.lock());
            if let Status::Connected(session) = &*task.status.borrow() {
                session.disconnect();
                session.end();
                state.orphans.push(session.info.clone());
            }
        }
    }

    /// Closes the session if it carries nothing, and others of this supervisor whose runtime has gone. Waits until the
    /// server has answered, for at most the connect timeout. Ends the attempts at a session for which no request waits.
    pub(super) async fn close(&self) -> Result<()> {
        let (connection, orphans) = self.take_idle();
        let closing = async {
            if let Some(connection) = connection {
                closed(connection).await;
            }
            join_all(orphans.into_iter().map(|session| close(&self.config, session))).await;
        };
        let limit = self.config.connect_timeout();
        timeout(limit, closing).await.map_err(|_| error::not_closed(limit))
    }

    /// Ends the task if its session carries nothing, or if it has none and no request waits for one. Returns that session's
    /// connection, and sessions without one.
    fn take_idle(&self) -> (Option<Arc<Connection>>, Vec<SessionInfo>) {
        let mut state = self.state.lock();
        let mut orphans = std::mem::take(&mut state.orphans);
        let Some(task) = state.task.clone() else {
            return (None, orphans);
        };
        if task.stop_connecting() {
            // The next task has reported nothing yet.
            self.reporter.set(SessionState::Absent);
        }
        let status = task.status.borrow().clone();
        let mut connection = None;
        match status {
            Status::Connected(session) if session.close() => {
                connection = session.connection.borrow().clone();
                if connection.is_none() {
                    orphans.push(session.info.clone());
                }
                session.end();
            }
            Status::Gone(session) => orphans.extend(session),
            Status::Failed(..) => {
                orphans.append(&mut task.orphans.lock());
                return (None, orphans);
            }
            Status::Connected(_) | Status::Connecting(_) => return (None, orphans),
        }
        // Those that it has not closed yet.
        orphans.append(&mut task.orphans.lock());
        state.task = None;
        task.stop.notify_one();
        (connection, orphans)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(task) = self.state.lock().task.take() {
            task.stop.notify_one();
        }
    }
}

/// Ends the session when its task ends, also when its runtime drops the task.
struct EndOnDrop(Arc<Session>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Keeps the sessions of one supervisor.
struct Keeper {
    config: Arc<ZooKeeperConfig>,
    granted: Arc<GrantedTimeout>,
    reporter: StateReporter,
}

impl Keeper {
    async fn supervise(self, end: ReportEnd) {
        let (task, config) = (&end.0, &self.config);
        let closing = async {
            let orphans = task.orphans.lock().clone();
            join_all(orphans.into_iter().map(|session| async move {
                let id = session.id();
                close(config, session).await;
                task.orphans.lock().retain(|orphan| orphan.id() != id);
            }))
            .await;
            std::future::pending::<()>().await;
        };
        let keeping = async {
            tokio::select! {
                biased;
                () = task.stop.notified() => {}
                error = catch_panic(self.keep_sessions(task)) => {
                    let error = error.unwrap_or_else(|panic| panic);
                    task.publish(Status::Failed(error, Instant::now()));
                }
                () = closing => {}
            }
        };
        task.runtime_check.watch(keeping).await;
    }

    /// Keeps one session after the other, until an error that retrying does not mend.
    async fn keep_sessions(&self, task: &SessionTask) -> Error {
        let mut delays = backoff::delays(MAX_DELAY);
        loop {
            let began = Instant::now();
            let report = |why| task.publish(Status::Connecting(Some(why)));
            let error = match connect(&self.config, &task.runtime_check, &self.reporter, report).await {
                Ok(session) => {
                    self.granted.note(self.config.session_timeout(), session.timeout);
                    let keep = EndOnDrop(Arc::new(session));
                    task.had_session.store(true, Ordering::SeqCst);
                    task.publish(Status::Connected(keep.0.clone()));
                    delays = backoff::delays(MAX_DELAY);
                    error::lock_error(keep.0.keep_alive(&self.config, &task.backoff).await)
                }
                Err(error) => error,
            };
            if error.kind() != ErrorKind::Unavailable {
                return error;
            }
            task.publish(Status::Connecting(Some(error)));
            task.backoff.wait(began, delays.next().unwrap_or(MAX_DELAY)).await;
        }
    }
}

/// The time for which no new task follows a failed one.
fn delay_after(earlier_failures: u32) -> Duration {
    // Doubled six times, it is longer than the longest.
    (DIAL_SPACING * 2_u32.pow(earlier_failures.min(6))).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::task::yield_now;

    use super::*;
    use crate::state::{ConnectionState, States};

    #[tokio::test]
    async fn a_close_ends_attempts_for_which_no_request_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = listener.local_addr().unwrap().to_string();
        drop(listener);
        let config = Arc::new(ZooKeeperConfig::new([nobody]).with_open_acl());
        let states = Arc::new(States::new(1));
        let reporter = StateReporter::new(&states, 0);
        reporter.set(SessionState::Ended);
        let supervisor = Supervisor::new(config, Arc::default(), reporter);
        let (task, _) = supervisor.task().unwrap();
        let request = task.backoff.add_request();
        supervisor.close().await.unwrap();
        assert!(supervisor.has(&task));
        assert_eq!(states.state(), ConnectionState::Lost);
        drop(request);
        supervisor.close().await.unwrap();
        assert!(!supervisor.has(&task));
        assert_eq!(states.state(), ConnectionState::Unconnected);
        // What its attempt still reports does not count, and who waits for it starts another one.
        task.publish(Status::Connecting(None));
        assert!(matches!(task.session().await, Lookup::Gone));
        let is_over = async {
            while Arc::strong_count(&task) > 1 {
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), is_over).await.unwrap();
    }

    #[test]
    fn failures_in_a_row_are_tried_again_ever_later() {
        assert_eq!(delay_after(0), DIAL_SPACING);
        assert_eq!(delay_after(1), 2 * DIAL_SPACING);
        assert!(delay_after(5) < MAX_DELAY);
        assert_eq!(delay_after(6), MAX_DELAY);
        assert_eq!(delay_after(u32::MAX), MAX_DELAY);
    }
}
