//! Runs one step and listens to what it prints.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::deadline::Deadline;
use super::report::Report;
use super::steps::{Kind, Line, Step};

/// Asks the tests for no server.
const OFFLINE: &str = "POLYLOCK_OFFLINE";

/// What became of a step.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) time: Duration,
    pub(crate) line: Line,
    pub(crate) outcome: Outcome,
    pub(crate) report: Report,
    /// What a step of another line than the first would have printed.
    pub(crate) printed: String,
    /// What was run, if anything.
    step: Option<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// The step of this name did not pass.
    Senseless(&'static str),
    /// Not possible as things are; why.
    LeftOut(String),
}

impl Run {
    pub(crate) fn done(name: &str, kind: Kind, time: Duration) -> Self {
        Self::ended(name, kind, time, Outcome::Passed)
    }

    pub(crate) fn ended(name: &str, kind: Kind, time: Duration, outcome: Outcome) -> Self {
        Self {
            name: name.into(),
            kind,
            time,
            line: Line::First,
            outcome,
            report: Report::default(),
            printed: String::new(),
            step: None,
        }
    }

    pub(crate) fn left_out(name: String, kind: Kind, line: Line, outcome: Outcome) -> Self {
        Self {
            line,
            ..Self::ended(&name, kind, Duration::ZERO, outcome)
        }
    }

    /// What nobody may take for tested.
    pub(crate) fn missing(&self) -> Option<String> {
        match &self.outcome {
            Outcome::LeftOut(why) => Some(format!("{}: {why}", self.name)),
            _ => None,
        }
    }
}

/// The command of `step`. Its output is passed on as it comes, or kept if the first line may print meanwhile. Goes on after
/// `deadline`, and the first step that does says so.
///
/// Calls `begun` when a program runs. Cargo has built them all when the first one does.
pub(crate) fn step(step: Step, path: &OsStr, offline: bool, deadline: &Deadline, begun: &mut dyn FnMut()) -> Run {
    let mut command = command(&step, path, offline);
    let start = Instant::now();
    let (mut report, mut printed) = (Report::default(), String::new());
    let mut print = |line: &str| match step.line {
        // Who closed our output does not want it; the exit code remains.
        Line::First | Line::Alone => _ = writeln!(std::io::stdout(), "{line}"),
        Line::Crates | Line::Servers | Line::Builds => printed += &format!("{line}\n"),
    };
    print(&format!("\n=== {}: cargo {}", step.name, step.arguments.join(" ")));
    let outcome = stream(&mut command, deadline, |line| {
        if line.starts_with("     Running ") {
            begun();
        }
        print(line);
        report.line(line);
    });
    let outcome = match outcome {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => Outcome::Failed(error.to_string()),
    };
    report.finish();
    Run {
        name: step.name.clone(),
        kind: step.kind,
        time: start.elapsed(),
        line: step.line,
        outcome,
        report,
        printed,
        step: Some(step),
    }
}

fn command(step: &Step, path: &OsStr, offline: bool) -> Command {
    let mut command = match step.toolchain {
        Some(toolchain) => cargo_of(toolchain),
        None if step.yields => yielding_cargo(),
        None => cargo(),
    };
    command
        .args(&step.arguments)
        .env("PATH", path)
        .envs(step.environment.iter().cloned());
    // From our environment it would skip the tests on servers, and nobody would notice.
    match offline {
        true => command.env(OFFLINE, "1"),
        false => command.env_remove(OFFLINE),
    };
    if !step.chosen.is_empty() || !step.left_out.is_empty() {
        command.args(["--", "--exact"]).args(&step.chosen);
        for test in &step.left_out {
            command.args(["--skip", test]);
        }
    }
    command
}

/// Runs the tests that failed once more, with nothing beside them. If all of them pass then, the step has passed, and they
/// are called unsteady.
pub(crate) fn again(mut run: Run, path: &OsStr, offline: bool, deadline: &Deadline) -> Run {
    let (Some(failed), Some(mut step)) = (run.report.to_repeat(), run.step.take()) else {
        return run;
    };
    step.name += ", what failed, alone";
    step.line = Line::Alone;
    step.chosen = failed;
    step.environment.push(("RUST_TEST_THREADS", "1".into()));
    let alone = self::step(step, path, offline, deadline, &mut || {});
    run.time += alone.time;
    if alone.outcome == Outcome::Passed && run.report.settle(&alone.report) {
        run.outcome = Outcome::Passed;
    }
    run
}

/// Cargo in the workspace's root, without what the cargo that started us has set for us.
pub(crate) fn cargo() -> Command {
    in_workspace(Command::new(program()))
}

/// The same with a third of the weight. At the lowest priority it would stand still on a machine with other work, and the first line
/// waits for the folder that it locks.
fn yielding_cargo() -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "5"]).arg(program());
    in_workspace(command)
}

