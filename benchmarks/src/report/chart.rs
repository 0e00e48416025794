//! A picture of a run: a bar for each subject's median, with the range from its best to its worst round.

use std::fmt::Write;

use benchmarks_load::Unit;

use super::number;
use crate::results::{Results, Row};
use crate::workload;

const WIDTH: u32 = 820;
/// Where the bars begin, and how long the longest is.
const LEFT: u32 = 190;
const LONGEST: f64 = 500.0;
const LINE: u32 = 20;

/// As SVG.
pub(super) fn svg(results: &Results) -> String {
    let mut body = String::new();
    let mut y = LINE;
    for workload in workload::all().into_iter().map(|workload| workload.to_string()) {
        let rows = main_rows(results, &workload);
        let Some(unit) = rows.first().map(|row| row.unit) else {
            continue;
        };
        text(&mut body, 10, y, "w", &format!("{workload}, {unit}"));
        y += LINE;
        let most = rows
            .iter()
            .flat_map(|row| [row.best(), row.worst()])
            .fold(0.0, f64::max);
        for row in rows {
            bar(&mut body, row, y, LONGEST / most);
            y += LINE;
        }
        y += LINE / 2;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" viewBox=\"0 0 {WIDTH} {y}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{}, {}</title>\n\
         <style>.w{{font-weight:bold}}.bg{{fill:#fff}}.ours{{fill:#2b6cb0}}.other{{fill:#a0aec0}}\
         .range{{stroke:#1a202c;stroke-width:1.5}}</style>\n\
         <rect class=\"bg\" width=\"{WIDTH}\" height=\"{y}\"/>\n{body}</svg>\n",
        escape(&results.backend),
        escape(&results.date),
    )
}

/// The figures in the unit that a workload is about.
fn main_rows<'a>(results: &'a Results, workload: &str) -> Vec<&'a Row> {
    let rows = || results.rows.iter().filter(|row| row.workload == workload);
    let unit = rows().map(|row| row.unit).min_by_key(|unit| match unit {
        Unit::CpuPerLockMinute => (0, *unit),
        _ => (1, *unit),
    });
    rows().filter(|row| Some(row.unit) == unit).collect()
}

fn bar(body: &mut String, row: &Row, y: u32, scale: f64) {
    let class = if row.subject == "polylock" { "ours" } else { "other" };
    let [median, best, worst] = [row.median(), row.best(), row.worst()].map(|value| value * scale);
    text(body, 20, y, "", &row.subject);
    let (top, middle) = (y - 11, y - 4);
    let left = f64::from(LEFT);
    let (from, to) = (left + best.min(worst), left + best.max(worst));
    let _ = write!(
        body,
        "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{top}\" width=\"{median:.1}\" height=\"14\"/>\
         <line class=\"range\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>"
    );
    let after = left + LONGEST + 10.0;
    text(body, after as u32, y, "", &number(row.median()));
}

fn text(body: &mut String, x: u32, y: u32, class: &str, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(
        body,
        "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>",
        escape(text)
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{none, row};

    #[test]
    fn the_best_is_longest_and_names_are_escaped() {
        let results = Results {
            rows: vec![
                row("own-1", "polylock", Unit::PairsPerSecond, &[50.0]),
                row("own-1", "polylock", Unit::Micros99, &[7.0]),
                row("own-1", "bare", Unit::PairsPerSecond, &[100.0]),
            ],
            ..none("a<b")
        };
        let svg = svg(&results);
        assert!(svg.contains("<title>a&lt;b, 2026-01-02</title>"), "{svg}");
        assert!(
            svg.contains("class=\"ours\" x=\"190\" y=\"29\" width=\"250.0\""),
            "{svg}"
        );
        assert!(svg.contains("width=\"500.0\""), "{svg}");
        assert!(!svg.contains("us-p99"), "{svg}");
    }
}
