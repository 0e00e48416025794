use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use testbed::Edition;

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
        run.beside = step.beside;
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

fn beside(name: &str) -> Step {
    let mut step = test(name);
    step.beside = true;
    step
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
        test(LONGEST).needs("built before"),
        beside("build a"),
        beside("a").needs("build a"),
        beside("of a").needs("a"),
        beside("build b"),
        beside("b").needs("build b"),
        beside("c").needs("built before"),
        test("first a").needs("build a"),
        test("first b").needs("build b"),
        test("last a").needs("build a").alone(),
    ];
    let before = vec![Run::done("built before", Kind::Build, Duration::ZERO)];
    let runs = run(steps, before, &nothing);
    let outcome = |name: &str| {
        let run = runs.iter().find(|run| run.name == name).expect("each step has a run");
        &run.outcome
    };
    for name in [LONGEST, "build b", "b", "c", "first b"] {
        assert_eq!(outcome(name), &Outcome::Passed, "{name}");
    }
    for (name, needed) in [
        ("a", "build a"),
        ("of a", "a"),
        ("first a", "build a"),
        ("last a", "build a"),
    ] {
        assert_eq!(outcome(name), &Outcome::Senseless(needed), "{name}");
    }
    // Each of them fails the whole run.
    assert_eq!(problems(&runs).len(), 5, "{:?}", problems(&runs));
}

#[test]
fn the_second_line_goes_on_beside_what_follows_the_longest() {
    let (sender, event) = mpsc::channel();
    let nothing = Nothing {
        waiting: Some(("models", event)).into(),
        telling: Some(("torture", sender)).into(),
        ..Nothing::default()
    };
    let steps = vec![test(LONGEST), beside("models"), test("torture"), test("last").alone()];
    run(steps, Vec::new(), &nothing);
    let seen = nothing.all_seen();
    in_order(&seen, &format!("begin {LONGEST}"), "begin models");
    in_order(&seen, "end torture", "end models");
    in_order(&seen, "end models", "begin last");
}

#[test]
fn what_failed_is_repeated_when_nothing_runs_beside_it() {
    let nothing = Nothing {
        failing: vec![LONGEST, "last"],
        ..Nothing::default()
    };
    let steps = vec![
        test(LONGEST),
        beside("docs"),
        test("torture"),
        test("last").alone(),
        test("x").alone(),
    ];
    run(steps, Vec::new(), &nothing);
    let seen = nothing.all_seen();
    let again = format!("again {LONGEST}");
    in_order(&seen, "end torture", &again);
    in_order(&seen, "end docs", &again);
    in_order(&seen, &again, "begin last");
    in_order(&seen, "again last", "begin x");
}

#[test]
fn the_second_line_runs_also_where_the_longest_step_cannot() {
    let nothing = Nothing::default();
    let steps = vec![test(LONGEST).needs("build tests"), beside("docs")];
    let runs = run(steps, Vec::new(), &nothing);
    assert_eq!(problems(&runs).len(), 1);
    assert_eq!(nothing.all_seen(), ["begin docs", "end docs"]);
}

#[test]
fn only_what_computes_beside_the_tests_yields() {
    let (sender, event) = mpsc::channel();
    let nothing = Nothing {
        waiting: Some((LONGEST, event)).into(),
        telling: Some(("early", sender)).into(),
        ..Nothing::default()
    };
    let mut on_servers = beside("on servers");
    on_servers.edition = Some(Edition::Redis8);
    let steps = vec![
        test(LONGEST),
        on_servers,
        beside("early"),
        beside("build torture"),
        test("torture").needs("build torture"),
    ];
    run(steps, Vec::new(), &nothing);
    let seen = nothing.all_seen();
    let yielding = |name: &str| seen.contains(&format!("yield {name}"));
    assert!(
        yielding("early") && !["on servers", LONGEST, "torture"].into_iter().any(yielding),
        "{seen:?}"
    );
}
