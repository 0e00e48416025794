//! The holders and waiters of a lock, as the server sees them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Mode;
use crate::token::FencingToken;

/// The holders of a name, as the server answered. For people and dashboards, not for decisions: it may have changed
/// meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// The holders; empty if the name is free.
    pub holders: Vec<HolderStatus>,
    /// The number of waiters that are queued at the server, if it knows. A server that counts the waiters of a held name counts those of
    /// a free one, too: as a rule there are zero.
    pub waiting: Option<usize>,
    /// The waiters at the server, in the order of its queue, if it knows them. Waiters of one process that share a
    /// queue entry count as one. Of a long queue, this may list the first ones only.
    pub waiters: Option<Vec<WaiterStatus>>,
}

/// One waiter in a [`LockStatus`]. A field is `None` if the server does not know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterStatus {
    /// The waiter's label.
    pub label: Option<Arc<str>>,
    /// The mode for which the waiter asks.
    pub mode: Option<Mode>,
    /// Since when it waits, by the server's clock.
    pub since: Option<SystemTime>,
}

/// One holder in a [`LockStatus`]. A field is `None` if the server does not know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderStatus {
    /// The holder's label.
    pub label: Option<Arc<str>>,
    /// The hold's fencing token.
    pub token: Option<FencingToken>,
    /// The time for which the hold lasts if nothing renews it.
    pub expires_in: Option<Duration>,
    /// The mode in which the name is held.
    pub mode: Option<Mode>,
    /// Since when it holds the name, by the server's clock. From the grant on, also if the hold was passed on within a process.
    pub since: Option<SystemTime>,
    /// An id that tells this hold from others at the server: as a rule the holder id.
    pub id: Option<Arc<str>>,
}

impl LockStatus {
    /// The status of a free name. A server that counts waiters adds their number: `LockStatus::free().with_waiting(0)`.
    pub fn free() -> Self {
        Self::default()
    }

    /// The status of a name with this holder.
    pub fn held(holder: HolderStatus) -> Self {
        Self::held_by([holder])
    }

    /// The status of a name with these holders.
    pub fn held_by(holders: impl IntoIterator<Item = HolderStatus>) -> Self {
        Self {
            holders: holders.into_iter().collect(),
            waiting: None,
            waiters: None,
        }
    }

    /// Adds the number of waiters.
    #[must_use]
    pub fn with_waiting(mut self, waiting: usize) -> Self {
        self.waiting = Some(waiting);
        self
    }

    /// Adds the waiters, in order, and their number.
    #[must_use]
    pub fn with_waiters(mut self, waiters: impl IntoIterator<Item = WaiterStatus>) -> Self {
        let waiters: Vec<_> = waiters.into_iter().collect();
        self.waiting = Some(waiters.len());
        self.waiters = Some(waiters);
        self
    }

    /// Returns `true` if anybody holds the name.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

impl HolderStatus {
    /// A holder of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds its label.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Adds its token.
    #[must_use]
    pub fn with_token(mut self, token: FencingToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Adds how long the hold lasts if nothing renews it.
    #[must_use]
    pub fn with_expires_in(mut self, rest: Duration) -> Self {
        self.expires_in = Some(rest);
        self
    }

    /// Adds how it holds the name.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Adds since when it holds the name.
    #[must_use]
    pub fn with_since(mut self, since: SystemTime) -> Self {
        self.since = Some(since);
        self
    }

    /// Adds what tells this hold from others at the server.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl WaiterStatus {
    /// A waiter of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds its label.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Adds how it asks for the name.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Adds since when it waits.
    #[must_use]
    pub fn with_since(mut self, since: SystemTime) -> Self {
        self.since = Some(since);
        self
    }
}

/// Returns the moment of a grant whose token is the server's clock in microseconds since 1970. `None` if the token
/// cannot be such a moment: it is ahead of `now`, which is about the server's time, or from before 2001. A token that
/// had to be ahead of the clock when it was granted shows a moment that is too late by as much.
pub fn since_of_token(token: FencingToken, now: SystemTime) -> Option<SystemTime> {
    const YEAR_2001: u64 = 1_000_000_000_000_000;
    /// Two clocks are never quite equal.
    const TOLERANCE: Duration = Duration::from_secs(60);
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(token.as_u64()))?;
    (token.as_u64() >= YEAR_2001 && at <= now + TOLERANCE).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_a_time_says_since_when() {
        let time = |micros| SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
        let token = |micros| FencingToken::new(micros).unwrap();
        let now = time(1_795_458_000_000_000);
        let granted = 1_795_457_990_123_456;
        assert_eq!(since_of_token(token(granted), now), Some(time(granted)));
        for other in [1, 36, 1_795_459_000_000_000, i64::MAX.unsigned_abs()] {
            assert_eq!(since_of_token(token(other), now), None, "{other}");
        }
    }
}
