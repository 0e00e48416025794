//! The tables of events and metrics in the docs of the crate.

use std::collections::BTreeSet;

const DOCS: &str = include_str!("../../../src/events.md");

/// Every span and event, as its row of the table.
pub(crate) fn spans_and_events() -> BTreeSet<String> {
    rows("| span or event | level | fields |").map(String::from).collect()
}

/// Every metric, with every value of its label.
pub(crate) fn metrics() -> BTreeSet<String> {
    let metrics = rows("| metric | kind | label |").flat_map(|row| {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = in_backticks(columns[1]).next().expect("a name");
        let kind = columns[2].split(':').next().expect("a kind");
        let kind = if ["histogram", "gauge"].contains(&kind) {
            kind
        } else {
            "counter"
        };
        let mut label = in_backticks(columns[3]);
        match label.next() {
            None => vec![format!("{kind} {name}")],
            // Any name is a value of this one.
            Some("election") => vec![format!("{kind} {name} election=NAME")],
            Some(key) => label.map(|value| format!("{kind} {name} {key}={value}")).collect(),
        }
    });
    metrics.collect()
}

fn rows(header: &'static str) -> impl Iterator<Item = &'static str> {
    let below = DOCS.lines().skip_while(move |line| *line != header).skip(2);
    below.take_while(|line| line.starts_with('|'))
}

fn in_backticks(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}
