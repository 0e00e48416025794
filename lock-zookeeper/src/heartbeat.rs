//! What a session's acknowledged heartbeats prove about its life at the server. No I/O.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::backend::Sent;
use tokio::time::Instant;

/// Heartbeats in a session timeout: so many that a slow way costs little more than its delay.
const PER_TIMEOUT: u32 = 12;

/// Half a tick is not more than this part of a session timeout of three ticks or more.
const HALF_TICK: u32 = 6;

/// The moment before a heartbeat went out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    pub(crate) sent: Sent,
    pub(crate) at: Instant,
}

impl Beat {
    pub(crate) fn now() -> Self {
        let sent = Sent::now();
        Self {
            sent,
            at: Instant::now(),
        }
    }
}

/// The record of a session's heartbeats.
///
/// A `sync` that a follower answered proves that the follower was connected to its leader, but does not prolong the
/// session: the follower's next answer to the leader's ping does, which comes every half tick. So an answer proves
/// that an *earlier* heartbeat has prolonged it, if half a tick lies between that one's answer and this one's sending;
/// between both sendings is not enough, since both may have been held up on their way together. A sixth of the
/// session timeout is half a tick or more where the timeout is three ticks or more; a single server needs none of it.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    timeout: Duration,
    /// Oldest first, none older than the base.
    answered: VecDeque<Answered>,
    base: Beat,
}

#[derive(Debug)]
struct Answered {
    beat: Beat,
    at: Instant,
}

impl Heartbeats {
    /// A session that was asked for at `connect`, before which it cannot have begun, and is there `now`.
    pub(crate) fn new(connect: Beat, now: Instant, timeout: Duration) -> Self {
        let connected = Answered { beat: connect, at: now };
        Self {
            timeout,
            answered: VecDeque::from([connected]),
            base: connect,
        }
    }

    /// The time between two heartbeats.
    pub(crate) fn interval(&self) -> Duration {
        self.timeout / PER_TIMEOUT
    }

    /// Records a heartbeat that was answered `now`. True when the base has moved.
    pub(crate) fn acknowledge(&mut self, beat: Beat, now: Instant) -> bool {
        let half_tick = self.timeout / HALF_TICK;
        let mut moved = false;
        while let Some(earlier) = self.answered.pop_front_if(|earlier| earlier.at + half_tick <= beat.at) {
            if earlier.beat.at > self.base.at {
                self.base = earlier.beat;
                moved = true;
            }
        }
        // Grants add many of them: an eighth of that is exact enough.
        let newest = self.answered.back();
        if newest.is_none_or(|newest| newest.beat.at + half_tick / 8 <= beat.at) {
            self.answered.push_back(Answered { beat, at: now });
        }
        moved
    }

    /// From when on the session is known to have lived for a whole timeout.
    pub(crate) fn base(&self) -> Beat {
        self.base
    }

    /// Whether enough of the session's life is known to begin a hold.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        now < self.base.at + self.timeout * 5 / 6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(6);

    fn beat(start: Instant, millis: u64) -> Beat {
        Beat {
            sent: Sent::now(),
            at: start + Duration::from_millis(millis),
        }
    }

    fn base(heartbeats: &Heartbeats, start: Instant) -> u128 {
        heartbeats.base().at.duration_since(start).as_millis()
    }

    /// Sent so many milliseconds after the start, and answered so many later.
    fn acknowledge(heartbeats: &mut Heartbeats, start: Instant, sent: u64, later: u64) -> bool {
        let now = start + Duration::from_millis(sent + later);
        heartbeats.acknowledge(beat(start, sent), now)
    }

    fn heartbeats(start: Instant) -> Heartbeats {
        Heartbeats::new(beat(start, 0), start, TIMEOUT)
    }

    #[test]
    fn an_answer_proves_the_one_before() {
        let start = Instant::now();
        let mut heartbeats = heartbeats(start);
        assert!(!acknowledge(&mut heartbeats, start, 200, 0));
        assert_eq!(base(&heartbeats, start), 0);
        assert!(acknowledge(&mut heartbeats, start, 1200, 0));
        assert_eq!(base(&heartbeats, start), 200);
        assert!(acknowledge(&mut heartbeats, start, 2200, 0));
        assert_eq!(base(&heartbeats, start), 1200);
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
        assert!(acknowledge(&mut heartbeats, start, 1200, 0));
        assert!(base(&heartbeats, start) <= 200);
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
        acknowledge(&mut heartbeats, start, 6000, 0);
        assert!(heartbeats.is_fresh(start + Duration::from_millis(6001)));
    }
}
