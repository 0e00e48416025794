//! Forced release: an operator ends the hold of somebody else.

use std::time::Duration;

/// The way in which a hold is revoked: see [`Locker::revoke`](crate::Locker::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revoke {
    /// No renewal succeeds any more. The name is free when the lease would have ended without a renewal, and not before: two
    /// holders never overlap.
    AtLeaseEnd,
    /// The name is free at once. Its former holder may act beside the next one until it notices: until its next renewal (a third
    /// of its TTL, and a round trip), or, if it is cut off from the server or has a fixed lease, until its lease ends.
    Now,
}

/// The answer to a revoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revoked {
    /// The hold with that token is revoked.
    Done {
        /// The time for which its lease would have lasted at the server. After [`Revoke::AtLeaseEnd`] the name is free
        /// then. After [`Revoke::Now`] its former holder may act for that long, if it is cut off from the server.
        /// `None` if the server does not know it.
        lease_left: Option<Duration>,
    },
    /// No hold with that token is there any more. Nothing was changed.
    NotHeld,
}

impl Revoked {
    /// The answer for a hold that was revoked, with the rest of its lease if the server knows it.
    pub fn done(lease_left: impl Into<Option<Duration>>) -> Self {
        Self::Done {
            lease_left: lease_left.into(),
        }
    }
}
