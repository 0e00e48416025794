//! One run of a server program.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::Error;
use crate::watchdog::Watchdog;

/// A running server, or one that ended by itself and is not yet reaped. It is a process group of its own, so that a
/// wrapper script and what it starts end together.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `command`, whose output goes to `log`.
    ///
    /// The child tells the watchdog its number before it becomes the server: at no moment does a server run unwatched.
    pub(crate) fn start(command: &Command, log: &Path, watchdog: &Watchdog) -> Result<Self, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .map_err(Error::io("opening a server's log"))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"echo "+ $$"; exec "$@" >&2"#, "start"]);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let child = shell
            .current_dir(watchdog.dir())
            .stdin(Stdio::null())
            .stdout(watchdog.registration()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(Error::io(format!("starting {program}")))?;
        Ok(Self { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        // Not reaped here: its number must stay taken until the watchdog has forgotten it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(
            waitid(WaitId::Pid(self.group()), options),
            Ok(Some(_)) | Err(rustix::io::Errno::CHILD)
        )
    }

    /// Sends `signal` to it.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill_process_group(self.group(), signal).map_err(|source| Error::Io {
            what: format!("sending {signal:?} to process {}", self.pid()),
            source: source.into(),
        })
    }

    /// SIGKILL; returns when it is gone, its sockets closed.
    pub(crate) fn kill(mut self, watchdog: &Watchdog) -> Result<ExitStatus, Error> {
        self.signal(Signal::KILL)?;
        watchdog.forget(self.pid());
        self.child.wait().map_err(Error::io("waiting for a killed server"))
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).expect("a child's number is positive")
    }
}
