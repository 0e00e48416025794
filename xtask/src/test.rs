//! `cargo xtask test`: everything that must hold before a change goes in.

use std::ffi::OsString;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Result, servers};

mod binaries;
mod deadline;
mod deny;
mod lines;
mod links;
mod reach;
mod report;
mod run;
mod share;
mod steps;
mod table;

use deadline::Deadline;
use lines::Runs;
use report::Report;
pub(crate) use run::root;
use run::{Outcome, Run};
pub(crate) use steps::PUBLISHED;
use steps::{Kind, Line, Step};

/// A whole run is to stay under this, on two cores and from nothing.
const TOTAL: Duration = Duration::from_secs(40 * 60);

/// The same as `TOTAL` with `--all`: a day.
const TOTAL_OF_ALL: Duration = Duration::from_hours(24);

/// Which of the steps are possible and wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) install: bool,
    pub(crate) offline: bool,
    /// Adds what takes hours or other compilers. Without it, an extra server version has its share of the tests alone.
    pub(crate) all: bool,
}

pub(crate) fn run(mut options: Options) -> Result<ExitCode> {
    let start = Instant::now();
    options.install |= testbed::is_ci();
    if options.offline {
        println!("offline: without lock servers and without downloads");
    } else if !options.install {
        // Before anything long.
        ensure_nothing_is_missing(options)?;
    }
    let runner = Runner {
        options,
        path: deny::path()?,
        deadline: Deadline::new(start + budget(options)),
    };
    links::prepare(&root().join("target/doc"), &PUBLISHED)?;
    let (first, mut steps) = steps::all(&binaries::names()?);
    if options.all {
        steps.extend(steps::thorough());
    }
    // One mostly waits for the network, the other for the processors. Who must mend the machine reads it before the builds end.
    let (installed, built) = thread::scope(|scope| {
        let installing = options
            .install
            .then(|| scope.spawn(|| install(options).inspect_err(|error| println!("error: {error}"))));
        let built = lines::one_after_another(first, Vec::new(), &runner);
        let installed = installing.map(|installing| installing.join().expect("it returns what goes wrong"));
        (installed, built)
    });
    let mut runs = installed.transpose()?.unwrap_or_default();
    runs.extend(built);
    let mut runs = lines::run(steps, runs, &runner);
    if lines::passed(&runs, steps::DOCS) {
        runs.push(links_of_docs());
    }
    Ok(conclude(&runs, start.elapsed(), options))
}

fn budget(options: Options) -> Duration {
    match options.all {
        true => TOTAL_OF_ALL,
        false => TOTAL,
    }
}

/// Checks what rustdoc has written.
fn links_of_docs() -> Run {
    let start = Instant::now();
    let outcome = match links::dead(&root().join("target/doc"), &PUBLISHED) {
        Ok(dead) if dead.is_empty() => Outcome::Passed,
        Ok(dead) => Outcome::Failed(format!("dead links:\n{}", dead.join("\n"))),
        Err(error) => Outcome::Failed(error),
    };
    Run::ended("links of docs", Kind::Build, start.elapsed(), outcome)
}

#[derive(Debug)]
struct Runner {
    options: Options,
    path: OsString,
    deadline: Deadline,
}

impl Runs for Runner {
    fn run(&self, step: Step, begun: &mut dyn FnMut()) -> Run {
        let (name, kind, line) = (step.name.clone(), step.kind, step.line);
        let step = match possible(step, self.options) {
            Ok(step) => step,
            Err(why) => return Run::left_out(name, kind, line, Outcome::LeftOut(why)),
        };
        match wanted(step, self.options) {
            Err(why) => Run::left_out(name, kind, line, Outcome::Failed(why)),
            Ok(step) => run::step(step, &self.path, self.options.offline, &self.deadline, begun),
        }
    }

    fn again(&self, run: Run) -> Run {
        match run.kind {
            // No slow machine explains what the races and the models find.
            Kind::Test | Kind::Torture if run.line != Line::Builds => {
                run::again(run, &self.path, self.options.offline, &self.deadline)
            }
            _ => run,
        }
    }
}

