//! One run of a server program.

use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

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
        /// They have the signal already.
        const AT_MOST: Duration = Duration::from_secs(10);
        let group = self.group();
        self.signal(Signal::KILL)?;
        // A PostgreSQL is many processes.
        let start = Instant::now();
        while others_run(group) && start.elapsed() < AT_MOST {
            sleep(Duration::from_millis(1));
        }
        watchdog.forget(self.pid());
        self.child.wait().map_err(Error::io("waiting for a killed server"))
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).expect("a child's number is positive")
    }
}

/// Whether a process of this group still runs, other than its leader. Where there is no /proc, none is seen.
fn others_run(group: Pid) -> bool {
    let group = group.as_raw_nonzero().get();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut statuses = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    let is_other = |member: Member<'_>| member.group == group && member.process != group && member.state != "Z";
    statuses.any(|status| member(&status).is_some_and(is_other))
}

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Member<'a> {
    process: i32,
    state: &'a str,
    group: i32,
}

fn member(status: &str) -> Option<Member<'_>> {
    let process = status.split(' ').next()?.parse().ok()?;
    // Any character may be in the name before it.
    let mut fields = status.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some(Member { process, state, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_group_and_state() {
        let status = "41 (postgres: a) b) S 40 39 39 0 -1 4194304";
        let expected = Member {
            process: 41,
            state: "S",
            group: 39,
        };
        assert_eq!(member(status), Some(expected));
        assert_eq!(member(""), None);
    }
}
