//! The proof that a session's acknowledged heartbeats give of its life at the server, and the schedule of heartbeats.
//! No I/O.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::backend::SentAt;
use tokio::time::Instant;

use crate::probe::ServerMode;

/// Heartbeats in a session timeout, while each is answered before half of the time to the next one is over. On a slower
/// line there are twice as many: the more often they are sent, the slower it may be.
const PER_TIMEOUT: u32 = 12;

/// Half a tick is not more than this part of a session timeout. A server grants two ticks or more, unless its
/// `minSessionTimeout` was lowered below that.
const HALF_TICK: u32 = 4;

/// The moment before a heartbeat went out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heartbeat {
    pub(crate) sent: SentAt,
    pub(crate) at: Instant,
}

impl Heartbeat {
    pub(crate) fn now() -> Self {
        let sent = SentAt::now();
        Self {
            sent,
            at: Instant::now(),
        }
    }
}

/// The record of a session's heartbeats.
///
/// # What an answer proves
/// Only the leader ends sessions. It counts a session's timeout anew when a follower reports that it heard from the
/// client. A follower reports only when it answers a ping of the leader. The leader sends a ping every half tick. So an
/// answered heartbeat proves that the follower was connected to its leader, but it does not prolong the session itself.
///
/// Let a heartbeat *e* be answered half a tick before another heartbeat *h* is sent, or earlier:
/// 1. The follower heard *e* before *e* was answered.
/// 2. The leader pings the follower within half a tick after that. The follower's report names the client, unless an
///    earlier report after *e* did.
/// 3. The follower forwards *h* after that report, on the same connection. The leader reads what a connection brings in
///    order. So it has counted the session's timeout anew before it answers *h*, and not before *e* was sent.
///
/// So the session lives for a timeout from the sending of *e*. Half a tick between both sendings is not enough, since both
/// may have been held up on their way and have reached the follower together, between two pings.
///
/// The client does not know the tick. A quarter of the session timeout is half a tick or more, since two ticks are the
/// least that a server grants. With exactly two ticks, nothing is left for a ping that is late. Then *h* may pass the
/// follower before the report that names *e*. But the report before that names the heartbeat before *e*, unless the ping
/// is later than the time between two heartbeats: a twelfth of the timeout. Leases end a tenth of the timeout early.
///
/// A standalone server prolongs the session by itself when the heartbeat arrives, so that an answer counts from its own
/// sending.
#[derive(Debug)]
pub(crate) struct HeartbeatRecord {
    timeout: Duration,
    /// Oldest first, none older than the base.
    answered: VecDeque<Answered>,
    base: Heartbeat,
}

#[derive(Debug)]
struct Answered {
    beat: Heartbeat,
    at: Instant,
}

impl HeartbeatRecord {
    /// A session that was asked for at `connect`, before which it cannot have begun, and is there `now`.
    pub(crate) fn new(connect: Heartbeat, now: Instant, timeout: Duration) -> Self {
        let connected = Answered { beat: connect, at: now };
        Self {
            timeout,
            answered: VecDeque::from([connected]),
            base: connect,
        }
    }

    /// Records a heartbeat that was answered `now`. True when the base has moved.
    pub(crate) fn acknowledge(&mut self, beat: Heartbeat, now: Instant, by: ServerMode) -> bool {
        let half_tick = self.timeout / HALF_TICK;
        let before = self.base.at;
        if by == ServerMode::Standalone {
            self.move_base(beat);
        }
        while let Some(&Answered { beat: earlier, at }) = self.answered.front()
            && at + half_tick <= beat.at
        {
            self.answered.pop_front();
            self.move_base(earlier);
        }
        // Grants add many of them: an eighth of that is exact enough.
        let newest = self.answered.back();
        if newest.is_none_or(|newest| newest.beat.at + half_tick / 8 <= beat.at) {
            self.answered.push_back(Answered { beat, at: now });
        }
        self.base.at > before
    }

    fn move_base(&mut self, beat: Heartbeat) {
        if beat.at > self.base.at {
            self.base = beat;
        }
    }

    /// From when on the session is known to have lived for a whole timeout.
    pub(crate) fn base(&self) -> Heartbeat {
        self.base
    }

    /// True if the heartbeats prove enough of the session's life to begin a hold.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        now < self.base.at + self.timeout * 5 / 6
    }
}

/// The time between two heartbeats that are answered at once.
pub(crate) fn interval(timeout: Duration) -> Duration {
    // Whatever timeout a server grants, nobody asks it all the time.
    (timeout / PER_TIMEOUT).max(Duration::from_millis(1))
}

/// The moment to send the next heartbeat, after one that was sent at `sent` and answered at `answered`, if it was.
///
/// Counted from the answer, every heartbeat proves the one before the last: counted from the sending, it would have been
/// sent too early for that by the time that an answer takes.
pub(crate) fn next(timeout: Duration, sent: Instant, answered: Option<Instant>) -> Instant {
    let interval = interval(timeout);
    match answered {
        Some(answered) => answered + interval,
        None => sent + interval / 2,
    }
}

