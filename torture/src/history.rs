//! All that a run has recorded.

use std::fmt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::fault::Effect;
use crate::record::{self, Line, NEMESIS, OUTCOME, Outcome, RESOURCE, Strike, Use, parse_process_file};

/// All that a run has recorded.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) outcome: Outcome,
    pub(crate) processes: Vec<ProcessHistory>,
    pub(crate) uses: Vec<Use>,
    pub(crate) strikes: Vec<Strike>,
}

/// The life of one process.
#[derive(Debug)]
pub(crate) struct ProcessHistory {
    pub(crate) process: usize,
    pub(crate) incarnation: u32,
    /// When it was killed.
    pub(crate) killed: Option<u64>,
    pub(crate) lines: Vec<Line>,
}

impl History {
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let outcome = std::fs::read(dir.join(OUTCOME)).map_err(|error| {
            Error::new(format!(
                "{}: {error}: is this the directory of a finished run?",
                dir.join(OUTCOME).display()
            ))
        })?;
        let strikes: Vec<Strike> = record::read(&dir.join(NEMESIS))?;
        let mut processes = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let Some((process, incarnation)) = entry.file_name().to_str().and_then(parse_process_file) else {
                continue;
            };
            let killed = strikes.iter().find(|strike| {
                strike.fault.has(Effect::KillsProcess)
                    && (strike.process, strike.incarnation) == (Some(process), incarnation)
            });
            processes.push(ProcessHistory {
                process,
                incarnation,
                killed: killed.map(|strike| strike.from),
                lines: record::read(&entry.path())?,
            });
        }
        processes.sort_by_key(|process| (process.process, process.incarnation));
        Ok(Self {
            outcome: serde_json::from_slice(&outcome)?,
            processes,
            uses: record::read(&dir.join(RESOURCE))?,
            strikes,
        })
    }

    /// Something that was recorded, with its time since the beginning.
    pub(crate) fn tell(&self, t: u64, what: impl fmt::Debug) -> String {
        let seconds = (t as f64 - self.outcome.begin as f64) / 1e9;
        format!("{seconds:.6}s {what:?}")
    }
}
