//! What is aimed at, and whether it was reached.

use benchmarks_load::Unit;

use crate::results::{Results, Row};

/// One aim.
#[derive(Debug, PartialEq)]
pub(crate) struct Goal {
    pub(crate) what: &'static str,
    /// `at least 0.85`.
    pub(crate) wanted: String,
    pub(crate) measured: f64,
    pub(crate) is_met: bool,
}

/// A figure by what, to be compared.
enum By {
    /// The same round's figure of another subject.
    Subject(&'static str),
    /// The median of the same subject on another workload.
    Workload(&'static str),
    /// What another subject has less.
    LessThan(&'static str),
    /// Itself.
    Alone,
}

enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

struct Aim {
    what: &'static str,
    workload: &'static str,
    unit: Unit,
    by: By,
    bound: Bound,
}

const fn aim(what: &'static str, workload: &'static str, unit: Unit, by: By, bound: Bound) -> Aim {
    Aim {
        what,
        workload,
        unit,
        by,
        bound,
    }
}

const MEMORY: &[Aim] = &[aim(
    "ns that core adds to a pair on the raw trait",
    "core-1",
    Unit::NanosPerPair,
    By::LessThan("raw-trait"),
    AtMost(1000.0),
)];

const REDIS: &[Aim] = &[
    aim(
        "own-1 by bare",
        "own-1",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-64 by bare",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-1 by rslock",
        "own-1",
        Unit::PairsPerSecond,
        By::Subject("rslock"),
        AtLeast(1.0),
    ),
    aim(
        "own-64 by rslock",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("rslock"),
        AtLeast(0.8),
    ),
    aim(
        "own-1-background by own-1",
        "own-1-background",
        Unit::PairsPerSecond,
        By::Workload("own-1"),
        AtLeast(1.5),
    ),
    aim(
        "one-16 by a bare loop of hand-overs",
        "one-16",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.8),
    ),
    aim(
        "one-16, smallest share by largest",
        "one-16",
        Unit::Share,
        By::Alone,
        AtLeast(0.5),
    ),
    aim(
        "handoff-128 by handoff-2, median",
        "handoff-128",
        Unit::MicrosMedian,
        By::Workload("handoff-2"),
        AtMost(1.5),
    ),
    aim(
        "handoff-128 by poll-10ms, median",
        "handoff-128",
        Unit::MicrosMedian,
        By::Subject("poll-10ms"),
        AtMost(0.2),
    ),
];

/// Those aims that the results say something about.
pub(crate) fn goals(results: &Results) -> Vec<Goal> {
    let aims = match results.backend.as_str() {
        "memory" => MEMORY,
        "redis" => REDIS,
        _ => &[],
    };
    aims.iter().filter_map(|aim| judge(aim, results)).collect()
}

fn judge(aim: &Aim, results: &Results) -> Option<Goal> {
    let find = |workload, subject| -> Option<&Row> { results.row(workload, subject, aim.unit) };
    let ours = find(aim.workload, "polylock")?;
    let measured = match aim.by {
        By::Subject(subject) => ours.ratio_to(find(aim.workload, subject)?),
        By::Workload(workload) => ours.median() / find(workload, "polylock")?.median(),
        By::LessThan(subject) => ours.median() - find(aim.workload, subject)?.median(),
        By::Alone => ours.median(),
    };
    let (wanted, is_met) = match aim.bound {
        AtLeast(bound) => (format!("at least {bound}"), measured >= bound),
        AtMost(bound) => (format!("at most {bound}"), measured <= bound),
    };
    Some(Goal {
        what: aim.what,
        wanted,
        measured,
        is_met,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{none, row};

    #[test]
    fn are_judged_by_what_was_measured_alone() {
        let results = Results {
            rows: vec![
                row("own-1", "polylock", Unit::PairsPerSecond, &[90.0, 80.0, 9.0]),
                row("own-1", "bare", Unit::PairsPerSecond, &[100.0, 100.0, 10.0]),
                row("own-1", "rslock", Unit::PairsPerSecond, &[100.0, 100.0, 10.0]),
                row("one-16", "polylock", Unit::Share, &[0.4]),
            ],
            ..none("redis")
        };
        let goals = goals(&results);
        let verdicts: Vec<_> = goals
            .iter()
            .map(|goal| (goal.what, goal.measured, goal.is_met))
            .collect();
        let expected = [
            ("own-1 by bare", 0.9, true),
            ("own-1 by rslock", 0.9, false),
            ("one-16, smallest share by largest", 0.4, false),
        ];
        assert_eq!(verdicts, expected);
    }
}
