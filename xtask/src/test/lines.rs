//! In which order the steps run: first one after another, then in several lines side by side, and last one after another again.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use super::run::{Outcome, Run};
use super::steps::{DOCS, Kind, Line, SUITE, Step};

/// What is done with one step.
pub(crate) trait Runs: Sync {
    /// Runs it, and calls `begun` when cargo has built its programs.
    fn run(&self, step: Step, begun: &mut dyn FnMut()) -> Run;

    /// Repeats what failed in it, if that can tell anything. Nothing runs beside it.
    fn again(&self, run: Run) -> Run;
}

/// Runs them all, after those of `done`.
pub(crate) fn run(steps: Vec<Step>, done: Vec<Run>, runner: &impl Runs) -> Vec<Run> {
    let (last, steps): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(|step| step.line == Line::Alone);
    // Not before: the other lines would run beside it.
    let runs = in_lines(steps, done, runner);
    let runs = runs.into_iter().map(|run| runner.again(run)).collect();
    one_after_another(last, runs, runner)
}

/// Runs them after those of `done`, in one line.
pub(crate) fn one_after_another(steps: Vec<Step>, done: Vec<Run>, runner: &impl Runs) -> Vec<Run> {
    let mut runs = done;
    for step in steps {
        let run = match step.needs {
            Some(needed) if !passed(&runs, needed) => senseless(step, needed),
            _ => runner.run(step, &mut || {}),
        };
        runs.push(runner.again(run));
    }
    runs
}

/// Whether the step of this name has passed.
pub(crate) fn passed(runs: &[Run], name: &str) -> bool {
    runs.iter()
        .any(|run| run.name == name && run.outcome == Outcome::Passed)
}

fn senseless(step: Step, needed: &'static str) -> Run {
    Run::left_out(step.name, step.kind, step.line, Outcome::Senseless(needed))
}

/// The other lines begin with the suite, and are waited for.
fn in_lines(steps: Vec<Step>, done: Vec<Run>, runner: &impl Runs) -> Vec<Run> {
    let board = &Board::new(&steps, done);
    let first_ended = thread::scope(|scope| {
        let mut lines = Line::SIDE_BY_SIDE.map(|line| (line, Vec::new()));
        for step in steps {
            let line = lines.iter_mut().find(|(line, _)| *line == step.line);
            line.expect("those that run alone are not among them").1.push(step);
        }
        let [(_, first), others @ ..] = lines;
        for (line, steps) in others {
            scope.spawn(move || {
                drop(board.wait_until(|state| state.begun));
                board.run(line, steps, runner);
            });
        }
        board.run(Line::First, first, runner);
        Instant::now()
    });
    let State { runs, unprinted, .. } = &mut *board.state();
    // Of a step that ended just when the first line did.
    print!("{unprinted}");
    let mut runs = std::mem::take(runs);
    runs.push(Run::done(
        "waiting for what runs beside",
        Kind::Wait,
        first_ended.elapsed(),
    ));
    runs
}

/// What the lines know of each other.
struct Board {
    /// The names of the steps for which another line waits.
    awaited: HashSet<&'static str>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// What has ended, in all lines.
    runs: Vec<Run>,
    /// The names of the steps that have not ended.
    pending: HashSet<String>,
    /// Whether the suite runs.
    begun: bool,
    /// The lines that have not ended.
    running: HashSet<Line>,
    /// What the steps of the other lines would have printed while the first one printed.
    unprinted: String,
}

impl Board {
    fn new(steps: &[Step], done: Vec<Run>) -> Self {
        let state = State {
            runs: done,
            pending: steps.iter().map(|step| step.name.clone()).collect(),
            begun: false,
            running: steps.iter().map(|step| step.line).collect(),
            unprinted: String::new(),
        };
        let line_of = |name| Some(steps.iter().find(|step| step.name == name)?.line);
        let needed = steps.iter().filter_map(|step| Some((step.needs?, step.line)));
        Self {
            awaited: needed
                .filter(|(name, line)| line_of(*name).is_some_and(|its| its != *line))
                .map(|(name, _)| name)
                .collect(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Runs the steps of one line, one after another.
    fn run(&self, line: Line, steps: Vec<Step>, runner: &impl Runs) {
        let _ended = Ended {
            board: self,
            line,
            steps: steps.iter().map(|step| step.name.clone()).collect(),
        };
        for mut step in steps {
            let is_suite = step.name == SUITE;
            let run = match step.needs {
                Some(needed) if !self.passed(needed) => senseless(step, needed),
                _ => {
                    step.yields = self.yields(&step);
                    // The programs of the suite are built: before that, all would wait for cargo's lock.
                    runner.run(step, &mut || self.change(|state| state.begun |= is_suite))
                }
            };
            self.ended(run, line);
        }
    }

    /// Whether the step has passed; waits for it if it is still to come.
    fn passed(&self, name: &str) -> bool {
        let state = self.wait_until(|state| !state.pending.contains(name));
        passed(&state.runs, name)
    }

    /// What only builds and computes yields to tests, unless a line waits for it, and as long as none has ended. Tests on other servers
    /// begin when the documentation is written, as cargo's folder is locked until then.
    fn yields(&self, step: &Step) -> bool {
        let is_awaited = step.name == DOCS || self.awaited.contains(step.name.as_str());
        step.line == Line::Builds && !is_awaited && self.state().running.len() == Line::SIDE_BY_SIDE.len()
    }

    fn ended(&self, run: Run, line: Line) {
        let printed = self.change(|state| {
            state.unprinted += &run.printed;
            state.pending.remove(&run.name);
            state.runs.push(run);
            // Not in the middle of what the first line prints.
            let may_print = line == Line::First || !state.running.contains(&Line::First);
            may_print.then(|| std::mem::take(&mut state.unprinted))
        });
        print!("{}", printed.unwrap_or_default());
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.changed.wait_while(self.state(), |state| !is_so(state));
        state.expect("nothing panics while it is locked")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }
}

/// A line that ends, also by a panic: what others wait for does not come any more.
struct Ended<'a> {
    board: &'a Board,
    line: Line,
    steps: Vec<String>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.board.change(|state| {
            state.running.remove(&self.line);
            state.begun |= self.line == Line::First;
            for step in &self.steps {
                state.pending.remove(step);
            }
        });
    }
}

#[cfg(test)]
mod tests;
