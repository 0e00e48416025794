//! A connection of a group, and its jobs that wait for an answer.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::connection::session::Session;

/// Connections that have answered within this time need not be used to stay open.
const FRESH: Duration = Duration::from_secs(20);

/// A connection of a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(super) session: Arc<Session>,
    pub(super) opened: Instant,
    waiting: Mutex<Waiting>,
}

/// The jobs of a connection that wait for an answer.
#[derive(Debug, Default)]
struct Waiting {
    jobs: usize,
    /// The beginning of the first of them, or the last answer.
    since: Option<Instant>,
    /// The last answer on it: the server may have closed it since.
    answered: Option<Instant>,
    /// True if it is to end when nothing waits any more.
    is_retired: bool,
}

impl Member {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self {
            session,
            opened: Instant::now(),
            waiting: Mutex::default(),
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// True if it served before, so that the server may have closed it since.
    pub(crate) fn is_reused(&self) -> bool {
        self.waiting.lock().answered.is_some()
    }

    /// Ends it when nothing waits for an answer any more: what was sent keeps a known outcome.
    pub(super) fn retire(&self) {
        self.waiting.lock().is_retired = true;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.lock().jobs == 0
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.waiting.lock().answered.is_some_and(|at| at.elapsed() < FRESH)
    }

    /// The smallest is the best: one that has nothing to do, and for longest, so that all are used.
    pub(super) fn rank(&self) -> (Duration, Option<Instant>) {
        let waiting = self.waiting.lock();
        let silent = waiting.since.map_or(Duration::ZERO, |since| since.elapsed());
        (silent, waiting.answered)
    }

    /// The time that jobs have been waiting for an answer; zero if there are none.
    pub(super) fn silent_for(&self) -> Duration {
        self.waiting
            .lock()
            .since
            .map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns when jobs have been waiting for so long, and none was answered.
    pub(super) async fn is_silent_for(&self, limit: Option<Duration>) -> Duration {
        let Some(limit) = limit else {
            return pending().await;
        };
        while let Some(rest) = limit.checked_sub(self.silent_for()).filter(|rest| !rest.is_zero()) {
            sleep(rest).await;
        }
        limit
    }
}

/// A job that waits for its answer, until it is dropped.
pub(super) struct WaitingJob<'a> {
    member: &'a Member,
    pub(super) is_answered: bool,
}

impl<'a> WaitingJob<'a> {
    pub(super) fn begin(member: &'a Member) -> Self {
        let mut waiting = member.waiting.lock();
        waiting.jobs += 1;
        waiting.since.get_or_insert_with(Instant::now);
        drop(waiting);
        Self {
            member,
            is_answered: false,
        }
    }
}

impl Drop for WaitingJob<'_> {
    fn drop(&mut self) {
        let mut waiting = self.member.waiting.lock();
        waiting.jobs -= 1;
        let now = Instant::now();
        if self.is_answered {
            waiting.answered = Some(now);
        }
        if waiting.jobs == 0 {
            waiting.since = None;
        } else if self.is_answered {
            waiting.since = Some(now);
        }
        let has_done = waiting.jobs == 0 && waiting.is_retired;
        drop(waiting);
        if has_done {
            self.member.session.abort();
        }
    }
}
