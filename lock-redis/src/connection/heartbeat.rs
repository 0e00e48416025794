//! Detects that a connection is silent, and that it must be replaced.

use std::time::Duration;

/// The response timeout has this many heartbeats, or more.
const BEATS: u32 = 10;
/// A waiter has to learn of an outage within two seconds.
const LONGEST_BEAT: Duration = Duration::from_millis(500);
/// The interval of requests to a server that nobody needs: short enough for firewalls and the like to keep the
/// connection.
const IDLE: Duration = Duration::from_secs(30);

/// Counts the heartbeats at which nothing had come from a server that was asked. It counts them and does not read the clock,
/// since a process that was paused has received nothing either.
#[derive(Debug)]
pub(super) struct Heartbeat {
    interval: Duration,
    /// The number of heartbeats in a row that were quiet.
    quiet: u32,
    silent_after: u32,
    timeout_after: u32,
    /// The number of heartbeats in a row without anything from the server, whether it was asked or not.
    unheard: u32,
    /// The number of heartbeats in a row in which nobody used the connection.
    unused: u32,
    idle_after: u32,
    idle_beats: u32,
}

/// The events since the last heartbeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    /// Something came from the server.
    pub(super) was_heard: bool,
    /// A heartbeat's question is not answered yet.
    pub(super) is_asked: bool,
    /// A request was sent, or somebody has a hold or waits.
    pub(super) is_used: bool,
}

/// The state of the connection after a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// Something came from the server.
    Heard,
    /// Nothing came, and nobody needs anything: the server need not be asked.
    Idle,
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
            unheard: 0,
            unused: 0,
            // By then, a request that is under way was answered or has timed out.
            idle_after: beats(longest).saturating_mul(2),
            idle_beats: beats(IDLE),
        }
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// To be called at each heartbeat.
    pub(super) fn beat(&mut self, since: Since) -> Beat {
        self.unused = if since.is_used {
            0
        } else {
            self.unused.saturating_add(1)
        };
        if since.was_heard {
            (self.quiet, self.unheard) = (0, 0);
            return Beat::Heard;
        }
        self.unheard = self.unheard.saturating_add(1);
        self.quiet = if since.is_asked { self.quiet + 1 } else { 0 };
        match self.quiet {
            quiet if quiet >= self.timeout_after => Beat::TimedOut,
            quiet if quiet >= self.silent_after => Beat::Silent,
            _ if !since.is_asked && self.unused >= self.idle_after && self.unheard < self.idle_beats => Beat::Idle,
            _ => Beat::Quiet,
        }
    }

    /// The time for which the server has been quiet.
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

    fn used(was_heard: bool, is_asked: bool) -> Since {
        Since {
            was_heard,
            is_asked,
            is_used: true,
        }
    }

    fn unused(was_heard: bool, is_asked: bool) -> Since {
        Since {
            is_used: false,
            ..used(was_heard, is_asked)
        }
    }

    /// The results of `beats` heartbeats without anything from a server that was asked.
    fn beats_of(heartbeat: &mut Heartbeat, beats: usize) -> Vec<Beat> {
        (0..beats).map(|_| heartbeat.beat(used(false, true))).collect()
    }

    /// The numbers of those heartbeats, of `beats` in all, at which an unused server is asked. It answers at once.
    fn asked_at(heartbeat: &mut Heartbeat, beats: u32) -> Vec<u32> {
        let mut asked = Vec::new();
        let mut is_answered = false;
        for beat in 0..beats {
            let says = heartbeat.beat(unused(is_answered, false));
            is_answered = says == Beat::Quiet;
            if is_answered {
                asked.push(beat);
            }
        }
        asked
    }

    #[test]
    fn a_server_of_which_nobody_needs_anything_is_asked_every_thirty_seconds() {
        let mut heartbeat = Heartbeat::new(ms(5000), ms(3));
        heartbeat.beat(used(true, false));
        let asked = asked_at(&mut heartbeat, 1000);
        let pauses: Vec<u32> = asked.windows(2).map(|two| two[1] - two[0]).collect();
        // Every other heartbeat at first, since a request may still be under way; then 30 s and the heartbeat of the answer.
        let still_used = pauses.iter().filter(|pause| **pause == 2).count();
        assert_eq!(still_used, 9, "{pauses:?}");
        assert!(pauses[still_used..].iter().all(|pause| *pause == 61), "{pauses:?}");
        assert!(pauses.len() > still_used + 10);
        // The first use has it asked at once.
        assert_eq!(heartbeat.beat(used(false, false)), Beat::Quiet);
    }

    #[test]
    fn a_question_counts_while_nobody_needs_anything() {
        let mut heartbeat = Heartbeat::new(ms(5000), ms(3));
        asked_at(&mut heartbeat, 100);
        let beats: Vec<_> = (0..10).map(|_| heartbeat.beat(unused(false, true))).collect();
        assert_eq!(beats[9], Beat::TimedOut, "{beats:?}");
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
            assert_eq!(heartbeat.beat(used(false, false)), Beat::Quiet);
            assert_eq!(heartbeat.beat(used(false, true)), Beat::Quiet);
            assert_eq!(heartbeat.beat(used(true, true)), Beat::Heard);
        }
        assert_eq!(heartbeat.silence(), ms(0));
    }

    #[test]
    fn a_slow_line_takes_its_time() {
        // Of round trips of 1.5 s.
        let mut heartbeat = Heartbeat::new(ms(10_000), ms(7500));
        assert_eq!(beats_of(&mut heartbeat, 9), [Beat::Quiet; 9]);
        assert_eq!(heartbeat.beat(used(false, true)), Beat::Silent);
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