/// Installs what the steps need that only run or check what was built.
fn install(options: Options) -> Result<Vec<Run>> {
    let start = Instant::now();
    let left_out = servers::install()?;
    for why in &left_out {
        println!("left out: {why}");
    }
    let mut runs = vec![Run::done("servers", Kind::Download, start.elapsed())];
    let start = Instant::now();
    deny::install()?;
    runs.push(Run::done("install cargo-deny", Kind::Download, start.elapsed()));
    if options.all {
        let start = Instant::now();
        reach::install()?;
        runs.push(Run::done("install older compilers", Kind::Download, start.elapsed()));
    }
    // A variable may name a server that is not there.
    ensure_nothing_is_missing(options)?;
    Ok(runs)
}

fn ensure_nothing_is_missing(options: Options) -> Result<()> {
    let mut missing: Vec<String> = servers::missing().into_iter().chain(deny::missing()).collect();
    if options.all {
        missing.extend(reach::missing());
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "not ready to test (--install installs what is not there): {}",
        missing.join("; ")
    ))
}

/// The step as `options` want it.
fn wanted(step: Step, options: Options) -> Result<Step> {
    match step.edition {
        Some(edition) if !options.all => share::take(step, edition),
        None if step.name == steps::SUITE && !options.all && !options.offline => share::leave_out(step),
        _ => Ok(step),
    }
}

/// The step with the variable of its server, or why it cannot be, where nothing is wrong with that.
fn possible(mut step: Step, options: Options) -> Result<Step> {
    if let Some(edition) = step.edition {
        if options.offline {
            return Err("offline".into());
        }
        // What else is wrong was said before the first step.
        let variable = testbed::stand_in(edition).map_err(|error| error.to_string())?;
        step.environment.push(variable);
    }
    if step.kind == Kind::Deny && options.offline && deny::missing().is_some() {
        return Err("offline, and cargo-deny is not installed".into());
    }
    Ok(step)
}

/// Says it all once more in short; the last line is the count.
fn conclude(runs: &[Run], total: Duration, options: Options) -> ExitCode {
    let mut report = Report::default();
    for run in runs {
        report.add(&run.report);
    }
    println!("\n{}", run::times(runs, total));
    print!("{}", table::render(&report));
    let mut problems = run::problems(runs);
    problems.extend(report.problems());
    if table::is_empty(&report) {
        problems.push("not one case of the conformance suite was run".into());
    }
    for problem in &problems {
        println!("FAILED: {problem}");
    }
    for test in &report.unsteady {
        println!(
            "UNSTEADY: test {test} failed beside others and passed alone: {}",
            report.reason(test)
        );
    }
    let budget = budget(options);
    if total > budget {
        println!(
            "!!! OVER BUDGET: all together took {} min, {} are planned",
            total.as_secs().div_ceil(60),
            budget.as_secs() / 60
        );
    }
    let left_out: Vec<String> = runs.iter().filter_map(Run::missing).collect();
    for what in &left_out {
        println!("left out: {what}");
    }
    println!("{}", report.summary(left_out.len()));
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use testbed::Edition;

    use super::*;

    /// It may be installed after the steps are made, and before they run. Without its variable the tests would run on the distribution's own
    /// server, and pass.
    #[test]
    fn a_step_on_another_server_has_its_variable_when_it_runs() {
        let options = Options {
            install: false,
            offline: false,
            all: false,
        };
        let (_, steps) = steps::all(&[]);
        let on_others: Vec<Step> = steps.into_iter().filter(|step| step.edition.is_some()).collect();
        assert_eq!(on_others.len(), Edition::EXTRA.len());
        for step in on_others {
            let edition = step.edition.expect("only those were kept");
            let variables = |step: &Step| step.environment.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            let before = variables(&step);
            match (testbed::stand_in(edition), possible(step, options)) {
                (Ok((name, value)), Ok(step)) => {
                    assert!(!before.contains(&name), "{edition:?}: {before:?}");
                    assert!(step.environment.contains(&(name, value)), "{step:?}");
                }
                (Err(error), Err(why)) => assert_eq!(why, error.to_string()),
                (there, step) => panic!("{edition:?}: {there:?}, and {step:?}"),
            }
        }
    }
}
