//! The state of one name's queue.

use super::line::Line;
use super::waiter::Waiter;
use crate::backend::AcquireRequest;
use crate::error::Error;
use crate::sync::time::Instant;
use crate::sync::{Arc, Weak, oneshot};

#[derive(Debug)]
pub(super) struct Queue<W: Waiter> {
    /// Whether anybody has the turn. A queue without one is kept for the releases under way.
    pub(super) is_led: bool,
    pub(super) leader: LeaderState<W::Hold>,
    pub(super) line: Line<W>,
    pub(super) latest: Latest,
    /// The process's request at the server.
    pub(super) request: Option<AcquireRequest>,
    /// Counts what was learned of the name, so that a waiter can tell whether anything was since it came.
    pub(super) news: u64,
    /// Why the last attempt failed, if it did.
    pub(super) failure: Option<Error>,
    pub(super) releases: Releases,
}

/// How far whoever has the turn has come, which decides what a caller that does not wait is told.
#[derive(Debug)]
pub(super) enum LeaderState<H> {
    /// Asking the server, which has not answered yet.
    Asking,
    /// The server said that somebody else has the name, with this label.
    Refused(Option<Arc<str>>),
    /// Holding, with this label. Weak, since the hold has the turn.
    Holding(Weak<H>, Option<Arc<str>>),
    /// Giving it back: the name is about to be free.
    Releasing,
}

/// This process's releases of a name that passed the turn on before they were answered.
#[derive(Debug, Default)]
pub(super) struct Releases {
    pub(super) unanswered: usize,
    /// Tries that were refused meanwhile, and ask again when all are answered.
    pub(super) refused: Vec<oneshot::Sender<()>>,
}

/// Until when somebody waits. It never becomes earlier when a waiter leaves, which costs nobody anything.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest {
    forever: bool,
    deadline: Option<Instant>,
}

impl Latest {
    pub(super) fn add(&mut self, deadline: Option<Instant>) {
        self.forever |= deadline.is_none();
        self.deadline = self.deadline.max(deadline);
    }

    pub(super) fn deadline(self) -> Option<Instant> {
        self.deadline.filter(|_| !self.forever)
    }
}

impl<H> LeaderState<H> {
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Holding(..))
    }
}

impl<W: Waiter> Default for Queue<W> {
    fn default() -> Self {
        Self {
            is_led: false,
            leader: LeaderState::Asking,
            line: Line::default(),
            latest: Latest::default(),
            request: None,
            news: 0,
            failure: None,
            releases: Releases::default(),
        }
    }
}

impl<W: Waiter> Queue<W> {
    /// The first one has the turn, and nobody waits.
    pub(super) fn begin(&mut self, deadline: Option<Instant>) {
        let releases = std::mem::take(&mut self.releases);
        *self = Self {
            is_led: true,
            releases,
            ..Self::default()
        };
        self.latest.add(deadline);
    }

    /// The server said something of the name.
    pub(super) fn learned(&mut self, leader: LeaderState<W::Hold>) {
        self.leader = leader;
        self.news += 1;
        self.failure = None;
    }

    pub(super) fn push(&mut self, waiter: W) {
        if waiter.is_patient() {
            self.latest.add(waiter.deadline());
            if let Some(request) = &self.request {
                request.wait_until(self.latest.deadline());
            }
        }
        self.line.push_back(waiter);
    }
}
