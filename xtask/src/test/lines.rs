//! In which order the steps run: one after another, and some of them in a second line, beside the first.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use super::run::{Outcome, Run};
use super::steps::{Kind, LONGEST, Step};

/// What is done with one step.
pub(crate) trait Runs: Sync {
    /// Runs it, and calls `begun` when cargo has built its programs.
    fn run(&self, step: Step, begun: &mut dyn FnMut()) -> Run;

    /// Repeats what failed in it, if that can tell anything. Nothing runs beside it.
    fn again(&self, run: Run) -> Run;
}

/// Runs them all, after those of `done`.
pub(crate) fn run(steps: Vec<Step>, done: Vec<Run>, runner: &impl Runs) -> Vec<Run> {
    let (beside, mut steps): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(|step| step.beside);
    let first_alone = steps.iter().position(|step| step.alone).unwrap_or(steps.len());
    let alone = steps.split_off(first_alone);
    let mut runs = in_two_lines(steps, beside, done, runner);
    // Not before: the second line would run beside it.
    runs = runs.into_iter().map(|run| runner.again(run)).collect();
    for step in alone {
        let run = unless_senseless(
            step,
            |needed| passed(&runs, needed),
            |step| runner.run(step, &mut || {}),
        );
        runs.push(runner.again(run));
    }
    runs
}

/// Whether the step of this name has passed.
pub(crate) fn passed(runs: &[Run], name: &str) -> bool {
    runs.iter()
        .any(|run| run.name == name && run.outcome == Outcome::Passed)
}

/// The second line begins with the longest step of the first, and is waited for.
fn in_two_lines(steps: Vec<Step>, beside: Vec<Step>, done: Vec<Run>, runner: &impl Runs) -> Vec<Run> {
    let waits = AtomicBool::new(false);
    let mut first = FirstLine {
        runs: done,
        beside: None,
        waits: &waits,
    };
    let mut beside = Some(beside);
    thread::scope(|scope| {
        for step in steps {
            let (begun, begin) = mpsc::channel::<()>();
            let mut second = None;
            if let Some(beside) = beside.take_if(|_| step.name == LONGEST) {
                let (sender, ended) = mpsc::channel();
                second = Some(ended);
                let passed = first.passed_so_far();
                let waits = &waits;
                scope.spawn(move || {
                    // Not before the programs are built: both would wait for cargo's lock. It ends with the sender.
                    let _ = begin.recv();
                    let steps = beside.into_iter().map(|mut step| {
                        step.yields = step.edition.is_none() && !waits.load(Ordering::Relaxed);
                        step
                    });
                    second_line(steps, passed, runner, |run| {
                        // The first line takes them all, unless it panics.
                        let _ = sender.send(run);
                    });
                });
            }
            let mut begun = Some(begun);
            let run = unless_senseless(
                step,
                |needed| first.passed(needed),
                |step| runner.run(step, &mut || drop(begun.take())),
            );
            // Also where it never began.
            drop(begun);
            first.runs.push(run);
            if second.is_some() {
                first.beside = second;
            }
        }
        first.wait();
    });
    first.runs
}

fn second_line(
    steps: impl Iterator<Item = Step>,
    mut passed: HashSet<String>,
    runner: &impl Runs,
    mut ended: impl FnMut(Run),
) {
    for step in steps {
        let run = unless_senseless(
            step,
            |needed| passed.contains(needed),
            |step| runner.run(step, &mut || {}),
        );
        if run.outcome == Outcome::Passed {
            passed.insert(run.name.clone());
        }
        ended(run);
    }
}

/// Runs the step, unless the one that it needs did not pass.
fn unless_senseless(step: Step, passed: impl FnOnce(&str) -> bool, run: impl FnOnce(Step) -> Run) -> Run {
    match step.needs {
        Some(needed) if !passed(needed) => {
            let mut run = Run::left_out(step.name, step.kind, Outcome::Senseless(needed));
            run.beside = step.beside;
            run
        }
        _ => run(step),
    }
}

struct FirstLine<'a> {
    /// What has ended, of both lines.
    runs: Vec<Run>,
    /// What ends in the second line, once it has begun.
    beside: Option<Receiver<Run>>,
    /// Whether it waits for the second line.
    waits: &'a AtomicBool,
}

impl FirstLine<'_> {
    fn passed_so_far(&self) -> HashSet<String> {
        let passed = self.runs.iter().filter(|run| run.outcome == Outcome::Passed);
        passed.map(|run| run.name.clone()).collect()
    }

    /// Waits for the step, if it is still to come in the second line.
    fn passed(&mut self, name: &str) -> bool {
        let is_missing = |runs: &[Run]| runs.iter().all(|run| run.name != name);
        self.waits.store(is_missing(&self.runs), Ordering::Relaxed);
        while is_missing(&self.runs) && self.take() {}
        self.waits.store(false, Ordering::Relaxed);
        passed(&self.runs, name)
    }

    /// Waits for the end of the second line.
    fn wait(&mut self) {
        let start = Instant::now();
        self.waits.store(true, Ordering::Relaxed);
        while self.take() {}
        self.runs
            .push(Run::done("waiting for what runs beside", Kind::Wait, start.elapsed()));
    }

    /// Takes the next one that ends in the second line, if another one will.
    fn take(&mut self) -> bool {
        let Some(run) = self.beside.as_ref().and_then(|beside| beside.recv().ok()) else {
            return false;
        };
        print!("{}", run.printed);
        self.runs.push(run);
        true
    }
}

#[cfg(test)]
mod tests;
