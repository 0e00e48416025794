//! The terms of a request: TTL, minimum hold, label and deadline.

use std::time::Duration;

use crate::sync::Arc;
use crate::sync::time::Instant;

/// The part of a request that may change while it waits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Terms {
    pub(super) ttl: Duration,
    pub(super) minimum: Option<Duration>,
    pub(super) label: Option<Arc<str>>,
    pub(super) deadline: Option<Instant>,
}

impl Terms {
    /// Terms with this ttl, no minimum hold, no label and no deadline.
    pub fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            minimum: None,
            label: None,
            deadline: None,
        }
    }

    /// Sets the [minimum hold](crate::backend::AcquireRequest::minimum). The ttl should be at least as long.
    #[must_use]
    pub fn minimum(mut self, minimum: Duration) -> Self {
        self.minimum = Some(minimum);
        self
    }

    /// Sets the holder's label.
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets when the request's time is up; `None` for never.
    pub(crate) fn until(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the time limit from now, connecting included.
    #[must_use]
    pub fn time_left(mut self, time: Duration) -> Self {
        // A deadline past the end of the clock is none.
        self.deadline = Instant::now().checked_add(time);
        self
    }
}
