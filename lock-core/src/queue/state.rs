//! The state of one line.

use super::line::Line;
use super::lines::LineKind;
use super::waiter::Waiter;
use crate::backend::AcquireRequest;
use crate::error::Error;
use crate::mutant::{Mutant, is_active};
use crate::sync::time::Instant;
use crate::sync::{Arc, Weak};
use crate::time::now_anywhere;

#[derive(Debug)]
pub(super) struct Queue<W: Waiter> {
    /// The number of callers that have a turn. Without one, nobody waits.
    turns: usize,
    /// The number of the latest turn.
    last_turn: u64,
    /// In a line of permits, the turn whose request has an entry in the server's queue. Until that entry is granted or
    /// gone, the waiters of the line do not ask, and `leader` is the state of that turn.
    closed_by: Option<u64>,
    pub(super) leader: LeaderState<W::Hold>,
    pub(super) line: Line<W>,
    pub(super) latest: Latest,
    /// The process's request at the server.
    pub(super) request: Option<AcquireRequest>,
    /// The number of the upgrade that the hold with the turn waits for, or has.
    pub(super) upgrade: Option<u64>,
    /// Counts the answers about the name, so that a waiter can tell whether one arrived since it came.
    pub(super) news: u64,
    /// The error of the last attempt, if it failed.
    pub(super) failure: Option<Error>,
}

/// The progress of the turn's holder. It decides the answer to a caller that does not wait.
#[derive(Debug)]
pub(super) enum LeaderState<H> {
    /// It asked the server, which has not answered yet.
    Asking,
    /// The server answered that somebody else has the name, with this label.
    Refused(Option<Arc<str>>),
    /// It holds the name, with this label. Weak, since the hold has the turn.
    Holding(Weak<H>, Option<Arc<str>>),
    /// It releases the name. With the moment since which the server has not answered.
    Releasing(Instant),
}

/// The latest deadline of any waiter. It does not become earlier when a waiter leaves, which does no harm.
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
            turns: 0,
            last_turn: 0,
            closed_by: None,
            leader: LeaderState::Asking,
            line: Line::default(),
            latest: Latest::default(),
            request: None,
            upgrade: None,
            news: 0,
            failure: None,
        }
    }
}

impl<W: Waiter> Queue<W> {
    /// True if nobody has a turn, and hence nobody waits.
    pub(super) fn is_free(&self) -> bool {
        self.turns == 0
    }

    /// The number of a turn for a caller who comes, if it may ask at once.
    pub(super) fn begin(&mut self, kind: LineKind, deadline: Option<Instant>) -> Option<u64> {
        if self.is_free() {
            // A new one has nothing to forget.
            if self.last_turn > 0 {
                *self = Self::default();
            }
        } else if !self.has_turn_left(kind) || !self.line.is_empty() {
            return None;
        }
        self.latest.add(deadline);
        Some(self.next_number())
    }

    /// The next one to have a turn, and the turn's number.
    pub(super) fn next_turn(&mut self, kind: LineKind) -> Option<(W, u64)> {
        if !self.has_turn_left(kind) {
            return None;
        }
        let next = self.line.pop_front()?;
        Some((next, self.next_number()))
    }

    /// This turn is over.
    pub(super) fn end_turn(&mut self, number: u64) {
        self.turns -= 1;
        if self.closed_by.is_some_and(|closer| closer != number) {
            return;
        }
        if !is_active(Mutant::StaysClosed) {
            self.closed_by = None;
        }
        self.leader = LeaderState::Asking;
        self.request = None;
        self.upgrade = None;
    }

    /// True if this turn decides the state of the line: it is the only one, or it closed the line.
    pub(super) fn is_led_by(&self, number: u64, kind: LineKind) -> bool {
        kind != LineKind::Permits || self.closed_by == Some(number)
    }

    /// The server refused this turn's request, which waits there: the line is closed, unless another turn has closed it.
    pub(super) fn close(&mut self, number: u64) {
        self.closed_by.get_or_insert(number);
    }

    /// True if no turn has closed the line.
    pub(super) fn is_open(&self) -> bool {
        self.closed_by.is_none()
    }

    /// Notes an answer about the name that the leader of the line received.
    pub(super) fn learned(&mut self, leader: LeaderState<W::Hold>) {
        self.leader = leader;
        self.heard();
    }

    /// Notes that the name is being released. A request that the server never answered adds no answer.
    pub(super) fn releases(&mut self) {
        let asked = self.request.as_ref().map(AcquireRequest::made);
        let silent_since = match &self.leader {
            LeaderState::Releasing(since) => Some(*since),
            LeaderState::Asking => asked,
            LeaderState::Refused(_) | LeaderState::Holding(..) => {
                self.news += 1;
                None
            }
        };
        self.leader = LeaderState::Releasing(silent_since.unwrap_or_else(now_anywhere));
    }

    /// The server answered.
    pub(super) fn heard(&mut self) {
        self.news += 1;
        self.failure = None;
    }

    /// The number of answers that a waiter that comes now counts as old. A refusal of this process counts as new: it
    /// stands until the server answers something else.
    pub(super) fn known_to_waiter(&self) -> u64 {
        match self.leader {
            LeaderState::Refused(_) => self.news.saturating_sub(1),
            LeaderState::Asking | LeaderState::Holding(..) | LeaderState::Releasing(_) => self.news,
        }
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

    fn has_turn_left(&self, kind: LineKind) -> bool {
        self.is_open() && self.turns < kind.most_turns()
    }

    fn next_number(&mut self) -> u64 {
        self.turns += 1;
        self.last_turn += 1;
        self.last_turn
    }
}
