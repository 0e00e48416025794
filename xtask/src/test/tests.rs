use super::*;

fn names(runs: &[Run]) -> Vec<(&str, &Outcome)> {
    runs.iter().map(|run| (run.name.as_str(), &run.outcome)).collect()
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

#[test]
fn a_step_beside_the_tests_is_not_run_without_what_it_needs() {
    let needing = |name, needs| {
        let mut step = steps::step(name, Kind::Test, "x");
        (step.beside, step.needs) = (true, needs);
        step
    };
    let steps = vec![
        needing("build a", None),
        needing("a", Some("build a")),
        needing("of a", Some("a")),
        needing("build b", None),
        needing("b", Some("build b")),
        needing("c", Some("built before")),
    ];
    let before = [Run::done("built before", Kind::Build, minutes(1))];
    let runs = in_turn(steps, &before, |step| {
        let outcome = match step.name.as_str() {
            "build a" => Outcome::Failed("exit status: 101".into()),
            _ => Outcome::Passed,
        };
        Run::ended(&step.name, step.kind, minutes(1), outcome)
    });
    assert_eq!(
        names(&runs),
        [
            ("build a", &Outcome::Failed("exit status: 101".into())),
            ("a", &Outcome::Senseless("build a")),
            ("of a", &Outcome::Senseless("a")),
            ("build b", &Outcome::Passed),
            ("b", &Outcome::Passed),
            ("c", &Outcome::Passed),
        ]
    );
    // Each of them fails the whole run.
    assert_eq!(
        run::problems(&runs),
        [
            "build a (exit status: 101)",
            "a was not run, because build a did not pass",
            "of a was not run, because a did not pass",
        ]
    );
}

#[test]
fn what_runs_beside_the_tests_is_counted_apart() {
    let beside = |kind, time| {
        let mut run = Run::done("beside", kind, time);
        run.beside = true;
        run
    };
    let mut runs = vec![
        Run::done("clippy", Kind::Build, minutes(7)),
        Run::done("tests", Kind::Test, minutes(20)),
        beside(Kind::Build, minutes(10)),
        beside(Kind::Torture, minutes(8)),
        beside(Kind::Test, minutes(5)),
    ];
    assert_eq!(over_budget(&runs, minutes(30)), [""; 0]);
    runs.push(beside(Kind::Build, minutes(2)));
    assert_eq!(
        over_budget(&runs, minutes(30)),
        ["the steps beside the tests took 25 min, 24 are planned"]
    );
    runs.truncate(2);
    runs.push(Run::done("torture", Kind::Torture, minutes(8)));
    assert_eq!(
        over_budget(&runs, minutes(41)),
        [
            "torture took 8 min, 7 are planned",
            "all together took 41 min, 40 are planned"
        ]
    );
}
