//! What can go wrong.

use std::path::PathBuf;

/// Why a server could not be started or controlled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such server on this machine.
    #[error("no {server} here: run `cargo xtask servers --install`, or set {} (see the testbed crate)", .variables.join(" or "))]
    Missing {
        /// Its name.
        server: &'static str,
        /// The environment variables that can name one.
        variables: &'static [&'static str],
    },
    /// There is no such server or client on this machine, and tests may do without it.
    #[error("no {server} here, left out: `cargo xtask servers --install` fetches it, {} names one", .variables.join(" or "))]
    LeftOut {
        /// Its name.
        server: &'static str,
        /// The environment variables that can name one.
        variables: &'static [&'static str],
    },
    /// An environment variable points nowhere.
    #[error("{variable} is {value:?}, but {problem}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The server already ran before the test: it is not ours to stop.
    #[error("cannot control the {server} at {address}: it was running already, {variable} names it")]
    NotOurs {
        /// Its name.
        server: &'static str,
        /// Where it is.
        address: String,
        /// The variable that named it.
        variable: &'static str,
    },
    /// It was killed and not restarted.
    #[error("the {server} on port {port} is not running: restart it first")]
    NotRunning {
        /// Its name.
        server: &'static str,
        /// Its port.
        port: u16,
    },
    /// The server ended, or did not answer in time, when it was started.
    #[error("{server} did not start: {problem}\n{log}")]
    Start {
        /// Its name.
        server: &'static str,
        /// What happened.
        problem: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// No server of an ensemble leads.
    #[error("the zookeeper ensemble has no leader with a majority; its servers say that they are: {modes}")]
    NoLeader {
        /// What each server says that it is.
        modes: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl Error {
    /// For `map_err`: says what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
