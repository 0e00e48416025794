use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use super::super::run::problems;
use super::super::steps::step;
use super::*;

/// Steps that do nothing but fail where it is said, and wait for an event where it is said.
#[derive(Default)]
struct Nothing {
    failing: Vec<&'static str>,
    /// In the order in which they began and ended.
    seen: Mutex<Vec<String>>,
    /// The step waits until there is something in the channel.
    waiting: Mutex<Option<(&'static str, Receiver<()>)>>,
    /// The end of the step is told.
    telling: Mutex<Option<(&'static str, Sender<()>)>>,
}

impl Nothing {
    fn seen(&self, what: &str, name: &str) {
        self.seen.lock().unwrap().push(format!("{what} {name}"));
    }

    fn all_seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Runs for Nothing {
    fn run(&self, step: Step, begun: &mut dyn FnMut()) -> Run {
        self.seen("begin", &step.name);
        if step.yields {
            self.seen("yield", &step.name);
        }
        begun();
        let waiting = self.waiting.lock().unwrap().take_if(|(name, _)| *name == step.name);
        if let Some((_, event)) = waiting {
            event.recv_timeout(Duration::from_secs(60)).expect("it is told");
        }
        self.seen("end", &step.name);
        let telling = self.telling.lock().unwrap().take_if(|(name, _)| *name == step.name);
        if let Some((_, event)) = telling {
            event.send(()).expect("somebody waits");
        }
        let outcome = match self.failing.contains(&step.name.as_str()) {
            true => Outcome::Failed("exit status: 101".into()),
            false => Outcome::Passed,
        };
        let mut run = Run::ended(&step.name, step.kind, Duration::from_secs(1), outcome);
        run.line = step.line;
        run
    }

    fn again(&self, run: Run) -> Run {
        if matches!(run.outcome, Outcome::Failed(_)) {
            self.seen("again", &run.name);
        }
        run
    }
}

fn test(name: &str) -> Step {
    step(name, Kind::Test, "x")
}

fn on(line: Line, name: &str) -> Step {
    test(name).on(line)
}

/// The first before the second.
fn in_order(seen: &[String], first: &str, second: &str) {
    let at = |what| {
        seen.iter()
            .position(|seen| seen == what)
            .unwrap_or_else(|| panic!("{what} in {seen:?}"))
    };
    assert!(at(first) < at(second), "{first}, {second}: {seen:?}");
}

#[test]
fn a_step_is_not_run_without_what_it_needs() {
    let nothing = Nothing {
        failing: vec!["build a"],
        ..Nothing::default()
    };
    let steps = vec![
        test(SUITE).needs("built before"),
        on(Line::Builds, "build a"),
        on(Line::Builds, "a").needs("build a"),
        on(Line::Builds, "of a").needs("a"),
        on(Line::Builds, "build b"),
        on(Line::Builds, "b").needs("build b"),
        on(Line::Builds, "c").needs("built before"),
        on(Line::Servers, "server a").needs("build a"),
        on(Line::Servers, "server b").needs("build b"),
        on(Line::Crates, "crate x").needs("nobody has it"),
        on(Line::Alone, "last a").needs("build a"),
        on(Line::Alone, "last b").needs("build b"),
    ];
    let before = vec![Run::done("built before", Kind::Build, Duration::ZERO)];
    let runs = run(steps, before, &nothing);
    let outcome = |name: &str| {
        let run = runs.iter().find(|run| run.name == name).expect("each step has a run");
        &run.outcome
    };
    for name in [SUITE, "build b", "b", "c", "server b", "last b"] {
        assert_eq!(outcome(name), &Outcome::Passed, "{name}");
    }
    for (name, needed) in [
        ("a", "build a"),
        ("of a", "a"),
        ("server a", "build a"),
        ("crate x", "nobody has it"),
        ("last a", "build a"),
    ] {
        assert_eq!(outcome(name), &Outcome::Senseless(needed), "{name}");
    }
    // Each of them fails the whole run.
    assert_eq!(problems(&runs).len(), 6, "{:?}", problems(&runs));
}

#[test]
fn the_lines_go_on_beside_each_other() {
    let (sender, event) = mpsc::channel();
    let nothing = Nothing {
        waiting: Some(("models", event)).into(),
        telling: Some(("torture", sender)).into(),
        ..Nothing::default()
    };
    let steps = vec![
        test("clippy"),
        test(SUITE),
        on(Line::Builds, "models"),
        on(Line::Servers, "torture"),
        on(Line::Alone, "last"),
    ];
    run(steps, Vec::new(), &nothing);
    let seen = nothing.all_seen();
    in_order(&seen, "end clippy", "begin models");
    in_order(&seen, &format!("begin {SUITE}"), "begin models");
    in_order(&seen, "end torture", "end models");
    in_order(&seen, "end models", "begin last");
}

#[test]
fn what_failed_is_repeated_when_nothing_runs_beside_it() {
    let nothing = Nothing {
        failing: vec![SUITE, "torture", "last"],
        ..Nothing::default()
    };
    let steps = vec![
        test(SUITE),
        on(Line::Builds, "docs"),
        on(Line::Servers, "torture"),
        on(Line::Alone, "last"),
        on(Line::Alone, "x"),
    ];
    run(steps, Vec::new(), &nothing);
    let seen = nothing.all_seen();
    for again in [&format!("again {SUITE}"), "again torture"] {
        for end in [&format!("end {SUITE}"), "end torture", "end docs"] {
            in_order(&seen, end, again);
        }
        in_order(&seen, again, "begin last");
    }
    in_order(&seen, "again last", "begin x");
}

#[test]
fn the_other_lines_run_also_where_the_suite_cannot() {
    let nothing = Nothing::default();
    let steps = vec![test(SUITE).needs("build tests"), on(Line::Builds, "docs")];
    let runs = run(steps, Vec::new(), &nothing);
    assert_eq!(problems(&runs).len(), 1);
    assert_eq!(nothing.all_seen(), ["begin docs", "end docs"]);
}

#[test]
fn what_computes_yields_unless_a_line_waits_for_it_or_one_has_ended() {
    let [suite, crates, torture] = [
        test(SUITE),
        on(Line::Crates, "crates"),
        on(Line::Servers, "torture").needs("build torture"),
    ];
    let builds = [
        on(Line::Builds, "build torture"),
        on(Line::Builds, DOCS),
        on(Line::Builds, "build races"),
        on(Line::Builds, "races").needs("build races"),
    ];
    let steps: Vec<_> = [suite, crates, torture].into_iter().chain(builds).collect();
    let board = &Board::new(&steps, Vec::new());
    let yielding = || -> Vec<&str> {
        let yielding = steps.iter().filter(|step| board.yields(step));
        yielding.map(|step| step.name.as_str()).collect()
    };
    assert_eq!(yielding(), ["build races", "races"]);
    board.run(Line::Crates, Vec::new(), &Nothing::default());
    assert!(yielding().is_empty());
}
