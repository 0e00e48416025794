//! When a connection on which nothing is heard counts as silent, and when it is replaced.

use std::time::Duration;

/// The response timeout has this many heartbeats, or more.
const BEATS: u32 = 10;
/// A waiter has to learn of an outage within two seconds.
const LONGEST_BEAT: Duration = Duration::from_millis(500);

/// Counts the heartbeats at which nothing had come from a server that was asked. It counts them and does not read the clock,
/// since a process that was paused has received nothing either.
#[derive(Debug)]
pub(super) struct Heartbeat {
    interval: Duration,
    /// How many heartbeats in a row.
    quiet: u32,
    silent_after: u32,
    timeout_after: u32,
}

/// The state of the connection after a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// Something came from the server.
    Heard,
    /// Nothing came. The server should be asked, if it is not.
    Quiet,
    /// Waiters should know that the server does not reply.
    Silent,
    /// The connection should be replaced.
    TimedOut,
}

impl Heartbeat {
    /// `longest` is how long a connection may be silent. `dialing` is how long it took to make it, about five round trips:
    /// on a slow line a reply is not late before twice a round trip.
    pub(super) fn new(longest: Duration, dialing: Duration) -> Self {
        let interval = (longest / BEATS).clamp(Duration::from_millis(1), LONGEST_BEAT);
        let beats = |time: Duration| u32::try_from(time.as_nanos().div_ceil(interval.as_nanos())).unwrap_or(u32::MAX);
        Self {
            interval,
            quiet: 0,
            silent_after: beats(dialing / 2).saturating_add(2),
            timeout_after: beats(longest),
        }
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// To be called at each heartbeat.
    pub(super) fn beat(&mut self, was_heard: bool, is_asked: bool) -> Beat {
        if was_heard {
            self.quiet = 0;
            return Beat::Heard;
        }
        self.quiet = if is_asked { self.quiet + 1 } else { 0 };
        match self.quiet {
            quiet if quiet >= self.timeout_after => Beat::TimedOut,
            quiet if quiet >= self.silent_after => Beat::Silent,
            _ => Beat::Quiet,
        }
    }

    /// How long nothing was heard.
    pub(super) fn silence(&self) -> Duration {
        self.interval * self.quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// What so many heartbeats say in which nothing is heard from a server that was asked.
    fn beats_of(heartbeat: &mut Heartbeat, beats: usize) -> Vec<Beat> {
        (0..beats).map(|_| heartbeat.beat(false, true)).collect()
    }

    #[test]
    fn a_silent_server_is_silent_after_a_second_and_timeout_after_the_longest_silence() {
        use Beat::{Quiet, Silent, TimedOut};
        let mut heartbeat = Heartbeat::new(ms(5000), ms(3));
        assert_eq!(heartbeat.interval(), ms(500));
        assert_eq!(beats_of(&mut heartbeat, 2), [Quiet; 2]);
        assert_eq!(beats_of(&mut heartbeat, 7), [Silent; 7]);
        assert_eq!(beats_of(&mut heartbeat, 1), [TimedOut]);
        assert_eq!(heartbeat.silence(), ms(5000));
    }

    #[test]
    fn only_an_unanswered_question_counts() {
        let mut heartbeat = Heartbeat::new(ms(5000), ms(3));
        for _ in 0..100 {
            assert_eq!(heartbeat.beat(false, false), Beat::Quiet);
            assert_eq!(heartbeat.beat(false, true), Beat::Quiet);
            assert_eq!(heartbeat.beat(true, true), Beat::Heard);
        }
        assert_eq!(heartbeat.silence(), ms(0));
    }

    #[test]
    fn a_slow_line_takes_its_time() {
        // Of round trips of 1.5 s.
        let mut heartbeat = Heartbeat::new(ms(10_000), ms(7500));
        assert_eq!(beats_of(&mut heartbeat, 9), [Beat::Quiet; 9]);
        assert_eq!(heartbeat.beat(false, true), Beat::Silent);
    }

    #[test]
    fn any_longest_silence_has_its_beats() {
        for (longest, beat, beats) in [(1, 1, 1), (50, 5, 10), (1000, 100, 10), (60_000, 500, 120)] {
            let mut heartbeat = Heartbeat::new(ms(longest), ms(0));
            assert_eq!(heartbeat.interval(), ms(beat));
            let beats_of = beats_of(&mut heartbeat, beats);
            assert_eq!(beats_of.last(), Some(&Beat::TimedOut), "{longest}");
            assert!(!beats_of[..beats - 1].contains(&Beat::TimedOut), "{longest}");
        }
    }
}
