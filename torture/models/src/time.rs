//! Time in the models: whole units, in steps of ten of them, so that a tenth of a ttl is a whole unit too.

use std::fmt;
use std::time::Duration;

use lock_core::backend::rules::Moment;

/// A moment, in units from the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u16);

/// The time of one step. Belief and holds last several steps, and nothing in between makes a difference.
pub const STEP: u16 = 10;

/// So many units. They are written as milliseconds, and mean nothing.
pub const fn units(units: u16) -> Duration {
    Duration::from_millis(units as u64)
}

impl Time {
    /// One step later.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + STEP)
    }

    /// Earlier by so many units.
    #[must_use]
    pub fn less(self, units: u16) -> Self {
        Self(self.0.saturating_sub(units))
    }

    /// The server's clock as tokens count it: it never stands at 0.
    pub fn clock(self) -> u64 {
        u64::from(self.0) + 1
    }
}

impl Moment for Time {
    fn after(self, time: Duration) -> Option<Self> {
        self.0.checked_add(u16::try_from(time.as_millis()).ok()?).map(Self)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
