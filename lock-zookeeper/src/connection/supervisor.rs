//! Keeps a session: makes a new one when one has ended, for as long as the backend lives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Error, ErrorKind, Result};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use zookeeper_client::SessionInfo;

use super::backoff::{self, LONGEST, SHORTEST, Wanted};
use super::establish::{close, connect};
use super::runtime_check::Pulse;
use super::session::Session;
use crate::config::ZooKeeperConfig;
use crate::error::{self, caught};

/// Gives out the session, and starts the task that keeps it: at first use, some time after it failed, and when its
/// runtime has ended or nobody drives it.
#[derive(Debug)]
pub(crate) struct Supervisor {
    config: Arc<ZooKeeperConfig>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    task: Option<Arc<Task>>,
    /// How many tasks in a row have failed.
    failures: u32,
    /// Sessions whose runtime has gone, for the next task to close.
    left: Vec<SessionInfo>,
}

/// What the task that keeps a session and those who ask for one share.
#[derive(Debug)]
struct Task {
    news: watch::Sender<News>,
    wanted: Wanted,
    pulse: Arc<Pulse>,
    stop: Notify,
    had_session: AtomicBool,
}

#[derive(Clone, Debug)]
enum News {
    /// Not yet, for this reason.
    Connecting(Option<Error>),
    Up(Arc<Session>),
    /// It makes no sense to go on. The task ended then.
    Failed(Error, Instant),
    /// The task's runtime has dropped it, and this session stays behind.
    Gone(Option<SessionInfo>),
}

/// What becomes of a request for a session.
enum Found {
    Session(Arc<Session>),
    Failed(Error),
    Gone,
    /// Nobody drives the task's runtime.
    Undriven,
}

impl Supervisor {
    pub(crate) fn new(config: Arc<ZooKeeperConfig>) -> Self {
        Self {
            config,
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
        found.unwrap_or_else(|_| Err(error::unreachable(self.config.servers(), limit, self.why())))
    }

    async fn wait_for_session(&self) -> Result<Arc<Session>> {
        loop {
            let (task, is_new) = self.task()?;
            match task.session().await {
                Found::Session(session) => return Ok(session),
                Found::Failed(error) => return Err(error),
                // The caller's own runtime is about to end: another task would fare no better.
                Found::Gone if is_new => return Err(error::runtime_ends()),
                Found::Gone => {}
                Found::Undriven => self.give_up(&task),
            }
        }
    }

    /// Why there is no session to send requests over, where that is known.
    pub(crate) fn why(&self) -> Option<Error> {
        let task = self.state().task.clone()?;
        let news = task.news.borrow();
        match &*news {
            News::Connecting(why) => why.clone(),
            News::Up(session) => session.outage(),
            News::Failed(error, _) => Some(error.clone()),
            News::Gone(_) => None,
        }
    }

    /// Returns when nobody works for this session any more: it has ended, and whoever could has noticed; or its runtime
    /// is not driven, and it is given up.
    pub(crate) async fn forsaken(&self, session: &Session) {
        tokio::select! {
            () = session.over() => {}
            () = session.pulse.stopped() => {
                let task = self.state().task.clone();
                if let Some(task) = task.filter(|task| Arc::ptr_eq(&task.pulse, &session.pulse)) {
                    self.give_up(&task);
                }
                return;
            }
        }
        session.pulse.stopped().await;
    }

    /// The task that runs, or a new one on the caller's runtime; and whether it is a new one.
    fn task(&self) -> Result<(Arc<Task>, bool)> {
        let mut state = self.state();
        if let Some(task) = state.task.take() {
            let news = task.news.borrow().clone();
            match news {
                News::Connecting(_) | News::Up(_) => {
                    state.task = Some(task.clone());
                    return Ok((task, false));
                }
                News::Failed(error, at) => {
                    let earlier = if task.had_session.load(Ordering::SeqCst) {
                        0
                    } else {
                        state.failures
                    };
                    if at.elapsed() < rest_after(earlier) {
                        state.task = Some(task);
                        return Err(error);
                    }
                    state.failures = earlier.saturating_add(1);
                }
                News::Gone(session) => state.left.extend(session),
            }
        }
        let task = Arc::new(Task {
            news: watch::Sender::new(News::Connecting(None)),
            wanted: Wanted::default(),
            pulse: Arc::new(Pulse::new()),
            stop: Notify::new(),
            had_session: AtomicBool::new(false),
        });
        state.task = Some(task.clone());
        let left = std::mem::take(&mut state.left);
        // Where the runtime refuses it, it is dropped at once.
        tokio::spawn(supervise(self.config.clone(), Tenure(task.clone()), left));
        Ok((task, true))
    }

    /// Ends a task, and with it its session: the next request starts another one.
    fn give_up(&self, task: &Arc<Task>) {
        let mut state = self.state();
        if let Some(task) = state.task.take_if(|current| Arc::ptr_eq(current, task)) {
            task.stop.notify_one();
            if let News::Up(session) = &*task.news.borrow() {
                session.cut();
                session.end();
                state.left.push(session.info.clone());
            }
        }
    }

    /// Every critical section leaves its data whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(task) = self.state().task.take() {
            task.stop.notify_one();
        }
    }
}

