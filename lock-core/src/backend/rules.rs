//! The decisions of a lock server and of its clients, as plain functions.
//!
//! The memory backend and [`Lease`](super::Lease) call them. So do the models of the protocols, which try every order of
//! events. A server that decides in its own scripts or statements must decide the same: a differential test compares both.
//!
//! ```
//! # use std::time::Duration;
//! # use lock_core::backend::rules;
//! let ttl = Duration::from_secs(10);
//! let (sent, asked) = (Duration::from_secs(100), Duration::from_secs(101)); // by two clocks, or by one
//! let expires = rules::prolonged(asked, asked, ttl); // at the server
//! let lease = rules::lease_ends(None, sent, ttl, false); // by the client
//! assert_eq!((lease, expires), (Duration::from_secs(109), Duration::from_secs(111)));
//! ```

use std::time::Duration;

use super::Mode;
use crate::sync::time::Instant;
use crate::time::LeaseInstant;
use crate::token::FencingToken;

/// A moment by the clock that decides: on a client the local monotonic one, at a server its own.
pub trait Moment: Copy + Ord {
    /// Returns the moment `time` after this one, unless the clock ends before it.
    fn after(self, time: Duration) -> Option<Self>;
}

impl Moment for Instant {
    fn after(self, time: Duration) -> Option<Self> {
        self.checked_add(time)
    }
}

impl Moment for LeaseInstant {
    fn after(self, time: Duration) -> Option<Self> {
        self.checked_add(time)
    }
}

/// As the time since whatever the clock counts from.
impl Moment for Duration {
    fn after(self, time: Duration) -> Option<Self> {
        self.checked_add(time)
    }
}

/// Returns the length of a client's lease for a TTL of the server: a tenth less, since clocks may run apart by 5 % and
/// a server's clock may tick coarsely.
pub fn lease_time(ttl: Duration) -> Duration {
    ttl - ttl / 10
}

/// Returns the new end of a client's lease, after the answer to a request that was sent at `sent` and asked for `ttl`.
/// `end` is the former end, if the lease was armed before. The result is never earlier than `end`; a fixed lease's end
/// never moves.
///
/// A TTL past the end of the clock gives a lease that has ended.
pub fn lease_ends<T: Moment>(end: Option<T>, sent: T, ttl: Duration, fixed: bool) -> T {
    let armed = sent.after(lease_time(ttl)).unwrap_or(sent);
    match end {
        Some(end) if fixed => end,
        Some(end) => end.max(armed),
        None => armed,
    }
}

/// Returns whether a lease, a hold or a queue entry that ends at `end` is over at `now`.
pub fn has_expired<T: Moment>(end: T, now: T) -> bool {
    end <= now
}

/// Returns the end of a hold that rests on several leases and needs `nth` of them, counted from 1: the `nth` latest of
/// their ends. Ends that are over at `now` do not count. `None` if too few are left.
pub fn nth_latest_end<T: Moment>(ends: impl IntoIterator<Item = T>, nth: usize, now: T) -> Option<T> {
    let mut live: Vec<T> = ends.into_iter().filter(|end| !has_expired(*end, now)).collect();
    live.sort_unstable_by(|one, other| other.cmp(one));
    live.get(nth.checked_sub(1)?).copied()
}

/// Returns whether a hold may be passed on within its process, for the `number`th time since it was granted at
/// `granted`. Its lease ends at `end`, and the next holder inherits it: at least half of a fresh lease must be left.
/// Its token, `number` above that of the grant, must not run ahead of a server's clock that counts microseconds.
pub fn may_pass<T: Moment>(granted: T, now: T, number: u32, end: T, ttl: Duration) -> bool {
    let is_past = |start: T, time| start.after(time).is_some_and(|moment| has_expired(moment, now));
    let lasts = now.after(lease_time(ttl) / 2).is_some_and(|needed| needed <= end);
    lasts && is_past(granted, time_of_passes(number))
}

/// The shortest time since the grant in which a hold may be passed on `number` times, so that its tokens stay behind
/// the server's clock. Twice the microseconds, since clocks may run apart.
pub(crate) fn time_of_passes(number: u32) -> Duration {
    Duration::from_micros(2 * u64::from(number))
}

