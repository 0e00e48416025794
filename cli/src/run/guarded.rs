//! The command and its guard, as `run` sees them.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, sleep_until};

use crate::cli::RunArgs;
use crate::exit::{Code, Failure};
use crate::guard::{KILL_ALL, ourselves};
use crate::signals::{Reaction, Signals};
use crate::{processes, terminal};

/// The time between two looks at children that have come to this process.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time that the orphans of a guard that was killed may take to end.
const ORPHANS_KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A pipe whose end tells the command that the lock is lost. Before the command starts, it tells the guard to start it.
#[derive(Debug)]
pub(crate) struct LossPipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl LossPipe {
    /// # Errors
    /// If the system refuses.
    pub(crate) fn new() -> Result<Self, Failure> {
        let pipe = pipe_with(PipeFlags::CLOEXEC);
        let (read, write) = pipe.map_err(|error| Failure::os("cannot make a pipe", &error.into()))?;
        Ok(Self { read, write })
    }

    /// The number that the command knows it by.
    pub(crate) fn descriptor(&self) -> i32 {
        self.read.as_raw_fd()
    }
}

/// The command, and the guard that is its parent.
#[derive(Debug)]
pub(super) struct Guarded {
    guard: Child,
    process: Pid,
    /// Whether the guard leads a group with the command.
    has_group: bool,
    /// `None` once the command knows of the loss.
    loss: Option<OwnedFd>,
    /// Tells of children that end.
    ends: Signals,
    /// Children that this process has apart from the guard: those from before `exec` in a script, and the orphans that come to
    /// process 1 of a container. Those of the command come to the guard while it lives.
    strangers: Vec<Pid>,
    /// Whether processes that the command has started may outlive it.
    may_leave: bool,
}

/// The end of a command.
#[derive(Debug)]
pub(super) struct Ended {
    /// The code to exit with.
    pub(super) code: Code,
    /// The processes of the command that could not be ended.
    pub(super) survivors: Vec<Pid>,
}

impl Guarded {
    /// Starts the guard, gives it the terminal, and lets it start the command. To be called on the main thread: the guard is
    /// told of that thread's end.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn start(
        arguments: &RunArgs,
        line: &[OsString],
        variables: Vec<(&'static str, Option<String>)>,
        loss: LossPipe,
    ) -> Result<Self, Failure> {
        let cannot_start = |error: io::Error| Failure::os("cannot start the command", &error);
        let mut ends = Signals::default();
        ends.insist(Signal::CHILD)?;
        let strangers = processes::children();
        // When the guard ends, we get its orphans.
        processes::adopt_orphans();
        let mut command = Command::from(ourselves().map_err(cannot_start)?);
        command.arg("__guard");
        command.arg(format!("--parent={}", getpid()));
        command.arg(format!("--parent-group={}", getpgrp()));
        command.arg(format!("--go={}", loss.descriptor()));
        command.arg(format!("--grace-ms={}", arguments.grace.as_millis()));
        command.args(arguments.no_group.then_some("--no-group"));
        command.args(arguments.leave_children.then_some("--leave-children"));
        command.arg("--").args(line);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let LossPipe { read, write } = loss;
        rustix::io::fcntl_setfd(&read, FdFlags::empty()).map_err(|error| cannot_start(error.into()))?;
        let guard = command.process_group(0).spawn().map_err(cannot_start)?;
        let process = guard.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let process = process.ok_or_else(|| Failure::new(Code::UNEXPECTED, "the guard of the command has ended"))?;
        let guarded = Self {
            guard,
            process,
            has_group: !arguments.no_group,
            loss: Some(write),
            ends,
            strangers,
            may_leave: arguments.leave_children,
        };
        guarded.give_terminal();
        if let Some(write) = &guarded.loss {
            // It fails if the guard has ended: then the wait for it says so.
            let _ = rustix::io::write(write, b"g");
        }
        Ok(guarded)
    }

    /// Waits for the command's end, and for that of what it has started.
    ///
    /// # Errors
    /// If the system refuses.
    ///
    /// # Cancel safety
    /// May be dropped at any point, and called again.
    pub(super) async fn wait(&mut self) -> Result<Ended, Failure> {
        let status = loop {
            tokio::select! {
                biased;
                status = self.guard.wait() => break status,
                _ = self.ends.next() => self.note_strangers(),
                // The system tells of children that end, and not of those that come.
                () = sleep(LOOK_EVERY) => self.note_strangers(),
            }
        };
        // A guard that was killed, or could not start the command, has not handed it back.
        terminal::take_from(self.process);
        let status = status.map_err(|error| Failure::os("cannot wait for the command", &error))?;
        let code = match status.signal() {
            Some(signal) => Code::of_raw_signal(signal),
            None => {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                code.map_or(Code::UNEXPECTED, Code::new)
            }
        };
        let survivors = match status.signal() {
            None if self.may_leave => Vec::new(),
            // Those that the guard could not end, or strangers that came just now. With process 1, all of them end anyway.
            None if getpid() != Pid::INIT => without(processes::reap(None), &self.strangers),
            _ => end_orphans(&self.strangers).await,
        };
        Ok(Ended { code, survivors })
    }

