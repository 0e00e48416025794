//! Values of options.

use std::time::Duration;

use polylock::backend::parse_duration;
use rustix::process::Signal;

/// The signal for the command if the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnLoss {
    /// This signal, and SIGKILL after the grace.
    Signal(Signal),
    Ignore,
}

impl OnLoss {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "ignore" => Ok(Self::Ignore),
            name => signal(name)
                .map(Self::Signal)
                .ok_or_else(|| "write term, kill, ignore, or a signal like INT, HUP or USR1".to_owned()),
        }
    }
}

/// So many permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) take: u32,
    pub(crate) of: u32,
}

impl Permits {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('/')
            .and_then(|(take, of)| Some((take.parse().ok()?, of.parse().ok()?)));
        match parsed {
            Some((take, of)) if (1..=of).contains(&take) => Ok(Self { take, of }),
            _ => Err("write how many of how many, as in 1/3".to_owned()),
        }
    }
}

/// A duration with its unit.
///
/// # Errors
/// A text that says how to write one.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write it with a unit, as in 500ms, 10s, 5m or 1h".to_owned())
}

/// The signal with this name, with or without SIG, in any case.
fn signal(name: &str) -> Option<Signal> {
    let name = name.to_ascii_uppercase();
    Some(match name.strip_prefix("SIG").unwrap_or(&name) {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "QUIT" => Signal::QUIT,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "TERM" => Signal::TERM,
        "KILL" => Signal::KILL,
        _ => return None,
    })
}

/// The longest grace: a longer one would be no time that a clock can show.
pub(super) const LONGEST_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) fn grace(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        grace if grace > LONGEST_GRACE => Err("write at most 8760h, which is a year".to_owned()),
        grace => Ok(grace),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, Subcommand};

    #[test]
    fn the_description_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_a_loss_means() {
        assert_eq!(OnLoss::parse("term"), Ok(OnLoss::Signal(Signal::TERM)));
        assert_eq!(OnLoss::parse("SIGUSR1"), Ok(OnLoss::Signal(Signal::USR1)));
        assert_eq!(OnLoss::parse("ignore"), Ok(OnLoss::Ignore));
        assert!(OnLoss::parse("sometimes").is_err());
    }

    #[test]
    fn permits_are_some_of_some() {
        assert_eq!(Permits::parse("2/5"), Ok(Permits { take: 2, of: 5 }));
        for wrong in ["0/5", "6/5", "2", "2/", "a/b", "-1/3"] {
            assert!(Permits::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_grace_is_a_time_that_a_clock_can_show() {
        let grace = |text: &str| {
            let line = ["polylock", "run", "--lock", "a", "--grace", text, "--", "ls"];
            match Cli::try_parse_from(line).map(|parsed| parsed.subcommand) {
                Ok(Subcommand::Run(run)) => Ok(run.grace),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        let year = grace("8760h").unwrap();
        assert!(tokio::time::Instant::now().checked_add(year).is_some());
        for longer in ["8761h", "500y"] {
            assert!(grace(longer).unwrap_err().contains("at most 8760h"), "{longer}");
        }
        assert!(grace("500000000000y").is_err());
        let guard = |grace_ms: u128| {
            let grace_ms = format!("--grace-ms={grace_ms}");
            let line = [
                "polylock",
                "__guard",
                "--parent=1",
                "--parent-group=1",
                "--go=3",
                &grace_ms,
                "--",
                "ls",
            ];
            Cli::try_parse_from(line).is_ok()
        };
        assert!(guard(year.as_millis()) && !guard(year.as_millis() + 1));
    }

    #[test]
    fn options_after_the_command_are_its_own() {
        let line = [
            "polylock",
            "run",
            "--lock",
            "a",
            "--url",
            "redis://h",
            "--",
            "ls",
            "--lock",
            "-l",
            "--",
        ];
        let Subcommand::Run(run) = Cli::try_parse_from(line).unwrap().subcommand else {
            panic!("run");
        };
        assert_eq!(run.command, ["ls", "--lock", "-l", "--"]);
        assert_eq!(run.lock.lock, ["a"]);
    }

    #[test]
    fn a_command_or_a_text_is_needed() {
        let parses = |rest: &[&str]| {
            let line = ["polylock", "run", "--lock", "a"].iter().chain(rest);
            Cli::try_parse_from(line).is_ok()
        };
        assert!(!parses(&[]) && !parses(&["--"]));
        assert!(parses(&["--", "ls"]) && parses(&["--shell", "ls | wc"]));
        assert!(!parses(&["--shell", "ls", "--", "ls"]));
        assert!(!parses(&["--try", "--wait", "1s", "--", "ls"]));
        assert!(!parses(&["--wait", "1", "--", "ls"]), "a duration has a unit");
    }
}
