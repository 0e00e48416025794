//! Which signals polylock gets, and what it does then.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::exit::Failure;

/// Those of the first step: the later ones are left to the system until a command runs.
pub(crate) const WHILE_WAITING: [Signal; 6] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// Those that a command gets as well.
pub(crate) const WHILE_RUNNING: [Signal; 3] = [Signal::WINCH, Signal::TSTP, Signal::CONT];

/// A SIGTERM that comes so soon after another one is the same: `timeout` sends one to its child, and one to its child's group.
const REPEATED: Duration = Duration::from_millis(100);

/// Signals of this process, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Also listens to these. One that is ignored by now stays ignored, as `nohup` and shells mean it.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn listen(&mut self, signals: &[Signal]) -> Result<(), Failure> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for signal in signals {
            if !is_ignored(&status, *signal) {
                self.insist(*signal)?;
            }
        }
        Ok(())
    }

    /// Also listens to this one.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn insist(&mut self, which: Signal) -> Result<(), Failure> {
        let stream = signal(SignalKind::from_raw(which.as_raw()));
        let stream = stream.map_err(|error: io::Error| Failure::os("cannot listen to signals", &error))?;
        self.0.push((which, stream));
        Ok(())
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// No signal is lost if it is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let came =
                |(which, stream): &mut (Signal, unix::Signal)| stream.poll_recv(context).is_ready().then_some(*which);
            match self.0.iter_mut().find_map(came) {
                Some(which) => Poll::Ready(which),
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// Whether the text of `/proc/self/status` says that this signal is ignored.
fn is_ignored(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// Its name, as people write it.
pub(crate) fn name(signal: Signal) -> String {
    const NAMES: [(Signal, &str); 7] = [
        (Signal::INT, "SIGINT"),
        (Signal::TERM, "SIGTERM"),
        (Signal::HUP, "SIGHUP"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::KILL, "SIGKILL"),
    ];
    let name = NAMES.iter().find(|(known, _)| *known == signal);
    name.map_or_else(|| format!("signal {}", signal.as_raw()), |(_, name)| (*name).to_owned())
}

/// The reaction of `run` to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    Ignore,
    /// End without starting anything.
    GiveUp,
    /// The command gets it.
    Forward,
    /// The command gets it, and goes on if it was stopped.
    ForwardAndContinue,
    /// The terminal has sent it to the command, which goes on if it was stopped: until then, it does not get it.
    Continue,
    /// The command is killed.
    Kill,
}

/// While it waits for the lock.
pub(crate) fn while_waiting(signal: Signal) -> Reaction {
    match signal {
        Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT => Reaction::GiveUp,
        _ => Reaction::Ignore,
    }
}

/// While the command runs. `terminated`: how long ago the first SIGTERM came. `by_terminal`: the terminal sends its signals to the command,
/// too.
pub(crate) fn while_running(signal: Signal, terminated: Option<Duration>, by_terminal: bool) -> Reaction {
    match (signal, terminated) {
        (Signal::TERM, Some(ago)) if ago < REPEATED => return Reaction::Ignore,
        (Signal::TERM, Some(_)) => return Reaction::Kill,
        _ => {}
    }
    match signal {
        Signal::INT | Signal::QUIT if by_terminal => Reaction::Continue,
        Signal::TSTP | Signal::WINCH if by_terminal => Reaction::Ignore,
        Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT | Signal::CONT => Reaction::ForwardAndContinue,
        _ => Reaction::Forward,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_while_waiting_end_it() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
            assert_eq!(while_waiting(signal), Reaction::GiveUp);
        }
        assert_eq!(while_waiting(Signal::USR1), Reaction::Ignore);
    }

    #[test]
    fn signals_while_running_are_the_command_s() {
        for signal in WHILE_WAITING.into_iter().chain(WHILE_RUNNING) {
            let reaction = while_running(signal, None, false);
            assert!(
                matches!(reaction, Reaction::Forward | Reaction::ForwardAndContinue),
                "{signal:?}"
            );
        }
        let long_ago = Some(REPEATED);
        assert_eq!(while_running(Signal::TERM, long_ago, false), Reaction::Kill);
        assert_eq!(
            while_running(Signal::INT, long_ago, false),
            Reaction::ForwardAndContinue
        );
    }

    #[test]
    fn a_signal_that_was_sent_twice_is_one() {
        let now = Some(Duration::from_millis(1));
        assert_eq!(while_running(Signal::TERM, now, false), Reaction::Ignore);
        assert_eq!(while_running(Signal::INT, now, false), Reaction::ForwardAndContinue);
    }

    #[test]
    fn what_the_terminal_sends_to_both_is_not_sent_again() {
        for signal in [Signal::INT, Signal::QUIT] {
            assert_eq!(while_running(signal, None, true), Reaction::Continue);
        }
        for signal in [Signal::TSTP, Signal::WINCH] {
            assert_eq!(while_running(signal, None, true), Reaction::Ignore);
        }
        assert_eq!(while_running(Signal::TERM, None, true), Reaction::ForwardAndContinue);
    }

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert!(is_ignored(status, Signal::HUP) && is_ignored(status, Signal::PIPE));
        assert!(!is_ignored(status, Signal::INT) && !is_ignored("", Signal::HUP));
    }
}