    /// Takes note of the end of those that are not the command's, and of those that live.
    fn note_strangers(&mut self) {
        let mut alive = processes::reap(Some(self.process));
        alive.retain(|child| *child != self.process);
        // If the guard has ended just now, its orphans are among them.
        if matches!(self.guard.try_wait(), Ok(None)) {
            self.strangers = alive;
        }
    }

    /// Tells the command that the lock is lost: its pipe ends.
    pub(super) fn tell_loss(&mut self) {
        self.loss = None;
    }

    /// Passes a signal on.
    pub(super) fn react(&self, reaction: Reaction, signal: Signal) {
        match reaction {
            Reaction::Forward => self.send(signal),
            Reaction::ForwardAndContinue => {
                // Before it goes on: the system would stop it again if it read the terminal.
                self.give_terminal();
                self.send(signal);
                self.send(Signal::CONT);
            }
            Reaction::Continue => {
                // All of the job: Ctrl-Z has also stopped what the command has started, for which the command may wait. We get the
                // signal, too, and pass it on, which changes nothing.
                let _ = kill_process_group(getpgrp(), Signal::CONT);
            }
            Reaction::Ignore | Reaction::GiveUp | Reaction::Kill => {}
        }
    }

    /// Lets the guard kill all that the command has started.
    pub(super) fn kill(&mut self) {
        self.may_leave = false;
        if let Some(guard) = self.number() {
            let _ = kill_process(guard, KILL_ALL);
        }
    }

    /// Kills the guard and its group, if it does not answer.
    pub(super) fn kill_guard(&self) {
        if let Some(guard) = self.number() {
            let _ = kill_process_group(guard, Signal::KILL);
        }
    }

    /// The guard's number. `None` once its end was noted: then it may be another process's, or another group's.
    fn number(&self) -> Option<Pid> {
        self.guard.id().and(Some(self.process))
    }

    /// What fails here has ended by itself.
    fn send(&self, signal: Signal) {
        let _ = match (self.number(), self.has_group) {
            (Some(guard), true) => kill_process_group(guard, signal),
            (Some(guard), false) => kill_process(guard, signal),
            (None, _) => Ok(()),
        };
    }

    /// In a pipeline, the terminal stays with the pipeline's group: a pager at its end reads it.
    fn give_terminal(&self) {
        if let Some(guard) = self.number().filter(|_| self.has_group && terminal::shows_output()) {
            terminal::give_to(guard);
        }
    }
}

/// When the guard has ended, its orphans are ours. Ends them, and returns those that could not be ended.
async fn end_orphans(strangers: &[Pid]) -> Vec<Pid> {
    let mut signals = Signals::default();
    // If the system refuses, the loop ends at its limit.
    let _ = signals.insist(Signal::CHILD);
    let give_up_at = Instant::now() + ORPHANS_KILLED_WITHIN;
    loop {
        let alive = without(processes::reap(None), strangers);
        if alive.is_empty() || Instant::now() >= give_up_at {
            return alive;
        }
        let ours = processes::our_groups(None);
        processes::signal(&alive, Signal::KILL, &ours, &mut HashSet::new());
        tokio::select! {
            _ = signals.next() => {}
            () = sleep_until(give_up_at) => {}
        }
    }
}

fn without(mut children: Vec<Pid>, strangers: &[Pid]) -> Vec<Pid> {
    children.retain(|child| !strangers.contains(child));
    children
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    use super::*;

    #[tokio::test]
    async fn nobody_gets_a_signal_once_the_end_of_the_guard_was_noted() {
        let mut guard = Command::new("true").spawn().unwrap();
        guard.wait().await.unwrap();
        // The system has given the guard's number to it.
        let mut other = std::process::Command::new("cat");
        let mut other = other.stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut guarded = Guarded {
            guard,
            process: Pid::from_child(&other),
            has_group: true,
            loss: None,
            ends: Signals::default(),
            strangers: Vec::new(),
            may_leave: false,
        };
        for has_group in [true, false] {
            guarded.has_group = has_group;
            guarded.react(Reaction::Forward, Signal::TERM);
            guarded.react(Reaction::ForwardAndContinue, Signal::TERM);
        }
        guarded.kill();
        guarded.kill_guard();
        drop(other.stdin.take());
        let status = other.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}
