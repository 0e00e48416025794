//! The error for a caller whose time is up.

use crate::error::Error;
use crate::sync::Arc;
use crate::sync::time::Instant;

/// The last known state of a name when a caller's time is up.
#[derive(Debug)]
pub(crate) enum LastWord {
    /// It is taken, by a holder of this label.
    Taken(Option<Arc<str>>),
    /// The server could not be reached, for this reason.
    Failed(Error),
    /// Nothing was learned since the caller came.
    Nothing,
}

/// The beginning of a caller's wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    /// The number of answers about the name when the caller came.
    pub(crate) news: u64,
    /// The moment when half of its time was over.
    pub(crate) half_time: Option<Instant>,
}

impl Since {
    /// True if the server has answered this process's requests for the name since then. A request that was sent at
    /// `unanswered_since` has no answer yet. If that lasts for half of the caller's time, the server counts as silent.
    pub(super) fn has_news(self, news: u64, unanswered_since: Option<Instant>) -> bool {
        let is_silent = unanswered_since.is_some_and(|since| Some(since) < self.half_time);
        news > self.news && !is_silent
    }
}