impl Task {
    async fn session(&self) -> Found {
        let _waiting = self.wanted.wait();
        // Asked first: the session of a runtime that stands still looks as good as any.
        if !self.pulse.is_there().await {
            return Found::Undriven;
        }
        tokio::select! {
            biased;
            found = self.wait_for_session() => found,
            () = self.pulse.stopped() => Found::Undriven,
        }
    }

    async fn wait_for_session(&self) -> Found {
        let mut news = self.news.subscribe();
        loop {
            let latest = news.borrow_and_update().clone();
            match latest {
                News::Up(session) if session.connected().await.is_ok() => return Found::Session(session),
                News::Up(_) | News::Connecting(_) => {}
                News::Failed(error, _) => return Found::Failed(error),
                News::Gone(_) => return Found::Gone,
            }
            // The sender lives as long as `self`.
            let _ = news.changed().await;
        }
    }

    fn publish(&self, news: News) {
        self.news.send_replace(news);
    }
}

/// The time for which a task keeps the session; says when it is over, also when its runtime drops the task.
struct Tenure(Arc<Task>);

impl Drop for Tenure {
    fn drop(&mut self) {
        self.0.news.send_modify(|news| {
            let session = match news {
                News::Failed(..) => return,
                News::Up(session) => Some(session.info.clone()),
                News::Connecting(_) | News::Gone(_) => None,
            };
            *news = News::Gone(session);
        });
        // Nobody need wait for an answer any more.
        self.0.pulse.answer_now();
    }
}

/// Ends a session when nobody keeps it any more, also when that is because the runtime has gone.
struct Keep(Arc<Session>);

impl Drop for Keep {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn supervise(config: Arc<ZooKeeperConfig>, tenure: Tenure, left: Vec<SessionInfo>) {
    let task = &tenure.0;
    let closing = async {
        join_all(left.into_iter().map(|session| close(&config, session))).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = task.stop.notified() => {}
        error = caught(keep_sessions(&config, task)) => {
            let error = error.unwrap_or_else(|panic| panic);
            task.publish(News::Failed(error, Instant::now()));
        }
        never = task.pulse.answer() => match never {},
        () = closing => {}
    }
}

/// Keeps a session, one after the other, until an error that no trying mends.
async fn keep_sessions(config: &ZooKeeperConfig, task: &Task) -> Error {
    let mut rests = backoff::rests(LONGEST);
    loop {
        let began = Instant::now();
        let say_why = |why| task.publish(News::Connecting(Some(why)));
        let error = match connect(config, &task.pulse, say_why).await {
            Ok(session) => {
                let keep = Keep(Arc::new(session));
                task.had_session.store(true, Ordering::SeqCst);
                task.publish(News::Up(keep.0.clone()));
                rests = backoff::rests(LONGEST);
                error::from_driver(keep.0.keep_alive(config, &task.wanted).await)
            }
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Unavailable {
            return error;
        }
        task.publish(News::Connecting(Some(error)));
        task.wanted.rest(began, rests.next().unwrap_or(LONGEST)).await;
    }
}

/// How long a failed task is not followed by another one.
fn rest_after(earlier_failures: u32) -> Duration {
    // Doubled six times, it is the longest.
    (SHORTEST * 2_u32.pow(earlier_failures.min(6))).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_tried_again_ever_later() {
        assert_eq!(rest_after(0), SHORTEST);
        assert_eq!(rest_after(1), 2 * SHORTEST);
        assert!(rest_after(5) < LONGEST);
        assert_eq!(rest_after(6), LONGEST);
        assert_eq!(rest_after(u32::MAX), LONGEST);
    }
}
