//! The records: one file per process, one line per event, one write per line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::config::RunConfig;
use crate::fault::{Effect, Fault};
use crate::mode::Held;

/// Something that happened in a process, and when it was recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Nanoseconds of the monotonic clock.
    pub(crate) t: u64,
    #[serde(flatten)]
    pub(crate) event: Event,
}

/// An event of a worker process. An operation without an end has an unknown one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "kebab-case")]
pub(crate) enum Event {
    Start {
        pid: u32,
    },
    /// An acquire begins.
    Inv {
        op: u64,
        lock: usize,
    },
    /// The server granted it, on a request that was sent then.
    Granted {
        lock: usize,
        token: u64,
        sent: u64,
        /// By the process's hold before, without a request.
        #[serde(default)]
        passed: bool,
    },
    /// It has a guard, believed in until `end`.
    Held {
        op: u64,
        lock: usize,
        token: u64,
        end: u64,
        /// For how many nanoseconds the name is to stay taken in any case.
        #[serde(default)]
        minimum: u64,
        #[serde(default)]
        mode: Held,
        /// Whether the hold is not renewed.
        #[serde(default)]
        fixed: bool,
    },
    /// From now on it reads beside others what it held alone, if the server agrees.
    Downgrading {
        op: u64,
    },
    Downgraded {
        op: u64,
    },
    /// It reads, whether it was to be downgraded or upgraded.
    NotChanged {
        op: u64,
        kind: String,
        what: String,
    },
    /// It reads no more, but holds it alone, with this token and until `end`.
    Upgraded {
        op: u64,
        token: u64,
        end: u64,
    },
    /// It asked for the lock that it held, with the same re-entry key.
    Reentered {
        op: u64,
        /// Of what it got.
        token: Option<u64>,
        /// Whether the first of the two guards, when it was released, reported that the hold is still shared.
        shared: Option<bool>,
    },
    /// It has none.
    Busy {
        op: u64,
    },
    Failed {
        op: u64,
        kind: String,
        what: String,
    },
    /// Its caller went away.
    Dropped {
        op: u64,
    },
    /// Belief in the hold with this token reaches until `end` from now on.
    Armed {
        lock: usize,
        token: u64,
        end: u64,
    },
    Lost {
        op: u64,
        cause: String,
    },
    /// A release begins.
    Rel {
        op: u64,
    },
    Released {
        op: u64,
    },
    NotReleased {
        op: u64,
        kind: String,
        what: String,
    },
    /// The process did not run since `from`.
    Starved {
        from: u64,
    },
    Usage {
        files: usize,
        kilobytes: u64,
    },
    /// Nothing is held or waited for any more.
    Drained,
    Panic {
        what: String,
    },
}

/// An access to the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Access {
    /// Registers the token, and reads.
    Claim,
    /// Reads only.
    Read,
    Write,
    /// Writes the other half.
    Finish,
}

/// One access to the resource, in the order in which they took effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) t: u64,
    pub(crate) process: usize,
    pub(crate) op: u64,
    pub(crate) lock: usize,
    pub(crate) access: Access,
    /// Whether the process is one of several that only read.
    #[serde(default)]
    pub(crate) reader: bool,
    /// `None`: the mirror without a fence.
    pub(crate) token: Option<u64>,
    /// Which version the write is based on.
    pub(crate) base: u64,
    /// The version before it.
    pub(crate) version: u64,
    pub(crate) refused: bool,
}

/// One fault.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Strike {
    pub(crate) fault: Fault,
    /// `None`: the server.
    pub(crate) process: Option<usize>,
    /// Of the process in this place.
    pub(crate) incarnation: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Whether the fault took place at all, if that depends on the processes.
    pub(crate) happened: bool,
}

impl Strike {
    pub(crate) fn stops_the_process(&self) -> bool {
        self.happened && self.fault.has(Effect::StopsProcess)
    }
}

/// The facts that are known at the end of a run, beside the histories.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) config: RunConfig,
    /// The versions and the date of the run, for people.
    pub(crate) about: String,
    pub(crate) begin: u64,
    /// When the last fault was healed.
    pub(crate) healed: u64,
    pub(crate) end: u64,
    pub(crate) leftovers: Vec<String>,
    /// Connections to the server before and after.
    pub(crate) connections: (usize, usize),
    /// Whatever makes the run void.
    pub(crate) problems: Vec<String>,
}

/// Appends to one file. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Writer(Arc<File>);

impl Writer {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Arc::new(file)))
    }

    /// Records an event that happened just now.
    pub(crate) fn event(&self, event: Event) {
        self.at(clock::now(), event);
    }

    pub(crate) fn at(&self, t: u64, event: Event) {
        self.line(&Line { t, event });
    }

    /// In one write, so that lines of several threads stay whole, and a killed process leaves none half.
    pub(crate) fn line(&self, line: &impl Serialize) {
        let mut bytes = serde_json::to_vec(line).expect("what we record are plain structs");
        bytes.push(b'\n');
        // Without its history a run proves nothing.
        (&*self.0).write_all(&bytes).expect("the history can be written");
    }
}

/// All lines of a file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let broken = |number: usize, error: &dyn std::fmt::Display| {
        io::Error::other(format!("{}, line {}: {error}", path.display(), number + 1))
    };
    let file =
        File::open(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let mut lines = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|error| broken(number, &error))?;
        lines.push(serde_json::from_str(&line).map_err(|error| broken(number, &error))?);
    }
    Ok(lines)
}

/// The files of a run.
pub(crate) fn process_file(process: usize, incarnation: u32) -> String {
    format!("process-{process}-{incarnation}.jsonl")
}

/// Which process and incarnation a file is of.
pub(crate) fn parse_process_file(name: &str) -> Option<(usize, u32)> {
    let (process, incarnation) = name.strip_prefix("process-")?.strip_suffix(".jsonl")?.split_once('-')?;
    Some((process.parse().ok()?, incarnation.parse().ok()?))
}

pub(crate) const RESOURCE: &str = "resource.jsonl";
pub(crate) const NEMESIS: &str = "nemesis.jsonl";
pub(crate) const OUTCOME: &str = "outcome.json";
/// The picture.
pub(crate) const TIMELINE: &str = "timeline.html";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(process_file(3, 2));
        let writer = Writer::create(&path).unwrap();
        writer.at(
            5,
            Event::Held {
                op: 1,
                lock: 2,
                token: u64::MAX >> 1,
                end: 9,
                minimum: 3,
                mode: Held::Permits { take: 1, of: 2 },
                fixed: true,
            },
        );
        writer.at(6, Event::Drained);
        let lines: Vec<Line> = read(&path).unwrap();
        assert!(
            matches!(lines[0], Line { t: 5, event: Event::Held { op: 1, lock: 2, end: 9, minimum: 3, mode: Held::Permits { take: 1, of: 2 }, fixed: true, token } } if token == u64::MAX >> 1)
        );
        assert!(matches!(lines[1].event, Event::Drained));
        assert_eq!(parse_process_file("process-3-2.jsonl"), Some((3, 2)));
        assert_eq!(parse_process_file(RESOURCE), None);
    }
}
