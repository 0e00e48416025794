//! What a caller whose time is up is told of a name.

use crate::error::Error;
use crate::sync::Arc;
use crate::sync::time::Instant;

/// What is known of a name when a caller's time is up.
#[derive(Debug)]
pub(crate) enum LastWord {
    /// It is taken, by a holder of this label.
    Taken(Option<Arc<str>>),
    /// The server could not be asked, for this reason.
    Failed(Error),
    /// Nothing was learned since the caller came.
    Nothing,
}

/// From when on a caller whose time is up has waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    /// How much had been learned of the name when it came.
    pub(crate) news: u64,
    /// When half of its time was over.
    pub(crate) half_time: Option<Instant>,
}

impl Since {
    /// Whether the server has answered this process's requests for the name since then, although what was asked at
    /// `unanswered_since` has no answer yet. After half of the caller's time without that answer, the server is silent.
    pub(super) fn has_news(self, news: u64, unanswered_since: Option<Instant>) -> bool {
        let is_silent = unanswered_since.is_some_and(|since| Some(since) < self.half_time);
        news > self.news && !is_silent
    }
}
