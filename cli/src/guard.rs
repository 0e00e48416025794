//! The process between `polylock run` and its command: the command's parent.
//!
//! It gets the orphans among what the command starts, so that it can end them all: after the command, and also if `polylock
//! run` is killed. It leads the command's process group, so that it may hand the terminal back.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgrp, getpid, getppid, kill_process, kill_process_group, waitid,
};
use tokio::time::{Instant, sleep_until};

use crate::cli::{ExecArgs, GuardArgs};
use crate::exit::{Code, Failure};
use crate::message::say;
use crate::processes;
use crate::signals::{Signals, WHILE_RUNNING, WHILE_WAITING};
use crate::terminal;

/// Asks the guard to kill all that the command has started. It also gets it if its parent dies.
pub(crate) const KILL_ALL: Signal = Signal::ALARM;

/// A signal to the group may come before the command is there, if it comes so early.
const EARLY: Duration = Duration::from_millis(100);

/// The time that a process may take to end after SIGKILL.
const KILLED_WITHIN: Duration = Duration::from_secs(4);

/// This executable, also if its file was replaced meanwhile.
pub(crate) fn ourselves() -> io::Result<Command> {
    let mut command = match cfg!(target_os = "linux") {
        true => Command::new("/proc/self/exe"),
        false => Command::new(std::env::current_exe()?),
    };
    command.arg0("polylock");
    Ok(command)
}

/// Runs the command, and what it has started, to their end. Returns the command's exit code.
///
/// # Errors
/// If the command cannot be run.
pub(crate) fn guard(arguments: &GuardArgs) -> Result<Code, Failure> {
    // The command is its child, and would be told of the end of the thread that started it: so it starts on the main thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::os("cannot start the runtime", &error))?;
    runtime.block_on(supervise(arguments))
}

async fn supervise(arguments: &GuardArgs) -> Result<Code, Failure> {
    let mut signals = Signals::default();
    signals.insist(Signal::CHILD)?;
    signals.insist(KILL_ALL)?;
    signals.listen(&WHILE_WAITING)?;
    signals.listen(&WHILE_RUNNING)?;
    processes::adopt_orphans();
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(KILL_ALL));
    if !is_parent(arguments.parent) || !may_go(arguments.go) {
        // Nobody wants the command any more.
        return Ok(Code::UNEXPECTED);
    }
    let mut job = Job::start(arguments)?;
    let status = job.run(&mut signals).await;
    if !arguments.leave_children || job.is_killed {
        job.end_rest(&mut signals).await;
    }
    job.hand_back_terminal();
    Ok(code(status))
}

/// Becomes the command. Returns only if that fails.
pub(crate) fn exec(arguments: &ExecArgs) -> Failure {
    #[cfg(target_os = "linux")]
    // If the guard is killed, the command ends with it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let ExecArgs { parent, command } = arguments;
    let [program, rest @ ..] = command.as_slice() else {
        return Failure::usage("there is no command");
    };
    if !is_parent(*parent) {
        return Failure::new(Code::UNEXPECTED, "the guard of the command has ended");
    }
    let error = Command::new(program).args(rest).exec();
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NOT_FOUND,
        _ => Code::CANNOT_EXECUTE,
    };
    Failure::new(code, format!("cannot run {}: {error}", program.display()))
}

fn is_parent(process: i32) -> bool {
    getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == process)
}

/// Waits for the byte that says go. The pipe itself is the command's, to learn of a loss.
fn may_go(descriptor: i32) -> bool {
    let folder = if cfg!(target_os = "linux") {
        "/proc/self/fd"
    } else {
        "/dev/fd"
    };
    let read = File::open(format!("{folder}/{descriptor}")).and_then(|mut pipe| pipe.read(&mut [0]));
    read.is_ok_and(|bytes| bytes == 1)
}

/// As a shell has it.
fn code(status: ExitStatus) -> Code {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).map_or(Code::UNEXPECTED, Code::new),
        (None, Some(signal)) => Code::of_raw_signal(signal),
        (None, None) => Code::UNEXPECTED,
    }
}

/// The command, and what it starts.
#[derive(Debug)]
struct Job {
    command: Child,
    started: Instant,
    /// The group of `polylock run`, in which the command is if it has none of its own.
    parent_group: Option<Pid>,
    has_group: bool,
    grace: Duration,
    is_killed: bool,
}

