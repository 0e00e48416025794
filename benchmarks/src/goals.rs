//! What is aimed at, and whether it was reached.

use benchmarks_load::Unit;

use crate::peers;
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

const MEMORY: &[Aim] = &[aim(
    "ns that core adds to a pair on the raw trait",
    "core-1",
    Unit::NanosPerPair,
    By::LessThan("raw-trait"),
    AtMost(1000.0),
)];

/// Shares within 1:1.2.
const EVEN: f64 = 0.83;

const REDIS: &[Aim] = &[
    aim(
        "own-1, commands for a pair",
        "own-1",
        Unit::CommandsPerPair,
        By::Alone,
        AtMost(7.05),
    ),
    aim(
        "own-1 by bare",
        "own-1",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-16 by bare",
        "own-16",
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
        "tls-64 by the same without TLS",
        "tls-64",
        Unit::PairsPerSecond,
        By::Subjects("tls", "polylock"),
        AtLeast(0.75),
    ),
    aim(
        "own-16 by raw-trait",
        "own-16",
        Unit::PairsPerSecond,
        By::Subject("raw-trait"),
        AtLeast(0.95),
    ),
    aim(
        "own-64 by raw-trait",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("raw-trait"),
        AtLeast(0.95),
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
    // Both take several names in turn, and neither is passed one on without the server.
    aim(
        "own-1-background by bare",
        "own-1-background",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-1-background by own-1",
        "own-1-background",
        Unit::PairsPerSecond,
        By::Workload("own-1"),
        AtLeast(1.0),
    ),
    aim(
        "one-16 by a bare loop of hand-overs",
        "one-16",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.8),
    ),
    aim(
        "one-16 by hand-overs alone",
        "one-16",
        Unit::PairsPerSecond,
        By::Subject("hand-overs"),
        AtLeast(6.0),
    ),
    aim(
        "one-16 by the best peer",
        "one-16",
        Unit::PairsPerSecond,
        By::BestPeer,
        AtLeast(8.0),
    ),
    aim(
        "one-16, smallest share by largest",
        "one-16",
        Unit::Share,
        By::Alone,
        AtLeast(EVEN),
    ),
    aim(
        "two-16 by hand-overs alone",
        "two-16",
        Unit::PairsPerSecond,
        By::Subject("hand-overs"),
        AtLeast(4.0),
    ),
    aim(
        "two-16, smaller share by larger",
        "two-16",
        Unit::Share,
        By::Alone,
        AtLeast(EVEN),
    ),
    aim(
        "read-16 by Redisson",
        "read-16",
        Unit::PairsPerSecond,
        By::Subject("redisson"),
        AtLeast(10.0),
    ),
    aim(
        "beside-100 by beside-1, commands for a pair",
        "beside-100",
        Unit::CommandsPerPair,
        By::Workload("beside-1"),
        AtMost(1.05),
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

const MYSQL: &[Aim] = &[
    aim(
        "own-1 by bare",
        "own-1",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-16 by bare",
        "own-16",
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
        "tls-64 by the same without TLS",
        "tls-64",
        Unit::PairsPerSecond,
        By::Subjects("tls", "polylock"),
        AtLeast(0.75),
    ),
    aim(
        "one-16 with hand-overs by releases",
        "one-16",
        Unit::PairsPerSecond,
        By::Subjects("hand-overs", "releases"),
        AtLeast(2.0),
    ),
    aim(
        "one-16 with blocks of tokens by releases",
        "one-16",
        Unit::PairsPerSecond,
        By::Subject("releases"),
        AtLeast(8.0),
    ),
    aim(
        "idle-1000, hundredths of a core of this process",
        "idle-1000",
        Unit::CpuPercent,
        By::Alone,
        AtMost(5.0),
    ),
    aim(
        "idle-1000, hundredths of a core of the server",
        "idle-1000",
        Unit::ServerCpuPercent,
        By::Alone,
        AtMost(5.0),
    ),
    aim(
        "leases, own-1 by two updates",
        "own-1",
        Unit::PairsPerSecond,
        By::Subjects("lease", "two-updates"),
        AtLeast(0.75),
    ),
    aim(
        "leases, own-16 by two updates",
        "own-16",
        Unit::PairsPerSecond,
        By::Subjects("lease", "two-updates"),
        AtLeast(0.75),
    ),
    aim(
        "leases, own-64 by two updates",
        "own-64",
        Unit::PairsPerSecond,
        By::Subjects("lease", "two-updates"),
        AtLeast(0.75),
    ),
    aim(
        "handoff-128 by handoff-2, median",
        "handoff-128",
        Unit::MicrosMedian,
        By::Workload("handoff-2"),
        AtMost(2.0),
    ),
];

const ZOOKEEPER: &[Aim] = &[aim(
    "tls-64 by the same without TLS",
    "tls-64",
    Unit::PairsPerSecond,
    By::Subjects("tls", "polylock"),
    AtLeast(0.75),
)];

/// Those aims that the results say something about.
pub(crate) fn goals(results: &Results) -> Vec<Goal> {
    let aims = match results.backend.as_str() {
        "memory" => MEMORY,
        "redis" => REDIS,
        "mysql" => MYSQL,
        "zookeeper" => ZOOKEEPER,
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