/// Returns whether the server has confirmed a hold that ends with its connection recently enough to pass it on to an
/// acquire that began at `asked`. `confirmed` is the sending time of the request whose answer confirmed it last. It
/// must not be earlier than `asked`, and less than `within` before `now`. So a hold that ended before the acquire began
/// is never passed on to it.
pub fn is_confirmed<T: Moment>(confirmed: T, asked: T, now: T, within: Duration) -> bool {
    asked <= confirmed && confirmed.after(within).is_none_or(|end| !has_expired(end, now))
}

/// Returns whether the hold is the asker's. Only its holder may renew it, release it and pass it on.
pub fn is_mine<H: PartialEq>(holder: &H, asker: &H) -> bool {
    holder == asker
}

/// Returns whether `token` is one of a hold's tokens: that of its grant, `granted`, or one reserved with it, up to
/// `last`. A pass leaves the hold at the server as it is and counts its token up, so all of them name the same hold.
pub fn has_token(granted: FencingToken, last: FencingToken, token: FencingToken) -> bool {
    granted <= token && token <= last
}

/// Returns whether a request in mode `asked` may hold the name together with all who hold it, `held`.
///
/// An exclusive holder is alone. Readers hold it together, at most one of them upgradable. Permits hold it together if all of
/// them, with those that are asked for, are at most the limit of the request.
pub fn fits(held: impl IntoIterator<Item = Mode>, asked: Mode) -> bool {
    let mut taken = match asked {
        Mode::Permits(permits) => u64::from(permits.take()),
        _ => 0,
    };
    for mode in held {
        match (mode, asked) {
            (Mode::Shared | Mode::Upgradable, Mode::Shared) | (Mode::Shared, Mode::Upgradable) => {}
            (Mode::Permits(permits), Mode::Permits(_)) => taken += u64::from(permits.take()),
            _ => return false,
        }
    }
    match asked {
        Mode::Permits(permits) => taken <= u64::from(permits.of()),
        _ => true,
    }
}

/// Returns whether a request in mode `asked` is granted now: it fits with all who hold the name, `held`, and with all
/// live queue entries before it, `before`, which are granted now as well. An entry that is not granted now stops all
/// behind it.
pub fn admits(held: impl IntoIterator<Item = Mode>, before: impl IntoIterator<Item = Mode>, asked: Mode) -> bool {
    let mut held: Vec<Mode> = held.into_iter().collect();
    for mode in before {
        if !fits(held.iter().copied(), mode) {
            return false;
        }
        held.push(mode);
    }
    fits(held, asked)
}

/// Returns the end of a hold after a request for `ttl` from now. Never earlier than it was.
///
/// A TTL past the end of the clock changes nothing.
pub fn prolonged<T: Moment>(expires: T, now: T, ttl: Duration) -> T {
    now.after(ttl).map_or(expires, |wanted| expires.max(wanted))
}

