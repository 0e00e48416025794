//! The decisions of a lock server, as plain functions: what the memory backend calls, and what the scripts and
//! statements of the others must agree with.

use std::time::Duration;

use tokio::time::Instant;

use crate::backend::HolderId;
use crate::token::FencingToken;

/// Whether a hold that ends at `expires` is over at `now`.
pub(crate) fn has_expired(expires: Instant, now: Instant) -> bool {
    expires <= now
}

/// When a hold ends after a request for `ttl` from now: never earlier than it did.
pub(crate) fn prolonged(expires: Instant, now: Instant, ttl: Duration) -> Instant {
    // A term past the end of the clock changes nothing.
    now.checked_add(ttl).map_or(expires, |wanted| expires.max(wanted))
}

/// The token after `last`, larger than `floor` too; `None` when all are used up.
pub(crate) fn next_token(last: u64, floor: Option<FencingToken>) -> Option<FencingToken> {
    let floor = floor.map_or(0, FencingToken::as_u64);
    FencingToken::new(last.max(floor).checked_add(1)?)
}

/// Whether the holder may take a free name, given who has waited longest.
pub(crate) fn may_take(holder: HolderId, first_waiter: Option<HolderId>) -> bool {
    first_waiter.is_none_or(|first| first == holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_moves_only_forward() {
        let now = Instant::now();
        let expires = now + Duration::from_secs(5);
        assert_eq!(prolonged(expires, now, Duration::from_secs(2)), expires);
        assert_eq!(
            prolonged(expires, now, Duration::from_secs(9)),
            now + Duration::from_secs(9)
        );
        assert_eq!(prolonged(expires, now, Duration::MAX), expires);
        assert!(has_expired(expires, expires) && !has_expired(expires, now));
    }

    #[test]
    fn tokens_grow_past_the_floor_and_end() {
        let number = |token: Option<FencingToken>| token.map(FencingToken::as_u64);
        assert_eq!(number(next_token(0, None)), Some(1));
        assert_eq!(number(next_token(4, FencingToken::new(9))), Some(10));
        assert_eq!(number(next_token((1 << 63) - 1, None)), None);
    }

    #[test]
    fn a_free_name_is_the_first_waiters() {
        let (first, other) = (HolderId::random(), HolderId::random());
        assert!(may_take(first, Some(first)) && may_take(other, None));
        assert!(!may_take(other, Some(first)));
    }
}
