//! What a connection knows of the hold that it carries.

use std::time::Duration;

use lock_core::LostCause;
use lock_core::backend::{AcquireRequest, HolderId, Lease, SentAt};
use tokio::time::Instant;

use crate::protocol::seconds_up;

/// A hold on its connection. Dropping it without [`let_go`](Self::let_go) means that the connection ended: the hold is
/// lost.
#[derive(Debug)]
pub(crate) struct Held {
    /// `None` once it was let go.
    lease: Option<Lease>,
    holder: HolderId,
    term: Term,
}

/// For how long the server is to keep the hold of a client that falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    end: Instant,
    /// What was asked for last.
    ttl: Duration,
    fixed: bool,
}

impl Held {
    /// A hold of `ttl` from `sent` on.
    pub(crate) fn new(request: &AcquireRequest, sent: Instant, ttl: Duration) -> Self {
        let term = Term {
            end: sent + ttl,
            ttl,
            fixed: request.is_fixed(),
        };
        Self {
            lease: Some(request.lease().clone()),
            holder: request.holder(),
            term,
        }
    }

    pub(super) fn is_of(&self, holder: HolderId) -> bool {
        self.holder == holder
    }

    /// It was released.
    pub(super) fn let_go(mut self) {
        self.lease = None;
    }

    pub(super) fn term(&self) -> Term {
        self.term
    }

    pub(super) fn prolong(&mut self, sent: Instant, ttl: Duration) {
        self.term.prolong(sent, ttl);
    }

    /// A ping that was sent then counts as a renewal: by it, too, the server keeps the hold for [`Term::seconds`].
    pub(super) fn renewed_by_ping(&self, sent: SentAt) {
        if let Some(lease) = &self.lease
            && !self.term.fixed
        {
            // A lease that is over stays over.
            let _ = lease.arm(sent, self.term.ttl);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(lease) = &self.lease {
            lease.lose(LostCause::Disconnected);
        }
    }
}

impl Term {
    /// When it ends by itself.
    pub(super) fn end(self) -> Instant {
        self.end
    }

    /// At least `ttl` from `sent` on, never shorter than it was; a fixed one stays.
    fn prolong(&mut self, sent: Instant, ttl: Duration) {
        if !self.fixed {
            self.end = self.end.max(sent + ttl);
            self.ttl = ttl;
        }
    }

    /// The seconds of silence after which the server is to end it: its ttl, or longer if it was extended. They count
    /// from each statement anew, so those of a fixed one shrink as its end draws near.
    pub(super) fn seconds(self, now: Instant) -> u64 {
        let rest = self.end.saturating_duration_since(now);
        seconds_up(if self.fixed { rest } else { rest.max(self.ttl) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn term(end: Instant, ttl: Duration, fixed: bool) -> Term {
        Term { end, ttl, fixed }
    }

    #[test]
    fn the_rest_of_a_fixed_one_is_rounded_up_and_shrinks() {
        let start = Instant::now();
        let term = term(start + secs(10), secs(10), true);
        assert_eq!(term.seconds(start), 10);
        assert_eq!(term.seconds(start + Duration::from_millis(500)), 10);
        assert_eq!(term.seconds(start + secs(9)), 1);
        assert_eq!(term.seconds(start + secs(20)), 1);
    }

    #[test]
    fn a_shorter_renewal_does_not_shorten() {
        let start = Instant::now();
        let mut term = term(start + secs(60), secs(60), false);
        term.prolong(start + secs(3), secs(10));
        assert_eq!(term.seconds(start + secs(3)), 57);
        assert_eq!(term.seconds(start + secs(52)), 10);
        term.prolong(start + secs(55), secs(10));
        assert_eq!(term.end(), start + secs(65));
    }

    #[test]
    fn a_fixed_term_stays() {
        let start = Instant::now();
        let mut term = term(start + secs(5), secs(5), true);
        term.prolong(start + secs(4), secs(5));
        assert_eq!(term.end(), start + secs(5));
    }
}
