use super::*;

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

#[test]
fn what_runs_beside_others_has_no_limit_of_its_own() {
    let mut beside = Run::done("docs", Kind::Build, minutes(30));
    beside.beside = true;
    let mut runs = vec![
        Run::done("clippy", Kind::Build, minutes(7)),
        Run::done("tests", Kind::Test, minutes(20)),
        beside,
    ];
    assert_eq!(over_budget(&runs, minutes(30)), [""; 0]);
    runs.push(Run::done("torture", Kind::Torture, minutes(8)));
    assert_eq!(
        over_budget(&runs, minutes(41)),
        [
            "torture took 8 min, 7 are planned",
            "all together took 41 min, 40 are planned"
        ]
    );
}
