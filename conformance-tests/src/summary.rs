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
pub(crate) const FOLDER: &str = "POLYLOCK_CONFORMANCE_REPORT";

/// Adds what became of a case, if a report is wanted. The files are whole after each case: the last one leaves the report of all, also if
/// each ran in a process of its own.
pub(crate) fn note(test: &str, case: &Case, outcome: &Outcome) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    if let Err(error) = add(&folder, &binary(), test, case, outcome) {
        panic!("{FOLDER}: cannot write to {}: {error}", folder.display());
    }
}

/// The package and the name of this test binary. `cargo test` and nextest set the package; without them it is the name of the file.
fn binary() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let stem = program.file_stem().unwrap_or_default().to_string_lossy();
    name_of(&stem, std::env::var("CARGO_PKG_NAME").ok().as_deref())
}

/// Without Cargo's hash, which another build of the same tests changes: its results replace the earlier ones. If the package is not known,
/// the hash tells apart the tests of two packages that have the same name.
fn name_of(stem: &str, package: Option<&str>) -> String {
    let Some(package) = package else {
        return stem.to_owned();
    };
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let test = match stem.rsplit_once('-') {
        Some((test, hash)) if is_hash(hash) => test,
        _ => stem,
    };
    format!("{package}.{test}")
}

fn add(folder: &Path, binary: &str, test: &str, case: &Case, outcome: &Outcome) -> io::Result<()> {
    let cases = folder.join("cases");
    fs::create_dir_all(&cases)?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    fs::write(
        cases.join(format!("{binary}.{}.json", test.replace("::", "."))),
        told(binary, test, case, outcome).to_string(),
    )?;
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(&cases)? {
        let told: Value = serde_json::from_slice(&fs::read(entry?.path())?)?;
        all.insert((told["test"].to_string(), told["binary"].to_string()), told);
    }
    let all: Vec<Value> = all.into_values().collect();
    fs::write(folder.join("report.json"), serde_json::to_string_pretty(&all)?)?;
    fs::write(folder.join("report.html"), page(&all))
}

fn told(binary: &str, test: &str, case: &Case, outcome: &Outcome) -> Value {
    let (result, because) = match outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Skipped(skip) => ("skipped", Some(skip.to_string())),
        failed => ("failed", Some(failed.to_string())),
    };
    let module = test.rsplit_once("::").map_or("", |(module, _)| module);
    json!({
        "test": test, "binary": binary, "module": module, "case": case.name, "topic": case.topic, "rule": case.rule(),
        "result": result, "because": because,
    })
}

/// A row for each case, a column for each module of each binary, and below it why what did not pass did not.
fn page(all: &[Value]) -> String {
    let text = |told: &Value, key: &str| escape(told[key].as_str().unwrap_or_default());
    let column = |told: &Value| (text(told, "module"), text(told, "binary"));
    let columns: BTreeSet<(String, String)> = all.iter().map(column).collect();
    let mut rows: BTreeMap<(String, String), BTreeMap<_, String>> = BTreeMap::new();
    for told in all {
        let row = rows.entry((text(told, "topic"), text(told, "case"))).or_default();
        row.insert(column(told), text(told, "result"));
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
    for (module, binary) in &columns {
        page += &format!("<th title=\"{binary}\">{module}");
    }
    for ((topic, case), results) in &rows {
        page += &format!("\n<tr><td>{topic}<td>{case}");
        for column in &columns {
            let result = results.get(column).map_or("", String::as_str);
            page += &format!("<td class=\"{result}\">{result}");
        }
    }
    page += "\n</table>\n<h2>Not passed</h2>\n<dl>";
    for told in all.iter().filter(|told| told["result"] != "passed") {
        let (test, binary, result, because, rule) = (
            text(told, "test"),
            text(told, "binary"),
            text(told, "result"),
            text(told, "because"),
            text(told, "rule"),
        );
        // Writing to a string does not fail.
        let _ = write!(
            page,
            "\n<dt title=\"{binary}\">{test}: {result}<dd><pre>{because}</pre>The rule: {rule}"
        );
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
    fn another_build_of_a_test_has_the_same_name() {
        for (stem, package, name) in [
            ("suite-0123456789abcdef", Some("mine"), "mine.suite"),
            ("suite-fedcba9876543210", Some("mine"), "mine.suite"),
            ("suite-0123456789abcdef", Some("yours"), "yours.suite"),
            ("all-suite-0123456789abcdef", Some("mine"), "mine.all-suite"),
            // No hash of Cargo's.
            ("suite", Some("mine"), "mine.suite"),
            ("suite-0123456789abcde", Some("mine"), "mine.suite-0123456789abcde"),
            ("suite-conformance_test", Some("mine"), "mine.suite-conformance_test"),
            ("suite-0123456789abcdef", None, "suite-0123456789abcdef"),
        ] {
            assert_eq!(name_of(stem, package), name);
        }
    }

    #[test]
    fn the_report_has_all_that_was_noted_last() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let case = cases::named("a_second_client_is_refused");
        let broken = match Stop::assertion("2 holders, <both> alive") {
            Stop::Failed(failure) => Outcome::Failed(failure),
            Stop::Skipped(skip) => Outcome::Skipped(skip),
        };
        for (binary, module, outcome) in [
            ("mine.suite", "one", &Outcome::Passed),
            ("mine.suite", "three", &broken),
            ("mine.suite", "two", &broken),
            ("mine.suite", "two", &Outcome::Skipped(Skip::OneProcess)),
            // Of another package, where all have the same names.
            ("yours.suite", "one", &broken),
        ] {
            add(folder, binary, &format!("{module}::{}", case.name), case, outcome).unwrap();
        }
        let report: Value = serde_json::from_slice(&fs::read(folder.join("report.json")).unwrap()).unwrap();
        let page = fs::read_to_string(folder.join("report.html")).unwrap();
        let results: Vec<_> = report.as_array().unwrap().iter().map(|told| &told["result"]).collect();
        assert_eq!(results, ["passed", "failed", "failed", "skipped"]);
        for part in [
            "1 passed, 2 failed, 1 skipped",
            "<th title=\"mine.suite\">one<th title=\"yours.suite\">one<th title=\"mine.suite\">three",
            "<td class=\"passed\">passed<td class=\"failed\">failed<td class=\"failed\">failed<td class=\"skipped\">skipped",
            "2 holders, &lt;both&gt; alive",
            "The rule: All who hold a name at a time fit together",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
