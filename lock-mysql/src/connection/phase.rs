//! The state of a connection, and the hold that it carries.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, HolderId, Lease, SentAt};
use lock_core::{Error, LostCause};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::monitor::{CHECK_INTERVAL, RegisteredHold};
use crate::error::SqlError;
use crate::protocol::seconds_up;

/// The time after which a quiet connection that carries a hold is used: proxies and firewalls drop those that are quiet for minutes.
/// If it ends at the server, [`super::monitor`] notices that before: the driver does not notice by itself.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The time for which an unused connection is kept.
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// The server is asked to keep an unused connection after this; before, it may be used again on the terms that it has.
const EXTEND_IDLE_AFTER: Duration = Duration::from_millis(400);

/// The state of a connection.
pub(super) enum Phase {
    /// Somebody runs statements on it.
    InUse,
    /// Nobody uses it since then. `extended`: the server knows that it is to keep it.
    Idle { since: Instant, extended: bool },
    /// It carries a hold.
    Holding {
        hold: CarriedHold,
        ping: Instant,
        read_only: Option<ReadOnlySpan>,
        /// `None` if nobody monitors it.
        _registered: Option<RegisteredHold>,
    },
    /// It carried this holder's hold until that was released, and nobody has used it since.
    Released(HolderId),
}

impl Phase {
    /// The moment of the next thing to do without a command.
    ///
    /// `max_read_only`: the hold ends if the server is read-only for longer.
    pub(super) fn wakes_at(&self, max_read_only: Duration) -> Option<Instant> {
        match self {
            Self::InUse | Self::Released(_) => None,
            Self::Idle { since, extended: false } => Some(*since + EXTEND_IDLE_AFTER),
            Self::Idle { since, extended: true } => Some(*since + IDLE_LIMIT),
            Self::Holding {
                hold, ping, read_only, ..
            } => {
                let ask = read_only.map(|span| span.asks_at(max_read_only));
                Some(hold.expires_at().min(ask.map_or(*ping, |ask| ask.min(*ping))))
            }
        }
    }

    /// The server was asked at `asked` whether it is read-only. Returns whether it is so for too long.
    pub(super) fn note_read_only(&mut self, is_read_only: bool, asked: Instant, max_read_only: Duration) -> bool {
        let Self::Holding { read_only, .. } = self else {
            return false;
        };
        *read_only = ReadOnlySpan::after(*read_only, is_read_only, asked);
        read_only.is_some_and(|span| span.is_over(max_read_only))
    }

    /// The server has become read-only, which ends the hold.
    pub(super) fn lose_to_read_only(&mut self) {
        if let Self::Holding { hold, .. } = std::mem::replace(self, Self::InUse) {
            hold.lease.lose(LostCause::ReadOnly, None);
        }
    }

    /// The connection or its transaction has ended, and with it the hold.
    pub(super) fn lose_because(&mut self, error: &SqlError) {
        if let Self::Holding { hold, .. } = std::mem::replace(self, Self::InUse) {
            hold.lease.lose(LostCause::Disconnected, Some(error.why_lost()));
        }
    }

    pub(super) fn is_holding(&self) -> bool {
        matches!(self, Self::Holding { .. })
    }

    /// The hold that the connection carries, if it is this holder's: the connection may have gone to another since.
    pub(super) fn hold_of(&mut self, holder: HolderId) -> Option<&mut CarriedHold> {
        match self {
            Self::Holding { hold, .. } if hold.belongs_to(holder) => Some(hold),
            _ => None,
        }
    }

    /// The moment after which an answer is of no use any more.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Holding { hold, .. } => Some(hold.expires_at()),
            Self::InUse | Self::Idle { .. } | Self::Released(_) => None,
        }
    }
}

/// The server was read-only whenever it was asked, from `since` to `asked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadOnlySpan {
    since: Instant,
    asked: Instant,
}

impl ReadOnlySpan {
    /// The span after the answer to a question that was sent at `asked`.
    fn after(span: Option<Self>, is_read_only: bool, asked: Instant) -> Option<Self> {
        let since = span.map_or(asked, |span| span.since);
        is_read_only.then_some(Self { since, asked })
    }

    /// True if the server has been read-only for as long as a hold may outlast it.
    fn is_over(self, max_read_only: Duration) -> bool {
        self.asked.saturating_duration_since(self.since) >= max_read_only
    }

    /// The moment of the next question. It comes soon, since the server may take writes again in between.
    fn asks_at(self, max_read_only: Duration) -> Instant {
        let again = self.asked + CHECK_INTERVAL;
        self.since
            .checked_add(max_read_only)
            .map_or(again, |end| end.min(again))
    }
}

/// A hold on its connection. If it is dropped without [`mark_released`](Self::mark_released), the connection ended and
/// the hold is lost.
#[derive(Debug)]
pub(crate) struct CarriedHold {
    lease: LeaseSlot,
    holder: HolderId,
    expiry: Expiry,
}

/// The lease of whoever has the hold at the moment; nothing once the hold was released or lost. It changes when the hold is
/// passed on, without the connection's task.
#[derive(Clone, Debug)]
pub(super) struct LeaseSlot(Arc<Mutex<Option<Lease>>>);

impl LeaseSlot {
    /// From now on a loss is this lease's. False if the hold has ended.
    pub(super) fn pass_to(&self, next: &Lease) -> bool {
        let mut slot = self.0.lock();
        let is_held = slot.is_some();
        if is_held {
            *slot = Some(next.clone());
        }
        is_held
    }

