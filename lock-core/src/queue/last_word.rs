//! What a caller whose time is up is told of a name.

use crate::backend::AcquireRequest;
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
    /// Whether the server has answered this process's requests for the name since then, although it has not answered
    /// `request` yet. After half of the caller's time without an answer to that one, the server is silent.
    pub(super) fn has_news(self, news: u64, request: Option<&AcquireRequest>) -> bool {
        let is_silent = request.is_some_and(|request| Some(request.made()) < self.half_time);
        news > self.news && !is_silent
    }
}
