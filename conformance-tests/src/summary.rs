//! The results of the cases in files: for programs as JSON, and for people as HTML.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::case::Case;
use crate::verdict::Outcome;

/// The folder, as the environment names it.
const FOLDER: &str = "POLYLOCK_CONFORMANCE_REPORT";

/// Adds what became of a case, if a report is wanted. The files are whole after each case: the last one leaves the report of all, also if
/// each ran in a process of its own.
pub(crate) fn note(test: &str, case: &Case, outcome: &Outcome) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    if let Err(error) = add(&folder, test, case, outcome) {
        panic!("{FOLDER}: cannot write to {}: {error}", folder.display());
    }
}

fn add(folder: &Path, test: &str, case: &Case, outcome: &Outcome) -> io::Result<()> {
    let cases = folder.join("cases");
    fs::create_dir_all(&cases)?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    fs::write(
        cases.join(format!("{}.json", test.replace("::", "."))),
        told(test, case, outcome).to_string(),
    )?;
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(&cases)? {
        let told: Value = serde_json::from_slice(&fs::read(entry?.path())?)?;
        all.insert(told["test"].to_string(), told);
    }
    let all: Vec<Value> = all.into_values().collect();
    fs::write(folder.join("report.json"), serde_json::to_string_pretty(&all)?)?;
    fs::write(folder.join("report.html"), page(&all))
}

fn told(test: &str, case: &Case, outcome: &Outcome) -> Value {
    let (result, because) = match outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Skipped(skip) => ("skipped", Some(skip.to_string())),
        failed => ("failed", Some(failed.to_string())),
    };
    let module = test.rsplit_once("::").map_or("", |(module, _)| module);
    json!({
        "test": test, "module": module, "case": case.name, "topic": case.topic, "rule": case.rule(),
        "result": result, "because": because,
    })
}

/// A row for each case, a column for each module, and below it why what did not pass did not.
fn page(all: &[Value]) -> String {
    let text = |told: &Value, key: &str| escape(told[key].as_str().unwrap_or_default());
    let modules: BTreeSet<String> = all.iter().map(|told| text(told, "module")).collect();
    let mut rows: BTreeMap<(String, String), BTreeMap<String, String>> = BTreeMap::new();
    for told in all {
        let row = rows.entry((text(told, "topic"), text(told, "case"))).or_default();
        row.insert(text(told, "module"), text(told, "result"));
    }
    let count = |result: &str| all.iter().filter(|told| told["result"] == result).count();
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Conformance</title>\n<style>body {{ font-family: sans-serif }} \
         td, th {{ padding: 0 0.6em; text-align: left }} .failed {{ background: #fbb }} .passed {{ background: #cfc }} .skipped {{ color: \
         #888 }}</style>\n<h1>Conformance of locks</h1>\n<p>{} passed, {} failed, {} skipped</p>\n<table><tr><th>topic<th>case",
        count("passed"),
        count("failed"),
        count("skipped")
    );
    for module in &modules {
        page += &format!("<th>{module}");
    }
    for ((topic, case), results) in &rows {
        page += &format!("\n<tr><td>{topic}<td>{case}");
        for module in &modules {
            let result = results.get(module).map_or("", String::as_str);
            page += &format!("<td class=\"{result}\">{result}");
        }
    }
    page += "\n</table>\n<h2>Not passed</h2>\n<dl>";
    for told in all.iter().filter(|told| told["result"] != "passed") {
        let (test, result, because, rule) = (
            text(told, "test"),
            text(told, "result"),
            text(told, "because"),
            text(told, "rule"),
        );
        // Writing to a string does not fail.
        let _ = write!(page, "\n<dt>{test}: {result}<dd><pre>{because}</pre>The rule: {rule}");
    }
    page + "\n</dl></html>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::verdict::{Skip, Stop};

    #[test]
    fn the_report_has_all_that_was_noted_last() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let case = cases::named("a_second_client_is_refused");
        let broken = match Stop::assertion("2 holders, <both> alive") {
            Stop::Failed(failure) => Outcome::Failed(failure),
            Stop::Skipped(skip) => Outcome::Skipped(skip),
        };
        for (module, outcome) in [
            ("one", &Outcome::Passed),
            ("three", &broken),
            ("two", &broken),
            ("two", &Outcome::Skipped(Skip::OneProcess)),
        ] {
            add(folder, &format!("{module}::{}", case.name), case, outcome).unwrap();
        }
        let report: Value = serde_json::from_slice(&fs::read(folder.join("report.json")).unwrap()).unwrap();
        let page = fs::read_to_string(folder.join("report.html")).unwrap();
        let results: Vec<_> = report.as_array().unwrap().iter().map(|told| &told["result"]).collect();
        assert_eq!(results, ["passed", "failed", "skipped"]);
        for part in [
            "1 passed, 1 failed, 1 skipped",
            "2 holders, &lt;both&gt; alive",
            "The rule: All who hold a name at a time fit together",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
