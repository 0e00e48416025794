//! The terms of a request: the options of its lock, and its deadline.

use std::time::Duration;

use crate::backend::options::LockOptions;
use crate::sync::Arc;
use crate::sync::time::Instant;

/// The options with which a name is requested, and until when. While a request waits, TTL, minimum hold, label and deadline
/// may change.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Terms {
    pub(super) options: LockOptions,
    pub(super) deadline: Option<Instant>,
}

impl Terms {
    /// Terms with this ttl, no minimum hold, no label and no deadline.
    pub fn new(ttl: Duration) -> Self {
        let options = LockOptions {
            ttl,
            ..LockOptions::default()
        };
        Self::until(options, None)
    }

    /// Terms with these options. Without a deadline, the request waits for ever.
    pub(crate) fn until(options: LockOptions, deadline: Option<Instant>) -> Self {
        Self { options, deadline }
    }

    /// Sets the [minimum hold](crate::backend::AcquireRequest::minimum). The ttl should be at least as long.
    #[must_use]
    pub fn minimum(mut self, minimum: Duration) -> Self {
        self.options.minimum_hold = Some(minimum);
        self
    }

    /// Sets the holder's label.
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.options.label = Some(label.into());
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

impl LockOptions {
    /// Whether a change to these options changes the request to the server.
    pub(super) fn changes(&self, former: &Self) -> bool {
        (self.ttl, self.minimum_hold) != (former.ttl, former.minimum_hold) || self.label != former.label
    }
}
