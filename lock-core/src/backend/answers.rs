//! The answers of a backend.

use std::sync::Arc;
use std::time::Duration;

use super::{Armed, Hold};

/// The answer to an acquire.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// The request holds the name.
    Granted(Arc<dyn Hold>, Armed),
    /// Another holder has it.
    Busy(Busy),
}

/// Another holder has the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// The holder's label, if the server knows it.
    pub holder: Option<Arc<str>>,
    /// The time after which the waiter asks again, if the server cannot wake it. Core asks no later. Without it, core
    /// backs off.
    pub ask_again: Option<Duration>,
}

impl Busy {
    /// Busy, by an unknown holder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the holder's label.
    #[must_use]
    pub fn with_holder(mut self, label: impl Into<Arc<str>>) -> Self {
        self.holder = Some(label.into());
        self
    }

    /// Adds when to ask again.
    #[must_use]
    pub fn with_ask_again(mut self, after: Duration) -> Self {
        self.ask_again = Some(after);
        self
    }
}

/// The answer to a renewal.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The hold was renewed.
    Renewed(Armed),
    /// The server answered that the hold is not this holder's any more.
    Lost,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The hold was this holder's and has ended.
    Released,
    /// The hold was not this holder's any more. Nothing was changed.
    AlreadyLost,
}
