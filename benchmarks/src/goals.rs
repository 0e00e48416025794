//! What is aimed at, and whether it was reached.

use benchmarks_load::Unit;

use self::aims::{MEMORY, MYSQL, QUORUM, REDIS, ZOOKEEPER};
use crate::peers;
use crate::results::{Results, Row};

mod aims;

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
    /// The same round's best figure of another library.
    BestPeer,
    /// The median of the same subject on another workload.
    Workload(&'static str),
    /// What another subject has less.
    LessThan(&'static str),
    /// The same round's figure of a second subject, and not of polylock but of the first.
    Subjects(&'static str, &'static str),
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

/// Those aims that the results say something about.
pub(crate) fn goals(results: &Results) -> Vec<Goal> {
    let aims = match results.backend.as_str() {
        "memory" => MEMORY,
        "redis" => REDIS,
        "mysql" => MYSQL,
        "zookeeper" => ZOOKEEPER,
        "quorum" => QUORUM,
        _ => &[],
    };
    aims.iter().filter_map(|aim| judge(aim, results)).collect()
}

fn judge(aim: &Aim, results: &Results) -> Option<Goal> {
    let find = |workload, subject| -> Option<&Row> { results.row(workload, subject, aim.unit) };
    let ours = match aim.by {
        By::Subjects(subject, _) => subject,
        _ => "polylock",
    };
    let ours = find(aim.workload, ours)?;
    let measured = match aim.by {
        By::Subject(subject) | By::Subjects(_, subject) => ours.ratio_to(find(aim.workload, subject)?),
        By::BestPeer => {
            let peers = results.rows.iter().filter(|row| {
                (row.workload.as_str(), row.unit) == (aim.workload, aim.unit) && peers::is_peer(&row.subject)
            });
            let ratios = peers.map(|peer| ours.ratio_to(peer));
            // All units of such goals are better the higher they are.
            ratios.reduce(f64::min)?
        }
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
                row("one-16", "polylock", Unit::PairsPerSecond, &[90.0, 80.0]),
                row("one-16", "rslock", Unit::PairsPerSecond, &[10.0, 10.0]),
                row("one-16", "redsync", Unit::PairsPerSecond, &[9.0, 9.0]),
                row("one-16", "poll-10ms", Unit::PairsPerSecond, &[45.0, 45.0]),
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
            ("one-16 by the best peer", 8.5, true),
            ("one-16, smallest share by largest", 0.4, false),
        ];
        assert_eq!(verdicts, expected);
    }
}
