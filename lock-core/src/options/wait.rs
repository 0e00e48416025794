//! The time limit of an acquire.

use std::time::Duration;

use crate::sync::time::Instant;
use crate::time::within;

/// The time for which an acquire waits for a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// Not at all. If the name is taken, that is no error.
    Once,
    /// For at most this time. Zero is one try. If the name is taken, that is a timeout.
    Within(Duration),
    /// For at most the rest of the limit for several locks.
    Rest(Rest),
    Forever,
}

/// The rest for one lock of a limit for several locks, or for more than an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) left: Duration,
    /// As the caller gave it.
    pub(crate) limit: Duration,
    /// For how many locks.
    pub(crate) locks: usize,
    /// The time before was spent on locks that were taken, as the server said just now, or on a pause.
    pub(crate) has_waited: bool,
}

impl WaitLimit {
    pub(crate) fn is_patient(self) -> bool {
        match self {
            Self::Once => false,
            Self::Within(limit) => !limit.is_zero(),
            Self::Rest(_) | Self::Forever => true,
        }
    }

    /// The longest time of the acquire in all. A single try may take as long as the server's answer.
    pub(crate) fn time_limit(self, operation_timeout: Duration) -> Option<Duration> {
        match self {
            Self::Within(limit) if self.is_patient() => Some(limit),
            Self::Rest(rest) => Some(rest.left),
            Self::Once | Self::Within(_) => Some(operation_timeout),
            Self::Forever => None,
        }
    }

    /// The moment at which the time of a caller that begins now is up.
    pub(crate) fn deadline(self, operation_timeout: Duration) -> Option<Instant> {
        self.time_limit(operation_timeout)
            .and_then(|limit| Instant::now().checked_add(limit))
    }

    /// True if most of the caller's time was spent on locks that were taken, or on a pause. If the server does not answer in the
    /// rest, it is not silent.
    pub(crate) fn was_spent_waiting(self) -> bool {
        matches!(self, Self::Rest(rest) if rest.has_waited && rest.left < rest.limit / 2)
    }
}

impl Rest {
    /// The end of a sentence that says how long nothing was acquired.
    pub(crate) fn text(self) -> String {
        match self.locks {
            1 => within(self.limit),
            locks => format!("{}, the limit for all {locks} locks", within(self.limit)),
        }
    }
}