/// The token after `stored`, the last one that the server remembers. It is larger than `floor`, and at least the server's
/// `clock`, so that it grows even if the stored one was lost. `None` if all numbers are used up.
pub fn next_token(stored: u64, clock: u64, floor: Option<FencingToken>) -> Option<FencingToken> {
    let floor = floor.map_or(0, FencingToken::as_u64);
    FencingToken::new(stored.max(floor).checked_add(1)?.max(clock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Permits;

    #[test]
    fn readers_and_permits_hold_together_and_a_writer_alone() {
        use Mode::{Exclusive, Shared, Upgradable};
        let permits = |take, of| Mode::Permits(Permits::new(take, of).unwrap());
        for asked in [Exclusive, Shared, Upgradable, permits(1, 1)] {
            assert!(fits([], asked));
            assert!(!fits([Exclusive], asked) && !fits([asked], Exclusive));
        }
        assert!(fits([Shared, Upgradable, Shared], Shared));
        assert!(fits([Shared, Shared], Upgradable) && !fits([Shared, Upgradable], Upgradable));
        assert!(!fits([Shared], permits(1, 9)) && !fits([permits(1, 9)], Shared));
        // The limit of the request counts, and not that of those who hold.
        assert!(fits([permits(2, 2), permits(2, 9)], permits(1, 5)));
        assert!(!fits([permits(2, 9), permits(2, 9)], permits(1, 4)));
        assert!(!fits([permits(u32::MAX, u32::MAX); 2], permits(1, u32::MAX)));
    }

    #[test]
    fn nobody_passes_a_queue_entry_that_has_to_wait() {
        use Mode::{Exclusive, Shared};
        let permits = |take| Mode::Permits(Permits::new(take, 3).unwrap());
        // Readers enter together, up to the first writer.
        assert!(admits([Shared], [Shared, Shared], Shared));
        assert!(!admits([Shared], [Exclusive], Shared) && !admits([], [Shared], Exclusive));
        assert!(admits([], [], Exclusive) && !admits([], [Exclusive], Exclusive));
        // Those before it that are granted now count.
        assert!(admits([permits(1)], [permits(1)], permits(1)));
        assert!(!admits([permits(1)], [permits(2)], permits(1)));
        // One that has to wait is not passed, although there is room.
        assert!(!admits([permits(1)], [permits(3)], permits(1)));
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn expiry_moves_only_forward() {
        assert_eq!(prolonged(at(15), at(10), at(2)), at(15));
        assert_eq!(prolonged(at(15), at(10), at(9)), at(19));
        assert_eq!(prolonged(at(15), at(10), Duration::MAX), at(15));
        assert!(has_expired(at(15), at(15)) && !has_expired(at(15), at(10)));
        let now = Instant::now();
        assert_eq!(prolonged(now, now, Duration::MAX), now);
        assert_eq!(prolonged(now, now, at(1)), now + at(1));
    }

    #[test]
    fn a_lease_is_a_tenth_shorter_and_moves_only_forward() {
        let first = lease_ends(None, at(100), at(10), false);
        assert_eq!(first, at(109));
        assert_eq!(lease_ends(Some(first), at(103), at(10), false), at(112));
        assert_eq!(lease_ends(Some(first), at(103), at(2), false), first);
        assert_eq!(lease_ends(Some(first), at(103), at(10), true), first);
        assert_eq!(lease_ends(None, Duration::MAX, at(10), false), Duration::MAX);
    }

    #[test]
    fn a_confirmation_counts_for_those_who_came_before_it_and_not_for_long() {
        let confirmed = |at_: u64, asked: u64, now: u64| is_confirmed(at(at_), at(asked), at(now), at(5));
        assert!(confirmed(10, 9, 11) && confirmed(10, 10, 14));
        assert!(!confirmed(10, 11, 12), "it may have ended before that acquire began");
        assert!(!confirmed(10, 9, 15), "too long ago");
    }

    #[test]
    fn a_hold_on_several_leases_ends_with_the_nth_latest() {
        let end = |nth, now| nth_latest_end([at(15), at(20), at(10)], nth, at(now));
        assert_eq!(
            (end(1, 0), end(2, 0), end(3, 0)),
            (Some(at(20)), Some(at(15)), Some(at(10)))
        );
        // An end that is over does not count, so no hold can need it.
        assert_eq!(
            (end(3, 9), end(3, 10), end(2, 14), end(2, 15)),
            (Some(at(10)), None, Some(at(15)), None)
        );
        assert_eq!((end(0, 0), end(4, 0)), (None, None));
        assert_eq!(nth_latest_end([at(5); 3], 2, at(4)), Some(at(5)));
    }

    #[test]
    fn tokens_grow_past_the_floor_and_the_clock_and_end() {
        let number = |token: Option<FencingToken>| token.map(FencingToken::as_u64);
        assert_eq!(number(next_token(0, 0, None)), Some(1));
        assert_eq!(number(next_token(4, 0, FencingToken::new(9))), Some(10));
        assert_eq!(number(next_token(4, 70, FencingToken::new(9))), Some(70));
        assert_eq!(number(next_token(70, 70, None)), Some(71));
        assert_eq!(number(next_token((1 << 63) - 1, 0, None)), None);
        assert_eq!(number(next_token(u64::MAX, 0, None)), None);
    }

    #[test]
    fn a_hold_is_passed_on_with_half_of_its_lease_and_behind_the_clock() {
        let micros = Duration::from_micros;
        let may = |now, number, end| may_pass(micros(100), micros(now), number, end, at(10));
        let lasts = |now| micros(now) + Duration::from_millis(4500);
        assert!(may(102, 1, lasts(102)) && !may(102, 1, lasts(101)));
        assert!(!may(101, 1, at(9)) && may(132, 16, at(9)) && !may(131, 16, at(9)));
    }

    #[test]
    fn an_id_is_mine_alone() {
        assert!(is_mine(&"a", &"a") && !is_mine(&"a", &"b"));
    }
}