/// That of another toolchain.
fn cargo_of(toolchain: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", toolchain, "cargo"]);
    // The cargo that started us names its own compiler.
    command
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO");
    in_workspace(command)
}

/// The workspace's folder.
pub(crate) fn root() -> &'static Path {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    folder.expect("xtask is a folder of the workspace")
}

fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn in_workspace(mut command: Command) -> Command {
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Standard output and standard error come through one pipe, so that their lines keep their order.
fn stream(command: &mut Command, deadline: &Deadline, mut each: impl FnMut(&str)) -> std::io::Result<ExitStatus> {
    let (reader, writer) = std::io::pipe()?;
    let mut child = spawn(command, writer)?;
    let (sender, lines) = mpsc::channel();
    let listener = thread::spawn(move || read_lines(reader, |line| sender.send(line).is_ok()));
    loop {
        let line = match deadline.left() {
            Some(left) => lines.recv_timeout(left),
            None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match line {
            Ok(line) => each(&line),
            Err(RecvTimeoutError::Timeout) => {
                if deadline.is_news() {
                    println!("!!! OVER BUDGET: the whole run has taken too long and still goes on");
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // It ends with the pipe and cannot panic.
    let _ = listener.join();
    child.wait()
}

/// The command keeps its ends of the pipe; ours are closed when this returns.
fn spawn(command: &mut Command, writer: std::io::PipeWriter) -> std::io::Result<Child> {
    let child = command.stdout(writer.try_clone()?).stderr(writer).spawn();
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    child
}

fn read_lines(reader: PipeReader, mut each: impl FnMut(String) -> bool) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    // A test may print anything, also what is no text.
    while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        if !each(String::from_utf8_lossy(&line).trim_end_matches('\n').into()) {
            return;
        }
        line.clear();
    }
}

/// Seconds and outcome of each step.
pub(crate) fn times(runs: &[Run], total: Duration) -> String {
    let mut text = String::new();
    for run in runs {
        let outcome = match &run.outcome {
            Outcome::Passed => match run.line {
                Line::First | Line::Alone => "",
                Line::Crates | Line::Servers | Line::Builds => "beside others",
            },
            Outcome::Failed(_) => "FAILED",
            Outcome::Senseless(_) => "not run",
            Outcome::LeftOut(_) => "left out",
        };
        let line = format!("{:6.0} s  {:36}{outcome}", run.time.as_secs_f32(), run.name);
        text += line.trim_end();
        text += "\n";
    }
    text + &format!("{:6.0} s  in all\n", total.as_secs_f32())
}

/// One line for each step that did not succeed.
pub(crate) fn problems(runs: &[Run]) -> Vec<String> {
    runs.iter()
        .filter_map(|run| match &run.outcome {
            Outcome::Passed | Outcome::LeftOut(_) => None,
            Outcome::Failed(how) => Some(format!("{} ({how})", run.name)),
            Outcome::Senseless(needed) => Some(format!("{} was not run, because {needed} did not pass", run.name)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_in_their_order() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo one; echo two >&2; printf 'th\\377ree\\n'; printf four; exit 3",
        ]);
        let mut lines = Vec::new();
        let deadline = Deadline::new(Instant::now() + Duration::from_secs(60));
        let status = stream(&mut command, &deadline, |line| lines.push(line.to_string())).expect("there is a shell");
        assert_eq!(lines, ["one", "two", "th\u{fffd}ree", "four"]);
        assert_eq!(status.code(), Some(3));
    }

    /// Also in the environment of the caller, without whose wish tests on servers are not skipped.
    #[test]
    fn a_step_is_offline_if_that_is_asked_for_and_not_otherwise() {
        let (mut steps, others) = crate::test::steps::all(&[]);
        steps.extend(others);
        for step in &steps {
            for (offline, wanted) in [(true, Some(OsStr::new("1"))), (false, None)] {
                let command = command(step, OsStr::new("/bin"), offline);
                let set = command.get_envs().find(|(name, _)| *name == OFFLINE);
                assert_eq!(set, Some((OsStr::new(OFFLINE), wanted)), "{}", step.name);
            }
        }
    }

    #[test]
    fn what_did_not_run_is_a_problem_and_what_was_left_out_is_said() {
        let runs = [
            Run::done("a", Kind::Build, Duration::from_secs(1)),
            Run::left_out("b".into(), Kind::Test, Line::First, Outcome::Senseless("a")),
            Run::left_out("c".into(), Kind::Deny, Line::Builds, Outcome::LeftOut("offline".into())),
        ];
        assert_eq!(problems(&runs), ["b was not run, because a did not pass"]);
        assert_eq!(runs.iter().filter_map(Run::missing).collect::<Vec<_>>(), ["c: offline"]);
    }
}