impl Job {
    fn start(arguments: &GuardArgs) -> Result<Self, Failure> {
        let cannot_start = |error: io::Error| Failure::os("cannot start the command", &error);
        let mut command = ourselves().map_err(cannot_start)?;
        command.arg("__exec").arg("--parent").arg(getpid().to_string());
        command.arg("--").args(&arguments.command);
        if arguments.no_group {
            command.process_group(arguments.parent_group);
        }
        Ok(Self {
            command: command.spawn().map_err(cannot_start)?,
            started: Instant::now(),
            parent_group: Pid::from_raw(arguments.parent_group),
            has_group: !arguments.no_group,
            grace: Duration::from_millis(arguments.grace_ms),
            is_killed: false,
        })
    }

    /// Waits for the command's end.
    async fn run(&mut self, signals: &mut Signals) -> ExitStatus {
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            match signals.next().await {
                Signal::CHILD => self.note_stop(),
                KILL_ALL => {
                    self.is_killed = true;
                    processes::signal(&self.alive(), Signal::KILL, &self.ours(), &mut HashSet::new());
                    // Also where the system lists no children. Its number is its own: its end was not noted yet.
                    let _ = kill_process(Pid::from_child(&self.command), Signal::KILL);
                }
                // In our group, the command got it as well.
                signal if !self.has_group || self.started.elapsed() < EARLY => {
                    let _ = kill_process(Pid::from_child(&self.command), signal);
                }
                _ => {}
            }
        }
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.alive();
        self.command.try_wait().ok().flatten()
    }

    fn alive(&self) -> Vec<Pid> {
        processes::reap(Some(Pid::from_child(&self.command)))
    }

    fn ours(&self) -> Vec<Pid> {
        processes::our_groups(self.parent_group.filter(|_| !self.has_group))
    }

    /// A stopped command leaves the terminal to `polylock run`, which goes on renewing the lock.
    fn note_stop(&self) {
        let command = WaitId::Pid(Pid::from_child(&self.command));
        let stopped = waitid(command, WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        if matches!(stopped, Ok(Some(_))) {
            self.hand_back_terminal();
            let number = self.number_to_continue();
            say(&format!(
                "the command is stopped, and the lock is still held: kill -CONT {number} lets it go on"
            ));
        }
    }

    /// The number for `kill -CONT` by which all goes on that Ctrl-Z has stopped: of `polylock run`, which continues the command's group, or
    /// of the group that they share, after a minus.
    fn number_to_continue(&self) -> i32 {
        let number = |process: Pid| process.as_raw_nonzero().get();
        match self.parent_group.filter(|_| !self.has_group) {
            Some(group) => -number(group),
            None => getppid().map_or(0, number),
        }
    }

    /// Ends what the command has left running: SIGTERM, and SIGKILL after the grace.
    async fn end_rest(&self, signals: &mut Signals) {
        let mut kill_at = Instant::now() + if self.is_killed { Duration::ZERO } else { self.grace };
        let mut told = HashSet::new();
        if !self.is_killed && self.has_group && !processes::reap(None).is_empty() {
            // Also those whose parents are alive. We do not mind.
            let _ = kill_process_group(getpgrp(), Signal::TERM);
        }
        loop {
            let alive = processes::reap(None);
            let now = Instant::now();
            if alive.is_empty() {
                return;
            }
            if now >= kill_at + KILLED_WITHIN {
                // They become children of `polylock run`, which does not release the lock then.
                return;
            }
            let next = match now < kill_at {
                true => {
                    processes::signal(&alive, Signal::TERM, &self.ours(), &mut told);
                    kill_at
                }
                false => {
                    processes::signal(&alive, Signal::KILL, &self.ours(), &mut HashSet::new());
                    kill_at + KILLED_WITHIN
                }
            };
            tokio::select! {
                signal = signals.next() => if signal == KILL_ALL {
                    kill_at = kill_at.min(Instant::now());
                },
                () = sleep_until(next) => {}
            }
        }
    }

    fn hand_back_terminal(&self) {
        if let Some(group) = self.parent_group.filter(|_| self.has_group) {
            terminal::give_to(group);
        }
    }
}
