//! What is played.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A workload that any lock can play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Workload {
    /// Tasks of one client, each with names of its own, which acquire and release.
    Own {
        /// How many.
        tasks: usize,
        /// Whether the release goes on in the background, and is not waited for. Then each task takes [`BACKGROUND_NAMES`] in
        /// turn.
        background: bool,
    },
    /// Tasks of one client that acquire and release the same name.
    One {
        /// How many.
        tasks: usize,
    },
    /// Two clients, each with tasks that acquire and release the same name.
    Two {
        /// How many each.
        tasks: usize,
    },
    /// Clients, each with connections of its own, that acquire and release the same name.
    Crowd {
        /// How many.
        clients: usize,
    },
    /// Tasks of one client that read the same name.
    Read {
        /// How many.
        tasks: usize,
    },
    /// Two clients of [`RW_TASKS`] tasks each, which read and write the same name.
    ReadWrite {
        /// How many of a hundred acquires are reads.
        percent: usize,
    },
    /// Tasks of one client that take one of [`PERMITS`] permits.
    Permits {
        /// How many.
        tasks: usize,
    },
    /// One task that reads a name beside readers that stay.
    Beside {
        /// How many, each of a client of its own.
        readers: usize,
    },
    /// Clients, each with a connection of its own, that hand one name from one to the other.
    HandOff {
        /// How many.
        clients: usize,
    },
}

/// How many names a task takes in turn where nobody waits for the release. With a single one, the task itself would be the
/// next to want it, and a library that passes a lock on within the process would not ask the server at all.
pub const BACKGROUND_NAMES: usize = 16;
/// How many tasks of a client read and write.
pub const RW_TASKS: usize = 8;
/// How many may be inside at a time.
pub const PERMITS: u32 = 16;

impl Workload {
    /// Whether a lock that is exclusive alone can play it.
    pub fn is_exclusive(self) -> bool {
        matches!(
            self,
            Self::Own { .. } | Self::One { .. } | Self::Two { .. } | Self::Crowd { .. } | Self::HandOff { .. }
        )
    }
}

/// `own-16`, `own-1-background`, `one-16`, `two-16`, `crowd-100`, `read-16`, `rw-90`, `permits-64`, `beside-10`, `handoff-128`.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { tasks, background } => {
                write!(f, "own-{tasks}{}", if *background { "-background" } else { "" })
            }
            Self::One { tasks } => write!(f, "one-{tasks}"),
            Self::Two { tasks } => write!(f, "two-{tasks}"),
            Self::Crowd { clients } => write!(f, "crowd-{clients}"),
            Self::Read { tasks } => write!(f, "read-{tasks}"),
            Self::ReadWrite { percent } => write!(f, "rw-{percent}"),
            Self::Permits { tasks } => write!(f, "permits-{tasks}"),
            Self::Beside { readers } => write!(f, "beside-{readers}"),
            Self::HandOff { clients } => write!(f, "handoff-{clients}"),
        }
    }
}

impl FromStr for Workload {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        let unknown = || format!("there is no workload {word:?}");
        let (kind, rest) = word.split_once('-').ok_or_else(unknown)?;
        let (number, background) = match rest.strip_suffix("-background") {
            Some(number) if kind == "own" => (number, true),
            _ => (rest, false),
        };
        let number = number.parse().ok().filter(|number| *number > 0).ok_or_else(unknown)?;
        match kind {
            "own" => Ok(Self::Own {
                tasks: number,
                background,
            }),
            "one" => Ok(Self::One { tasks: number }),
            "two" => Ok(Self::Two { tasks: number }),
            "crowd" => Ok(Self::Crowd { clients: number }),
            "read" => Ok(Self::Read { tasks: number }),
            "rw" if number < 100 => Ok(Self::ReadWrite { percent: number }),
            "permits" => Ok(Self::Permits { tasks: number }),
            "beside" => Ok(Self::Beside { readers: number }),
            "handoff" => Ok(Self::HandOff { clients: number }),
            _ => Err(unknown().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_as_it_is_written() {
        for word in [
            "own-1",
            "own-64-background",
            "one-16",
            "two-16",
            "crowd-100",
            "read-16",
            "rw-90",
            "permits-64",
            "beside-100",
            "handoff-128",
        ] {
            assert_eq!(word.parse::<Workload>().unwrap().to_string(), word);
        }
        for word in ["", "own", "own-0", "own-x", "one-16-background", "rw-100", "held-10000"] {
            assert!(word.parse::<Workload>().is_err(), "{word}");
        }
    }
}
