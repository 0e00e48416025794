//! The few figures of the README.

use benchmarks_load::Unit;

use super::{markdown, number};
use crate::peers;
use crate::results::{Results, Row};

const OURS: &str = "polylock";

const FIGURES: [(&str, Unit, &str); 9] = [
    (
        "own-1",
        Unit::PairsPerSecond,
        "One task acquires and releases a lock of its own: pairs a second",
    ),
    (
        "own-64",
        Unit::PairsPerSecond,
        "64 tasks do so, each with a lock of its own: pairs a second",
    ),
    (
        "one-16",
        Unit::PairsPerSecond,
        "16 tasks of one process share one lock: pairs a second",
    ),
    (
        "one-16",
        Unit::Share,
        "... how fairly: the fewest acquires of a task by the most",
    ),
    (
        "two-16",
        Unit::PairsPerSecond,
        "2 clients of 16 tasks each share one lock: pairs a second",
    ),
    (
        "read-16",
        Unit::PairsPerSecond,
        "16 tasks of one process read under one lock: pairs a second",
    ),
    (
        "rw-90",
        Unit::MicrosLongestWrite,
        "Of 10 acquires 9 read and one writes: a writer's longest wait, us",
    ),
    (
        "permits-64",
        Unit::PairsPerSecond,
        "64 tasks share a semaphore of 16 permits: pairs a second",
    ),
    (
        "handoff-128",
        Unit::MicrosMedian,
        "128 clients share one lock: from a release to the next grant, us, median",
    ),
];

/// The medians of polylock and of the other library that is the best there, and how they came about.
pub(super) fn table(results: &Results) -> String {
    let mut table = markdown(&["", OURS, "best other", "which"]);
    for (workload, unit, what) in FIGURES {
        let ours = results.row(workload, OURS, unit);
        let best = best_peer(results, workload, unit);
        let median = |row: Option<&Row>| row.map(|row| number(row.median())).unwrap_or_default();
        let name = best.map(|row| row.subject.clone()).unwrap_or_default();
        table.add_row([what.to_owned(), median(ours), median(best), name]);
    }
    let load = results.versions.iter().find(|(what, _)| what == "load");
    let load = load.map_or("unknown", |(_, load)| load);
    let (command, date) = (&results.command, &results.date);
    format!("{table}\n\n`{command}`, {date}; load of the machine: {load}.\n")
}

fn best_peer<'a>(results: &'a Results, workload: &str, unit: Unit) -> Option<&'a Row> {
    let is_one = |row: &&Row| row.workload == workload && row.unit == unit && peers::is_peer(&row.subject);
    let peers = results.rows.iter().filter(is_one);
    peers.max_by(|one, other| match unit.more_is_better() {
        true => one.median().total_cmp(&other.median()),
        false => other.median().total_cmp(&one.median()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{none, row};

    #[test]
    fn shows_the_best_of_the_others() {
        let results = Results {
            rows: vec![
                row("own-1", "polylock", Unit::PairsPerSecond, &[9.0]),
                row("own-1", "bare", Unit::PairsPerSecond, &[99.0]),
                row("own-1", "redsync", Unit::PairsPerSecond, &[8.0]),
                row("own-1", "rslock", Unit::PairsPerSecond, &[12.0]),
                row("rw-90", "polylock", Unit::MicrosLongestWrite, &[5.0]),
                row("rw-90", "redsync", Unit::MicrosLongestWrite, &[6.0]),
                row("rw-90", "redisson", Unit::MicrosLongestWrite, &[7.0]),
            ],
            versions: vec![("load".into(), "1.00 before, 2.00 after".into())],
            ..none("redis")
        };
        let table = table(&results);
        let cells = |workload: &str| -> Vec<&str> {
            let line = table
                .lines()
                .find(|line| line.contains(workload))
                .expect("it has a line");
            line.split('|').map(str::trim).skip(2).take(3).collect()
        };
        assert_eq!(cells("One task acquires"), ["9.00", "12.0", "rslock"]);
        assert_eq!(cells("a writer's longest wait"), ["5.00", "6.00", "redsync"]);
        assert_eq!(cells("a semaphore"), ["", "", ""]);
        let how = "|\n\n`cargo run`, 2026-01-02; load of the machine: 1.00 before, 2.00 after.\n";
        assert!(table.ends_with(how), "{table}");
    }
}
