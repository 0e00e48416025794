//! When a silent connection is in trouble, and when it is over.

use std::time::Duration;

/// The longest silence has this many beats, or more.
const BEATS: u32 = 10;
/// A waiter is to know of an outage within two seconds.
const LONGEST_BEAT: Duration = Duration::from_millis(500);

/// Counts the beats in which nothing was heard from a server that was asked. It counts beats and does not read the clock,
/// since a process that stood still has heard nothing either.
#[derive(Debug)]
pub(super) struct Silence {
    beat: Duration,
    quiet: u32,
    trouble_after: u32,
    over_after: u32,
}

/// What a beat says of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server has just said something.
    Heard,
    /// Nothing was heard. The server should be asked, if it is not.
    Quiet,
    /// Waiters should know that the server does not answer.
    Trouble,
    /// The connection should be replaced.
    Over,
}

impl Silence {
    /// `longest` is how long a connection may be silent. `dialing` is how long it took to make it, about five round trips:
    /// on a slow line an answer is not late before twice a round trip.
    pub(super) fn new(longest: Duration, dialing: Duration) -> Self {
        let beat = (longest / BEATS).clamp(Duration::from_millis(1), LONGEST_BEAT);
        let beats = |time: Duration| u32::try_from(time.as_nanos().div_ceil(beat.as_nanos())).unwrap_or(u32::MAX);
        Self {
            beat,
            quiet: 0,
            trouble_after: beats(dialing / 2).saturating_add(2),
            over_after: beats(longest),
        }
    }

    pub(super) fn beat(&self) -> Duration {
        self.beat
    }

    /// To be called once a beat.
    pub(super) fn judge(&mut self, was_heard: bool, is_asked: bool) -> Verdict {
        if was_heard {
            self.quiet = 0;
            return Verdict::Heard;
        }
        self.quiet = if is_asked { self.quiet + 1 } else { 0 };
        match self.quiet {
            quiet if quiet >= self.over_after => Verdict::Over,
            quiet if quiet >= self.trouble_after => Verdict::Trouble,
            _ => Verdict::Quiet,
        }
    }

    /// How long nothing was heard.
    pub(super) fn lasts(&self) -> Duration {
        self.beat * self.quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The verdicts of so many beats in which nothing is heard from a server that was asked.
    fn verdicts(silence: &mut Silence, beats: usize) -> Vec<Verdict> {
        (0..beats).map(|_| silence.judge(false, true)).collect()
    }

    #[test]
    fn a_silent_server_is_trouble_after_a_second_and_over_after_the_longest_silence() {
        use Verdict::{Over, Quiet, Trouble};
        let mut silence = Silence::new(ms(5000), ms(3));
        assert_eq!(silence.beat(), ms(500));
        assert_eq!(verdicts(&mut silence, 2), [Quiet; 2]);
        assert_eq!(verdicts(&mut silence, 7), [Trouble; 7]);
        assert_eq!(verdicts(&mut silence, 1), [Over]);
        assert_eq!(silence.lasts(), ms(5000));
    }

    #[test]
    fn only_an_unanswered_question_counts() {
        let mut silence = Silence::new(ms(5000), ms(3));
        for _ in 0..100 {
            assert_eq!(silence.judge(false, false), Verdict::Quiet);
            assert_eq!(silence.judge(false, true), Verdict::Quiet);
            assert_eq!(silence.judge(true, true), Verdict::Heard);
        }
        assert_eq!(silence.lasts(), ms(0));
    }

    #[test]
    fn a_slow_line_takes_its_time() {
        // Of round trips of 1.5 s.
        let mut silence = Silence::new(ms(10_000), ms(7500));
        assert_eq!(verdicts(&mut silence, 9), [Verdict::Quiet; 9]);
        assert_eq!(silence.judge(false, true), Verdict::Trouble);
    }

    #[test]
    fn any_longest_silence_has_its_beats() {
        for (longest, beat, beats) in [(1, 1, 1), (50, 5, 10), (1000, 100, 10), (60_000, 500, 120)] {
            let mut silence = Silence::new(ms(longest), ms(0));
            assert_eq!(silence.beat(), ms(beat));
            let verdicts = verdicts(&mut silence, beats);
            assert_eq!(verdicts.last(), Some(&Verdict::Over), "{longest}");
            assert!(!verdicts[..beats - 1].contains(&Verdict::Over), "{longest}");
        }
    }
}
