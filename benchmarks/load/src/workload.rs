//! What is played.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A workload that any lock can play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Workload {
    /// Tasks of one client, each with a name of its own, which acquire and release.
    Own {
        /// How many.
        tasks: usize,
        /// Whether the release goes on in the background, and is not waited for.
        background: bool,
    },
    /// Tasks of one client that acquire and release the same name.
    One {
        /// How many.
        tasks: usize,
    },
    /// Clients, each with a connection of its own, that hand one name from one to the other.
    HandOff {
        /// How many.
        clients: usize,
    },
}

/// `own-16`, `own-1-background`, `one-16`, `handoff-128`.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { tasks, background } => {
                write!(f, "own-{tasks}{}", if *background { "-background" } else { "" })
            }
            Self::One { tasks } => write!(f, "one-{tasks}"),
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
        for word in ["own-1", "own-64-background", "one-16", "handoff-128"] {
            assert_eq!(word.parse::<Workload>().unwrap().to_string(), word);
        }
        for word in ["", "own", "own-0", "own-x", "one-16-background", "held-10000"] {
            assert!(word.parse::<Workload>().is_err(), "{word}");
        }
    }
}