/// The limit for the answer to a heartbeat, after which the connection counts as silent. It is longer than on a slow
/// line that keeps holds.
pub(crate) fn answer_limit(timeout: Duration) -> Duration {
    timeout / 2
}

/// The limit for a connection that brings nothing at all, after which it is given up.
///
/// Longer than the time between two answers when a line that was fast becomes one with a round trip of 0.4 timeouts; and
/// so short that time is left for a new connection to an ensemble before the holds are lost.
pub(crate) fn read_timeout(timeout: Duration) -> Duration {
    timeout * 11 / 20
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(6);

    fn beat(start: Instant, millis: u64) -> Heartbeat {
        Heartbeat {
            sent: SentAt::now(),
            at: start + Duration::from_millis(millis),
        }
    }

    fn base(heartbeats: &HeartbeatRecord, start: Instant) -> u128 {
        heartbeats.base().at.duration_since(start).as_millis()
    }

    /// Sent so many milliseconds after the start, and answered so many later.
    fn acknowledge(heartbeats: &mut HeartbeatRecord, start: Instant, sent: u64, later: u64) -> bool {
        let now = start + Duration::from_millis(sent + later);
        heartbeats.acknowledge(beat(start, sent), now, ServerMode::PerhapsFollower)
    }

    fn heartbeats(start: Instant) -> HeartbeatRecord {
        HeartbeatRecord::new(beat(start, 0), start, TIMEOUT)
    }

    #[test]
    fn an_answer_proves_the_one_before() {
        let start = Instant::now();
        let mut heartbeats = heartbeats(start);
        assert!(!acknowledge(&mut heartbeats, start, 200, 0));
        assert_eq!(base(&heartbeats, start), 0);
        assert!(!acknowledge(&mut heartbeats, start, 1499, 0));
        assert_eq!(base(&heartbeats, start), 0);
        assert!(acknowledge(&mut heartbeats, start, 1700, 0));
        assert_eq!(base(&heartbeats, start), 200);
        assert!(acknowledge(&mut heartbeats, start, 3200, 0));
        assert_eq!(base(&heartbeats, start), 1700);
    }

    #[test]
    fn a_slow_way_costs_one_more() {
        let start = Instant::now();
        let mut heartbeats = heartbeats(start);
        for sent in [1000, 2000, 3000, 4000] {
            acknowledge(&mut heartbeats, start, sent, 300);
        }
        assert_eq!(base(&heartbeats, start), 2000);
    }

    /// Both were held up on their way and reached the follower together, between two of its leader's pings.
    #[test]
    fn heartbeats_that_were_held_up_together_prove_nothing_of_each_other() {
        let start = Instant::now();
        let mut heartbeats = heartbeats(start);
        acknowledge(&mut heartbeats, start, 1000, 3500);
        acknowledge(&mut heartbeats, start, 2000, 2500);
        acknowledge(&mut heartbeats, start, 3000, 1500);
        assert_eq!(base(&heartbeats, start), 0);
    }

    #[test]
    fn heartbeats_too_close_prove_nothing() {
        let start = Instant::now();
        let mut heartbeats = heartbeats(start);
        for millis in (1..1000).step_by(10) {
            assert!(!acknowledge(&mut heartbeats, start, millis, 0));
        }
        assert!(heartbeats.answered.len() <= 9, "{}", heartbeats.answered.len());
        assert!(acknowledge(&mut heartbeats, start, 1700, 0));
        assert!(base(&heartbeats, start) <= 200);
    }

    #[test]
    fn an_answer_of_a_standalone_server_proves_itself() {
        let start = Instant::now();
        let mut heartbeats = heartbeats(start);
        let late = start + Duration::from_millis(3500);
        assert!(heartbeats.acknowledge(beat(start, 1000), late, ServerMode::Standalone));
        assert_eq!(base(&heartbeats, start), 1000);
        // Its proof stays valid when the next answer may be a follower's, which proves nothing yet.
        assert!(!acknowledge(&mut heartbeats, start, 3000, 1000));
        assert_eq!(base(&heartbeats, start), 1000);
    }

    /// The least that is left of a session's leases, in milliseconds, at any moment of ten session timeouts. The line
    /// has no round trip time until one timeout has passed, and `round_trip` from then on. Negative when a lease ends.
    fn least_left(round_trip: u64, by: ServerMode) -> i128 {
        let start = Instant::now();
        let mut heartbeats = heartbeats(start);
        let (mut under_way, mut due) = (VecDeque::new(), start);
        let (mut last, mut least) = (None, i128::MAX);
        for millis in 0..10 * TIMEOUT.as_millis() as u64 {
            let now = start + Duration::from_millis(millis);
            while let Some((sent, _)) = under_way.pop_front_if(|(_, answered)| *answered <= now) {
                heartbeats.acknowledge(beat(start, sent), now, by);
                if Some(sent) == last {
                    due = next(TIMEOUT, beat(start, sent).at, Some(now));
                }
            }
            if due <= now {
                let slow = millis >= TIMEOUT.as_millis() as u64;
                under_way.push_back((millis, now + Duration::from_millis(if slow { round_trip } else { 0 })));
                last = Some(millis);
                due = next(TIMEOUT, now, None);
            }
            let held_until = base(&heartbeats, start) + TIMEOUT.as_millis() * 9 / 10;
            least = least.min(held_until as i128 - i128::from(millis));
        }
        least
    }

    #[test]
    fn a_slow_line_keeps_the_session() {
        let part = |thousandths: u64| TIMEOUT.as_millis() as u64 * thousandths / 1000;
        assert!(least_left(part(0), ServerMode::PerhapsFollower) > 3000);
        assert!(least_left(part(250), ServerMode::PerhapsFollower) > 0);
        // The proof by an earlier heartbeat costs two round trips and a quarter of the timeout.
        assert!(least_left(part(300), ServerMode::PerhapsFollower) < 0);
        assert!(least_left(part(400), ServerMode::Standalone) > 2000);
    }

    /// The client stalls, is answered once and then cut off: the answer does not prolong the session by itself.
    #[test]
    fn an_answer_after_a_stall_proves_only_what_was_before_it() {
        let start = Instant::now();
        let mut heartbeats = heartbeats(start);
        acknowledge(&mut heartbeats, start, 1000, 0);
        acknowledge(&mut heartbeats, start, 5000, 0);
        assert_eq!(base(&heartbeats, start), 1000);
        assert!(!heartbeats.is_fresh(start + Duration::from_millis(6001)));
        acknowledge(&mut heartbeats, start, 6500, 0);
        assert!(heartbeats.is_fresh(start + Duration::from_millis(6501)));
    }

    /// Six ticks of 2 s. The follower hears a heartbeat at 0, reports it at 1 s, and hears the next one at 4.7 s. It is cut
    /// off at 4.72 s, before its next report. So the leader ends the session 12 s after the first heartbeat at the earliest,
    /// and a lease that counted from the second one would outlive it.
    #[test]
    fn an_answer_just_before_a_cut_does_not_prolong_a_lease() {
        let start = Instant::now();
        let timeout = Duration::from_secs(12);
        let mut heartbeats = HeartbeatRecord::new(beat(start, 0), start, timeout);
        acknowledge(&mut heartbeats, start, 4700, 5);
        assert_eq!(base(&heartbeats, start), 0);
        assert!(base(&heartbeats, start) + timeout.as_millis() * 9 / 10 < 12_000);
    }

    /// Compares the lease of a session of two ticks with the life of the session at its leader, for every phase of the
    /// leader's pings and every moment at which the follower is cut off. All answers are immediate.
    #[test]
    fn no_lease_outlives_a_session_of_two_ticks() {
        const TICK: u64 = 600;
        const HALF: u64 = TICK / 2;
        let timeout = Duration::from_millis(2 * TICK);
        for (phase, cut, stall) in all_faults(HALF) {
            let start = Instant::now();
            let mut heartbeats = HeartbeatRecord::new(beat(start, 0), start, timeout);
            // The leader knows the session from its creation.
            let (mut kept_until, mut heard) = (2 * TICK, false);
            let mut due = start;
            for millis in 0..6 * TICK {
                let now = start + Duration::from_millis(millis);
                let is_connected = millis < cut;
                // A heartbeat that arrives with a ping arrives after it.
                if millis % HALF == phase && is_connected && std::mem::take(&mut heard) {
                    kept_until = kept_until.max(millis + 2 * TICK);
                }
                if due <= now && !stall.contains(&millis) {
                    heard = true;
                    if is_connected {
                        heartbeats.acknowledge(beat(start, millis), now, ServerMode::PerhapsFollower);
                    }
                    due = next(timeout, now, is_connected.then_some(now));
                }
                let believes = u128::from(millis) < base(&heartbeats, start) + timeout.as_millis() * 9 / 10;
                assert!(
                    !believes || millis < kept_until,
                    "phase {phase}, cut {cut}, stall {stall:?}: {millis}"
                );
            }
        }
    }

    /// Phases of the leader's pings, moments of the cut, and times in which the client sends nothing before it.
    fn all_faults(half_tick: u64) -> impl Iterator<Item = (u64, u64, std::ops::Range<u64>)> {
        let phases = (0..half_tick).step_by(50);
        let cuts = move |phase| (half_tick..5 * half_tick).step_by(10).map(move |cut| (phase, cut));
        phases.flat_map(cuts).flat_map(move |(phase, cut)| {
            let stalls = (0..=3 * half_tick).step_by(150);
            stalls.map(move |stall| (phase, cut, cut.saturating_sub(stall)..cut.saturating_sub(10)))
        })
    }
}
