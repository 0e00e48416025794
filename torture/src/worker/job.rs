//! The messages between the runner and a worker process.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::RunConfig;

/// The job of a worker process, which it gets at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) config: RunConfig,
    pub(crate) process: usize,
    pub(crate) incarnation: u32,
    /// The lock server, by way of the process's proxy.
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    /// The ports of all servers, and the process's proxies for them.
    #[serde(default)]
    pub(crate) ways: Vec<(u16, SocketAddr)>,
    pub(crate) resource: SocketAddr,
    pub(crate) dir: PathBuf,
    pub(crate) parent: u32,
}

/// An order of the runner to a worker that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The faults are over: short holds only.
    Calm,
    /// Release all and stay.
    Finish,
    /// Stop yourself before the next write.
    Gap,
    /// Do not, if you have not yet.
    NoGap,
}

impl Order {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Finish => "finish",
            Self::Gap => "gap",
            Self::NoGap => "no-gap",
        }
    }
}

/// The line on standard output by which a worker says that it is ready.
pub(crate) const READY: &str = "ready";
/// It has acquired often enough since it was told to be calm.
pub(crate) const RECOVERED: &str = "recovered";
pub(crate) const DRAINED: &str = "drained";

pub(super) fn say(word: &str) {
    // Nobody reads it any more when the runner has gone.
    let _ = writeln!(std::io::stdout(), "{word}");
}
