//! A server that becomes read-only: another may be about to take its place.

use super::Worker;
use crate::protocol::{Answer, READ_ONLY, is_read_only};

impl Worker {
    /// The statement of a connection that carries a hold and is woken.
    pub(super) fn asks_of_hold(&self) -> String {
        match self.phase.is_holding() {
            true => format!("SELECT {READ_ONLY}"),
            false => String::new(),
        }
    }

    /// True if the server has been read-only for longer than a hold may outlast that. `answer` is the answer to
    /// [`asks_of_hold`](Self::asks_of_hold).
    pub(super) fn is_read_only_for_too_long(&mut self, answer: &Answer) -> bool {
        // A server that does not say is taken for one that writes.
        let is_read_only = answer.row(0).is_some_and(|row| is_read_only(row, 0).unwrap_or(false));
        self.phase
            .note_read_only(is_read_only, answer.sent_instant, self.max_read_only)
    }
}
