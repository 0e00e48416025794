//! The conformance suite's cases against the backends.

use std::collections::BTreeMap;

use super::report::{Report, Verdict};

/// The suite's modules, one for each way to lock, in the order of the columns. A test "redis::exclusion_tasks" is the
/// case "exclusion_tasks" on "redis".
const BACKENDS: [&str; 16] = [
    "memory",
    "memory_permit",
    "memory_write",
    "redis",
    "redis_permit",
    "redis_acl",
    "redis8",
    "valkey9",
    "mysql_row",
    "mysql9_row",
    "mysql_row_hostile",
    "mysql9_row_hostile",
    "mysql_lease",
    "mysql9_lease_hostile",
    "mysql_lease_permit",
    "zookeeper",
];

/// A row for each case with what became of it on each backend.
type Cases<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Verdict>>;

/// The table, then why what was skipped, then how many of the deliberately broken backends were caught.
pub(crate) fn render(report: &Report) -> String {
    grid(&cases(report)) + &reasons(report) + &mutants(report)
}

fn grid(cases: &Cases<'_>) -> String {
    if cases.is_empty() {
        return String::new();
    }
    let backends: Vec<&str> = BACKENDS
        .into_iter()
        .filter(|backend| cases.values().any(|row| row.contains_key(backend)))
        .collect();
    let width = cases.keys().map(|case| case.len()).max().unwrap_or_default().max(4);
    let mut text = format!("{:width$}", "case");
    for backend in &backends {
        text += &format!("  {backend}");
    }
    text += "\n";
    for (case, row) in cases {
        text += &format!("{case:width$}");
        for backend in &backends {
            let cell = row.get(backend).map_or("-", |verdict| word(*verdict));
            text += &format!("  {cell:columns$}", columns = backend.len());
        }
        text.truncate(text.trim_end().len());
        text += "\n";
    }
    text
}

/// Whether the suite did not run at all.
pub(crate) fn is_empty(report: &Report) -> bool {
    cases(report).is_empty()
}

fn cases(report: &Report) -> Cases<'_> {
    let mut cases = Cases::new();
    for (test, verdict) in &report.tests {
        if let Some((backend, case)) = test.split_once("::")
            && BACKENDS.contains(&backend)
            && !case.contains("::")
        {
            cases.entry(case).or_default().insert(backend, *verdict);
        }
    }
    cases
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "ok",
        Verdict::Failed => "FAILED",
        Verdict::Skipped => "skip",
    }
}

/// Which tests, the table shows.
fn reasons(report: &Report) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (test, reason) in &report.reasons {
        let module = test.split("::").next().filter(|module| BACKENDS.contains(module));
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

    #[test]
    fn cases_are_rows_and_backends_columns() {
        let mut report = Report::default();
        let tests = [
            ("memory::exclusion", Verdict::Passed),
            ("redis::exclusion", Verdict::Failed),
            ("redis::fifo_order", Verdict::Skipped),
            ("redis::tests::unit", Verdict::Passed),
            ("other::case", Verdict::Passed),
            ("mutant_no_margin", Verdict::Passed),
            ("mutants::mutant_forgets", Verdict::Failed),
        ];
        report.tests.extend(tests.map(|(test, verdict)| (test.into(), verdict)));
        report
            .reasons
            .extend(["redis::fifo_order", "redis::fifo_bound"].map(|test| (test.into(), "no fifo".into())));
        assert_eq!(
            render(&report),
            "case        memory  redis\n\
             exclusion   ok      FAILED\n\
             fifo_order  -       skip\n\
             skipped    2 redis: no fifo\n\
             mutants: 1 caught, 1 not caught, 0 skipped\n"
        );
    }

    #[test]
    fn no_suite_is_noticed() {
        let mut report = Report::default();
        report.tests.insert("redis::tests::unit".into(), Verdict::Passed);
        assert!(is_empty(&report));
        report.tests.insert("redis::exclusion".into(), Verdict::Skipped);
        assert!(!is_empty(&report));
    }
}
