//! Detects that this process never got to renew a hold.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::sync::time::Instant;
use crate::time::LeaseInstant;

/// A runtime that is driven sends renewals, or hears of them, more often than this part of the ttl before a lease ends.
const DRIVEN_EVERY: u32 = 3;
/// A machine that was suspended for this part of the ttl lost the hold by that.
const SUSPENDED_FOR: u32 = 10;

/// The latest moment at which core worked on a hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Driven {
    /// The hold's ttl, if core renews it.
    pub(super) ttl: Option<Duration>,
    looked: Option<(LeaseInstant, Instant)>,
}

impl Driven {
    pub(super) fn look(&mut self, now: LeaseInstant) {
        self.looked = Some((now, now.by_runtime()));
    }

    /// The reason why this process did not renew a hold whose lease ended at `end`, if it can tell. A stopped process
    /// and one whose runtime was not driven look the same.
    pub(super) fn stall(&self, end: LeaseInstant, now: LeaseInstant) -> Option<Error> {
        let (ttl, (looked, by_runtime)) = (self.ttl?, self.looked?);
        let awake = now.by_runtime().saturating_duration_since(by_runtime);
        let suspended = now.saturating_duration_since(looked).saturating_sub(awake);
        if suspended > ttl / SUSPENDED_FOR {
            let message = format!("the machine was suspended for {suspended:.1?}");
            return Some(Error::new(ErrorKind::Unavailable, message));
        }
        (end.saturating_duration_since(looked) > ttl / DRIVEN_EVERY).then(|| {
            let message = format!(
                "nobody drove the tokio runtime for {awake:.1?}, or the process was paused: use a multi-thread runtime, or \
                 move work that blocks into spawn_blocking"
            );
            Error::new(ErrorKind::Misconfigured, message)
        })
    }
}
