//! What people and programs are told.

use std::time::Duration;

use benchmarks_load::Unit;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde_json::json;

use crate::goals::goals;
use crate::results::{LeftOut, Results, Row};
use crate::workload;

mod brief;
mod chart;
pub(crate) mod docs;
pub(crate) mod kept;

/// One object a line for each figure.
pub(crate) fn json(results: &Results) -> String {
    let line = |row: &Row| {
        // In this order, for those who read it themselves.
        let fields = [
            ("backend", json!(results.backend)),
            ("workload", json!(row.workload)),
            ("subject", json!(row.subject)),
            ("unit", json!(row.unit.name())),
            ("median", json!(row.median())),
            ("best", json!(row.best())),
            ("worst", json!(row.worst())),
            ("rounds", json!(row.values)),
        ];
        let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}\n", fields.join(","))
    };
    results.rows.iter().map(line).collect()
}

/// All of a run, in Markdown, which reads well as it is.
pub(crate) fn text(results: &Results) -> String {
    let (command, date, took) = (&results.command, &results.date, minutes(results.took));
    let mut text = format!("## {}\n\n`{command}`, {date}, took {took}\n\n", results.backend);
    for (what, version) in &results.versions {
        text += &format!("- {what}: {version}\n");
    }
    text += &verdicts(results);
    for workload in workload::all() {
        let name = workload.to_string();
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.workload == name).collect();
        if !rows.is_empty() {
            text += &format!(
                "\n### {name}\n\n{}.\n\n{}\n",
                capital(&workload.explain()),
                table(&rows)
            );
        }
    }
    text + &left_out(&results.left_out)
}

fn verdicts(results: &Results) -> String {
    let goals = goals(results);
    if goals.is_empty() {
        return String::new();
    }
    let mut table = markdown(&["goal", "wanted", "measured", ""]);
    for goal in goals {
        let verdict = if goal.is_met { "met" } else { "**missed**" };
        table.add_row([goal.what, &goal.wanted, &number(goal.measured), verdict]);
    }
    format!("\n### Goals\n\n{table}\n")
}

/// The figures of one workload, unit by unit.
fn table(rows: &[&Row]) -> String {
    let mut units: Vec<Unit> = rows.iter().map(|row| row.unit).collect();
    units.sort_unstable();
    units.dedup();
    let mut table = markdown(&["unit", "subject", "median", "best", "worst", "ratio", ""]);
    for column in 2..=5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for unit in units {
        let same: Vec<&Row> = rows.iter().copied().filter(|row| row.unit == unit).collect();
        let most = same.iter().map(|row| row.median()).fold(0.0, f64::max);
        let reference = reference(&same);
        for row in same {
            let ratio = reference
                .map(|reference| row.ratio_to(reference))
                .filter(|ratio| ratio.is_finite());
            let ratio = ratio.map(number).unwrap_or_default();
            let [median, best, worst] = [row.median(), row.best(), row.worst()].map(number);
            let bar = bar(row.median(), most);
            table.add_row([unit.name(), &row.subject, &median, &best, &worst, &ratio, &bar]);
        }
    }
    table.to_string()
}

/// What the others' ratios are to: the least that could do.
fn reference<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    let find = |subject: &&str| rows.iter().find(|row| row.subject == *subject).copied();
    if rows.len() < 2 {
        return None;
    }
    ["bare", "raw-trait", "plain", "poll-10ms"].iter().find_map(find)
}

fn bar(value: f64, most: f64) -> String {
    const LONGEST: f64 = 20.0;
    let length = if most > 0.0 {
        (value / most * LONGEST).round()
    } else {
        0.0
    };
    "█".repeat(length as usize)
}

/// Everything that did not take part, told once for all workloads of the same reason.
fn left_out(all: &[LeftOut]) -> String {
    let mut told: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for left_out in all {
        let same = told
            .iter_mut()
            .find(|(subject, why, _)| *subject == left_out.subject && *why == left_out.why);
        match same {
            Some((_, _, workloads)) => workloads.push(&left_out.workload),
            None => told.push((&left_out.subject, &left_out.why, vec![&left_out.workload])),
        }
    }
    if told.is_empty() {
        return String::new();
    }
    let mut table = markdown(&["left out", "of", "because"]);
    for (subject, why, workloads) in told {
        table.add_row([subject, &workloads.join(", "), why]);
    }
    format!("\n### Left out\n\n{table}\n")
}

fn markdown(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    table
}

/// Three digits that matter, and thousands apart.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => thousands(&format!("{value:.0}")),
    }
}

fn thousands(digits: &str) -> String {
    let mut apart = String::new();
    for (place, digit) in digits.chars().enumerate() {
        let left = digits.len() - place;
        if place > 0 && left.is_multiple_of(3) && !apart.ends_with('-') {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

/// `2 min 10 s`.
fn minutes(time: Duration) -> String {
    match time.as_secs_f64().round() as u64 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{none, row};

    fn results(rows: Vec<Row>) -> Results {
        Results { rows, ..none("redis") }
    }

    #[test]
    fn a_figure_is_one_line_of_json() {
        let results = results(vec![row("own-1", "bare", Unit::PairsPerSecond, &[1.0, 3.0, 2.0])]);
        let line = json(&results);
        assert!(line.ends_with('\n') && line.lines().count() == 1);
        let expected = json!({"backend": "redis", "workload": "own-1", "subject": "bare", "unit": "pairs/s",
            "median": 2.0, "best": 3.0, "worst": 1.0, "rounds": [1.0, 3.0, 2.0]});
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), expected);
    }

    #[test]
    fn ratios_are_to_the_bare_client() {
        let rows = vec![
            row("own-1", "polylock", Unit::PairsPerSecond, &[9.0]),
            row("own-1", "bare", Unit::PairsPerSecond, &[10.0]),
        ];
        let text = text(&results(rows));
        let ours = text.lines().find(|line| line.contains("polylock")).unwrap();
        assert!(ours.contains(" 0.90 "), "{text}");
    }

    #[test]
    fn how_long_it_took_is_told() {
        let text = text(&results(Vec::new()));
        assert!(text.contains("`cargo run`, 2026-01-02, took 2 min 10 s\n"), "{text}");
        assert_eq!(minutes(Duration::from_millis(59_400)), "59 s");
        assert_eq!(minutes(Duration::from_millis(59_600)), "1 min 0 s");
    }

    #[test]
    fn why_something_is_left_out_is_told_once() {
        let left_out = ["own-1", "own-16"].map(|workload| LeftOut {
            workload: workload.into(),
            subject: "redsync".into(),
            why: "there is no go".into(),
            is_failure: false,
        });
        let text = super::left_out(&left_out);
        assert_eq!(text.matches("no go").count(), 1, "{text}");
        assert!(text.contains("own-1, own-16"), "{text}");
    }

    #[test]
    fn numbers() {
        let shown = [0.854, 61.23, 999.4, 12_345.6, 1_234_567.0, -1234.0].map(number);
        assert_eq!(shown, ["0.85", "61.2", "999", "12,346", "1,234,567", "-1,234"]);
    }
}
