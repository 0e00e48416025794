//! The few figures of the README.

use benchmarks_load::Unit;

use super::{markdown, number};
use crate::results::Results;

/// One peer in Rust, one in Go and one in Java.
const SUBJECTS: [&str; 4] = ["polylock", "rslock", "redsync", "redisson"];

const FIGURES: [(&str, Unit, &str); 10] = [
    ("own-1", Unit::PairsPerSecond, "1 task, its own lock: pairs/s"),
    ("own-64", Unit::PairsPerSecond, "64 tasks, each its own: pairs/s"),
    ("one-16", Unit::PairsPerSecond, "16 tasks, one lock: pairs/s"),
    ("one-16", Unit::Share, "... smallest by largest share"),
    (
        "two-16",
        Unit::PairsPerSecond,
        "2 clients of 16 tasks, one lock: pairs/s",
    ),
    ("read-16", Unit::PairsPerSecond, "16 readers, one lock: pairs/s"),
    (
        "beside-100",
        Unit::CommandsPerPair,
        "... commands for one beside 100 others",
    ),
    (
        "rw-90",
        Unit::MicrosLongestWrite,
        "90 % readers: longest wait of a writer, us",
    ),
    ("permits-64", Unit::PairsPerSecond, "64 tasks, 16 permits: pairs/s"),
    ("handoff-128", Unit::MicrosMedian, "128 clients, hand-off: us, median"),
];

/// The medians, nothing where nothing was measured, and how they came about.
pub(super) fn table(results: &Results) -> String {
    let measured = |subject: &&str| {
        FIGURES
            .iter()
            .any(|(workload, unit, _)| results.row(workload, subject, *unit).is_some())
    };
    let subjects: Vec<&str> = SUBJECTS.into_iter().filter(measured).collect();
    let mut header = vec![""];
    header.extend(&subjects);
    let mut table = markdown(&header);
    for (workload, unit, what) in FIGURES {
        let figure = |subject: &&str| results.row(workload, subject, unit).map(|row| number(row.median()));
        let figures = subjects.iter().map(|subject| figure(subject).unwrap_or_default());
        table.add_row(std::iter::once(what.to_owned()).chain(figures));
    }
    let load = results.versions.iter().find(|(what, _)| what == "load");
    let load = load.map_or("unknown", |(_, load)| load);
    let (command, date) = (&results.command, &results.date);
    format!("{table}\n\n`{command}`, {date}; load of the machine: {load}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{none, row};

    #[test]
    fn shows_those_that_were_measured() {
        let results = Results {
            rows: vec![
                row("own-1", "polylock", Unit::PairsPerSecond, &[9.0]),
                row("one-16", "redsync", Unit::Share, &[0.5]),
            ],
            versions: vec![("load".into(), "1.00 before, 2.00 after".into())],
            ..none("redis")
        };
        let table = table(&results);
        assert!(
            table.contains("polylock") && table.contains("redsync") && !table.contains("rslock"),
            "{table}"
        );
        assert!(table.contains("9.00") && table.contains("0.50"), "{table}");
        let how = "|\n\n`cargo run`, 2026-01-02; load of the machine: 1.00 before, 2.00 after.\n";
        assert!(table.ends_with(how), "{table}");
    }
}
