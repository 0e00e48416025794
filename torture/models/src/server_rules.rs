//! Decisions that lock servers make in their scripts and statements, which the models share.

use std::time::Duration;

use lock_core::backend::rules::{Moment, has_expired};

/// When a hold ends, if the server's clock may have been set back: in `term` at the latest, the longest TTL that its holder
/// ever asked for. Not the TTL of the current request: that would shorten a longer hold.
pub(crate) fn repaired<T: Moment>(expires: T, now: T, term: Duration) -> T {
    now.after(term).map_or(expires, |longest| expires.min(longest))
}

/// The waiter that may take a free name: of all queue entries, in their order, the first that has not expired. An entry
/// without an end lives until its waiter leaves.
pub(crate) fn who_is_next<H, T: Moment>(entries: impl IntoIterator<Item = (H, Option<T>)>, now: T) -> Option<H> {
    let mut live = entries
        .into_iter()
        .filter(|(_, end)| end.is_none_or(|end| !has_expired(end, now)));
    live.next().map(|(holder, _)| holder)
}

/// Whether the asker may take a free name, if `next` is the waiter that may.
pub(crate) fn may_take<H: PartialEq>(asker: &H, next: Option<&H>) -> bool {
    next.is_none_or(|next| next == asker)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_hold_lasts_no_longer_than_its_longest_term() {
        assert_eq!(repaired(at(15), at(10), at(9)), at(15));
        assert_eq!(repaired(at(15), at(3), at(9)), at(12));
        assert_eq!(repaired(at(15), at(3), Duration::MAX), at(15));
    }

    #[test]
    fn a_free_name_is_the_first_live_waiters() {
        let entries = [("a", Some(at(10))), ("b", Some(at(20))), ("c", None)];
        let next = |now| who_is_next(entries, at(now));
        assert_eq!((next(9), next(10), next(20)), (Some("a"), Some("b"), Some("c")));
        assert_eq!(who_is_next(entries[..2].iter().copied(), at(20)), None);
        assert!(may_take(&"a", Some(&"a")) && may_take(&"b", None) && !may_take(&"b", Some(&"a")));
    }
}
