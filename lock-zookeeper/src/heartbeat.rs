//! What a session's acknowledged heartbeats prove about its life at the server. No I/O.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::backend::Sent;
use tokio::time::Instant;

/// Heartbeats in a session timeout.
const PER_TIMEOUT: u32 = 6;

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
/// that the *previous* heartbeat has prolonged it, if that was sent at least half a tick earlier. A sixth of the
/// session timeout is half a tick or more where the timeout is three ticks or more; a single server needs none of it.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    timeout: Duration,
    /// Acknowledged, oldest first, none older than the base.
    acknowledged: VecDeque<Beat>,
    base: Beat,
}

impl Heartbeats {
    /// A session that was asked for at `connect`: it cannot have begun before.
    pub(crate) fn new(connect: Beat, timeout: Duration) -> Self {
        Self {
            timeout,
            acknowledged: VecDeque::from([connect]),
            base: connect,
        }
    }

    /// The time between two heartbeats.
    pub(crate) fn interval(&self) -> Duration {
        self.timeout / PER_TIMEOUT
    }

    /// Records an answered heartbeat. True when the base has moved.
    pub(crate) fn acknowledge(&mut self, beat: Beat) -> bool {
        let interval = self.interval();
        let mut moved = false;
        while let Some(next) = self.acknowledged.front().filter(|next| next.at + interval <= beat.at) {
            if next.at > self.base.at {
                self.base = *next;
                moved = true;
            }
            self.acknowledged.pop_front();
        }
        // Grants add many of them: an eighth of the interval is exact enough.
        if self
            .acknowledged
            .back()
            .is_none_or(|last| last.at + interval / 8 <= beat.at)
        {
            self.acknowledged.push_back(beat);
        }
        moved
    }

    /// From when on the session is known to have lived for a whole timeout.
    pub(crate) fn base(&self) -> Beat {
        self.base
    }

    /// Whether enough of the session's life is known to begin a hold.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        now < self.base.at + self.timeout * 3 / 5
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

    #[test]
    fn an_answer_proves_the_one_before() {
        let start = Instant::now();
        let mut heartbeats = Heartbeats::new(beat(start, 0), TIMEOUT);
        assert!(!heartbeats.acknowledge(beat(start, 200)));
        assert_eq!(base(&heartbeats, start), 0);
        assert!(heartbeats.acknowledge(beat(start, 1200)));
        assert_eq!(base(&heartbeats, start), 200);
        assert!(heartbeats.acknowledge(beat(start, 2200)));
        assert_eq!(base(&heartbeats, start), 1200);
    }

    #[test]
    fn heartbeats_too_close_prove_nothing() {
        let start = Instant::now();
        let mut heartbeats = Heartbeats::new(beat(start, 0), TIMEOUT);
        for millis in (1..1000).step_by(10) {
            assert!(!heartbeats.acknowledge(beat(start, millis)));
        }
        assert!(heartbeats.acknowledged.len() <= 9, "{}", heartbeats.acknowledged.len());
        assert!(heartbeats.acknowledge(beat(start, 1200)));
        assert!(base(&heartbeats, start) <= 200);
    }

    /// The client stalls, is answered once and then cut off: the answer does not prolong the session by itself.
    #[test]
    fn an_answer_after_a_stall_proves_only_what_was_before_it() {
        let start = Instant::now();
        let mut heartbeats = Heartbeats::new(beat(start, 0), TIMEOUT);
        heartbeats.acknowledge(beat(start, 1000));
        heartbeats.acknowledge(beat(start, 5000));
        assert_eq!(base(&heartbeats, start), 1000);
        assert!(!heartbeats.is_fresh(start + Duration::from_millis(5000)));
        heartbeats.acknowledge(beat(start, 6000));
        assert!(heartbeats.is_fresh(start + Duration::from_millis(6000)));
    }
}
