//! The conformance suite's cases against the backends.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{Report, Verdict};

/// The suite's list of cases. A line has a layer, the effect on the server, and `topic::case`.
const LIST: &str = include_str!("../../../conformance-tests/src/cases.rs");

/// A row for each case with what became of it on each backend. The test "redis::exclusion_tasks" is the case "exclusion_tasks" on
/// "redis".
type Cases<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Verdict>>;

/// The table, then why what was skipped, then how many of the deliberately broken backends were caught.
pub(crate) fn render(report: &Report) -> String {
    let cases = cases(report);
    grid(&cases) + &reasons(report, &modules(&cases)) + &mutants(report)
}

/// Each module has a number, for a narrow column.
fn grid(cases: &Cases<'_>) -> String {
    if cases.is_empty() {
        return String::new();
    }
    let modules = modules(cases);
    let mut text = String::new();
    for (number, module) in (1..).zip(&modules) {
        text += &format!("{number:3} {module}: {}\n", counts(cases, module));
    }
    let width = cases.keys().map(|case| case.len()).max().unwrap_or_default().max(4);
    text += &format!("{:width$}", "case");
    for (number, _) in (1..).zip(&modules) {
        text += &format!("{number:3}");
    }
    text += "   . passed, s skipped, F failed\n";
    for (case, row) in cases {
        text += &format!("{case:width$}");
        for module in &modules {
            text += &format!("{:>3}", row.get(module).map_or(' ', |verdict| letter(*verdict)));
        }
        text.truncate(text.trim_end().len());
        text += "\n";
    }
    text
}

/// How many cases passed there, and how many did not.
fn counts(cases: &Cases<'_>, module: &str) -> String {
    let count = |wanted| cases.values().filter(|row| row.get(module) == Some(&wanted)).count();
    let mut text = format!("{} passed", count(Verdict::Passed));
    for (verdict, word) in [(Verdict::Skipped, "skipped"), (Verdict::Failed, "FAILED")] {
        match count(verdict) {
            0 => {}
            cases => text += &format!(", {cases} {word}"),
        }
    }
    text
}

/// Whether the suite did not run at all.
pub(crate) fn is_empty(report: &Report) -> bool {
    cases(report).is_empty()
}

fn cases(report: &Report) -> Cases<'_> {
    let (names, mut cases) = (names(), Cases::new());
    for (test, verdict) in &report.tests {
        if let Some((module, case)) = test.split_once("::")
            && names.contains(case)
        {
            cases.entry(case).or_default().insert(module, *verdict);
        }
    }
    cases
}

/// The names of the suite's cases.
fn names() -> BTreeSet<&'static str> {
    let name = |line: &'static str| {
        let mut words = line.split_whitespace();
        let is_case = matches!(words.next()?, "Raw" | "Modes" | "Subject");
        let (_, case) = words.nth(1).filter(|_| is_case)?.split_once("::")?;
        Some(case.trim_end_matches(';'))
    };
    LIST.lines().filter_map(name).collect()
}

/// The suite's modules that ran, one for each way to lock.
fn modules<'a>(cases: &Cases<'a>) -> BTreeSet<&'a str> {
    cases.values().flat_map(BTreeMap::keys).copied().collect()
}

fn letter(verdict: Verdict) -> char {
    match verdict {
        Verdict::Passed => '.',
        Verdict::Failed => 'F',
        Verdict::Skipped => 's',
    }
}

/// Which tests, the table shows.
fn reasons(report: &Report, modules: &BTreeSet<&str>) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (test, reason) in &report.reasons {
        let module = test.split("::").next().filter(|module| modules.contains(module));
        *counts.entry((module.unwrap_or("other tests"), reason)).or_default() += 1;
    }
    let lines = counts
        .into_iter()
        .map(|((module, reason), tests)| format!("skipped {tests:4} {module}: {reason}\n"));
    lines.collect()
}

fn mutants(report: &Report) -> String {
    let is_mutant = |test: &str| test.split("::").any(|part| part.starts_with("mutant_"));
    let verdicts: Vec<Verdict> = report
        .tests
        .iter()
        .filter(|(test, _)| is_mutant(test))
        .map(|(_, verdict)| *verdict)
        .collect();
    if verdicts.is_empty() {
        return String::new();
    }
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    format!(
        "mutants: {} caught, {} not caught, {} skipped\n",
        count(Verdict::Passed),
        count(Verdict::Failed),
        count(Verdict::Skipped)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: &str = "a_second_client_is_refused";

    fn report(tests: impl IntoIterator<Item = (String, Verdict)>) -> Report {
        let mut report = Report::default();
        report.tests.extend(tests);
        report
    }

    #[test]
    fn cases_are_rows_and_backends_columns() {
        let tests = [
            ("memory::all_or_none", Verdict::Passed),
            ("redis::all_or_none", Verdict::Failed),
            ("redis::passes_are_bounded", Verdict::Skipped),
            ("redis::tests::unit", Verdict::Passed),
            ("other::case", Verdict::Passed),
            ("policy::sharing::all_or_none", Verdict::Passed),
            ("mutant_no_margin", Verdict::Passed),
            ("mutants::mutant_forgets", Verdict::Failed),
        ];
        let mut report = report(tests.map(|(test, verdict)| (test.into(), verdict)));
        let skipped = ["redis::passes_are_bounded", "redis::a_name", "other::case"];
        report
            .reasons
            .extend(skipped.map(|test| (test.into(), "no fifo".into())));
        assert_eq!(
            render(&report),
            "  1 memory: 1 passed\n  2 redis: 0 passed, 1 skipped, 1 FAILED\n\
             case                1  2   . passed, s skipped, F failed\n\
             all_or_none         .  F\n\
             passes_are_bounded     s\n\
             skipped    1 other tests: no fifo\n\
             skipped    2 redis: no fifo\n\
             mutants: 1 caught, 1 not caught, 0 skipped\n"
        );
    }

    /// The names of the modules that the suite's binary makes.
    fn modules_of_the_suite() -> Vec<&'static str> {
        let made = include_str!("../../../conformance-tests/tests/all/main.rs")
            .split("conformance!(")
            .skip(1);
        let module = |made: &'static str| {
            let (_, named) = made
                .split_once(']')
                .filter(|_| made.trim_start().starts_with("only"))
                .unwrap_or(("", made));
            let (named, _harness) = named.split_once(',').expect("a module, then a harness");
            named.split_whitespace().next_back().expect("a module")
        };
        made.map(module).collect()
    }

    #[test]
    fn each_module_of_the_suite_is_shown() {
        let modules = modules_of_the_suite();
        assert!(
            modules.contains(&"memory_write") && modules.contains(&"quorum_postgres"),
            "{modules:?}"
        );
        let mut report = report(
            modules
                .iter()
                .map(|module| (format!("{module}::{CASE}"), Verdict::Skipped)),
        );
        report.reasons.extend(
            modules
                .iter()
                .map(|module| (format!("{module}::{CASE}"), "offline".into())),
        );
        let text = render(&report);
        for module in modules {
            assert!(
                text.contains(&format!(" {module}: 0 passed, 1 skipped\n")),
                "{module}:\n{text}"
            );
            assert!(
                text.contains(&format!("skipped    1 {module}: offline\n")),
                "{module}:\n{text}"
            );
        }
    }

    #[test]
    fn no_suite_is_noticed() {
        assert!(is_empty(&report([("redis::tests::unit".into(), Verdict::Passed)])));
        assert!(!is_empty(&report([(format!("redis::{CASE}"), Verdict::Skipped)])));
    }
}