    /// The hold has ended, for this reason if it is known.
    pub(super) fn lose(&self, cause: LostCause, why: Option<Error>) {
        let lease = self.take();
        match (lease, why) {
            (Some(lease), Some(why)) => lease.lose_because(cause, why),
            (Some(lease), None) => lease.lose(cause),
            (None, _) => {}
        }
    }

    fn take(&self) -> Option<Lease> {
        self.0.lock().take()
    }
}

/// For how long the server is to keep the hold of a client that falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expiry {
    at: Instant,
    /// The TTL of the last renewal.
    ttl: Duration,
    fixed: bool,
}

impl CarriedHold {
    /// A hold of `ttl` from `sent` on.
    pub(crate) fn new(request: &AcquireRequest, sent: Instant, ttl: Duration) -> Self {
        let expiry = Expiry {
            at: sent + ttl,
            ttl,
            fixed: request.is_fixed(),
        };
        Self {
            lease: LeaseSlot(Arc::new(Mutex::new(Some(request.lease().clone())))),
            holder: request.holder(),
            expiry,
        }
    }

    pub(super) fn holder(&self) -> HolderId {
        self.holder
    }

    pub(super) fn lease(&self) -> &LeaseSlot {
        &self.lease
    }

    pub(super) fn belongs_to(&self, holder: HolderId) -> bool {
        self.holder == holder
    }

    /// It was released.
    pub(super) fn mark_released(self) {
        drop(self.lease.take());
    }

    pub(super) fn expires_at(&self) -> Instant {
        self.expiry.at
    }

    /// The `wait_timeout` for statements that are sent now.
    pub(super) fn wait_timeout(&self, now: Instant) -> u64 {
        self.expiry.wait_timeout(now)
    }

    pub(super) fn renew(&mut self, sent: Instant, ttl: Duration) {
        self.expiry.renew(sent, ttl);
    }

    /// A ping that was sent then counts as a renewal: by it, too, the server keeps the hold for [`Expiry::wait_timeout`].
    pub(super) fn count_ping_as_renewal(&self, sent: SentAt) {
        let lease = self.lease.0.lock().clone();
        if let Some(lease) = lease
            && !self.expiry.fixed
        {
            // A lease that is over stays over.
            let _ = lease.arm(sent, self.expiry.ttl);
        }
    }
}

impl Drop for CarriedHold {
    fn drop(&mut self) {
        self.lease.lose(LostCause::Disconnected, None);
    }
}

impl Expiry {
    /// At least `ttl` from `sent` on, never shorter than it was; a fixed one stays.
    fn renew(&mut self, sent: Instant, ttl: Duration) {
        if !self.fixed {
            self.at = self.at.max(sent + ttl);
            self.ttl = ttl;
        }
    }

    /// The seconds of silence after which the server is to end it: its ttl, or longer if it was extended. They count
    /// from each statement anew, so those of a fixed one shrink as its end draws near.
    fn wait_timeout(self, now: Instant) -> u64 {
        let rest = self.at.saturating_duration_since(now);
        seconds_up(if self.fixed { rest } else { rest.max(self.ttl) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn expiry(at: Instant, ttl: Duration, fixed: bool) -> Expiry {
        Expiry { at, ttl, fixed }
    }

    #[test]
    fn the_rest_of_a_fixed_one_is_rounded_up_and_shrinks() {
        let start = Instant::now();
        let expiry = expiry(start + secs(10), secs(10), true);
        assert_eq!(expiry.wait_timeout(start), 10);
        assert_eq!(expiry.wait_timeout(start + Duration::from_millis(500)), 10);
        assert_eq!(expiry.wait_timeout(start + secs(9)), 1);
        assert_eq!(expiry.wait_timeout(start + secs(20)), 1);
    }

    #[test]
    fn a_shorter_renewal_does_not_shorten() {
        let start = Instant::now();
        let mut expiry = expiry(start + secs(60), secs(60), false);
        expiry.renew(start + secs(3), secs(10));
        assert_eq!(expiry.wait_timeout(start + secs(3)), 57);
        assert_eq!(expiry.wait_timeout(start + secs(52)), 10);
        expiry.renew(start + secs(55), secs(10));
        assert_eq!(expiry.at, start + secs(65));
    }

    #[test]
    fn a_server_that_takes_writes_in_between_is_read_only_anew() {
        let (start, most) = (Instant::now(), secs(2));
        let after = |span, is_read_only, seconds| ReadOnlySpan::after(span, is_read_only, start + secs(seconds));
        let first = after(None, true, 1);
        assert!(!first.unwrap().is_over(most) && first.unwrap().is_over(Duration::ZERO));
        assert_eq!(first.unwrap().asks_at(most), start + secs(1) + CHECK_INTERVAL);
        let second = after(first, true, 3).unwrap();
        assert!(second.is_over(most));
        assert_eq!(
            second.asks_at(secs(2) + CHECK_INTERVAL / 2),
            start + secs(3) + CHECK_INTERVAL / 2
        );
        assert_eq!(after(first, false, 2), None);
        assert!(!after(None, true, 3).unwrap().is_over(most));
    }

    #[test]
    fn a_fixed_expiry_stays() {
        let start = Instant::now();
        let mut expiry = expiry(start + secs(5), secs(5), true);
        expiry.renew(start + secs(4), secs(5));
        assert_eq!(expiry.at, start + secs(5));
    }
}
