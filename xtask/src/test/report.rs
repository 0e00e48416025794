//! What the lines that `cargo test` prints say.

use std::collections::{BTreeMap, BTreeSet};

// With this word the conformance suite and the crates' tests mark two holders at a time, and a token that went back.
use testbed::steady::SAFETY;

/// If more tests of a step fail, it is not for want of time.
const MOST_UNSTEADY: usize = 15;

/// What became of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// The sum over any number of test binaries.
#[derive(Debug, Default, Clone)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// By the test's path. Of two tests of the same path in different binaries the worse counts.
    pub(crate) tests: BTreeMap<String, Verdict>,
    /// Why something was skipped, by the test's path.
    pub(crate) reasons: BTreeMap<String, String>,
    /// What tests that failed printed.
    pub(crate) printed: BTreeMap<String, String>,
    /// Tests that failed beside others and passed alone.
    pub(crate) unsteady: Vec<String>,
    /// Binaries that began and never said how it ended.
    unfinished: usize,
    /// Binaries in which a test failed, and those that cargo says have failed: one may also crash after its last test.
    failed_binaries: usize,
    failed_targets: usize,
    current: Option<Binary>,
}

/// The binary that runs just now.
#[derive(Debug, Default, Clone)]
struct Binary {
    verdicts: BTreeMap<String, Verdict>,
    skips: BTreeSet<String>,
    /// "test NAME ... " without a verdict: the test's own output follows.
    open: Option<String>,
    /// What the failed tests printed, which follows after all verdicts, and whose lines come just now.
    printed: BTreeMap<String, String>,
    printing: Option<String>,
}

impl Report {
    /// Reads one more line.
    pub(crate) fn line(&mut self, line: &str) {
        let line = line.trim_end();
        if line
            .strip_prefix("running ")
            .is_some_and(|rest| rest.ends_with(" tests") || rest == "1 test")
        {
            self.finish();
            self.current = Some(Binary::default());
            return;
        }
        if let Some(skip) = Skip::parse(line) {
            self.reasons.insert(skip.test.into(), skip.reason.into());
            // Without a binary it comes from a helper process; it counts all the same.
            self.current.get_or_insert_default().skips.insert(skip.test.into());
        }
        if line.starts_with("error: test failed, to rerun") || line.starts_with("error: doctest failed, to rerun") {
            self.failed_targets += 1;
        }
        if let Some(counts) = Counts::parse(line) {
            self.end_of_binary(counts);
        } else if let Some(binary) = &mut self.current {
            binary.line(line);
        }
    }

    /// The output has ended.
    pub(crate) fn finish(&mut self) {
        if self.current.take().is_some() {
            self.unfinished += 1;
            self.failed += 1;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.unfinished += other.unfinished;
        for (test, verdict) in &other.tests {
            self.note(test, *verdict);
        }
        self.reasons.extend(other.reasons.clone());
        self.printed.extend(other.printed.clone());
        self.unsteady.extend(other.unsteady.clone());
    }

    /// The tests that may be run once more, alone: all that failed, unless there is more to it than a busy machine.
    pub(crate) fn to_repeat(&self) -> Option<Vec<String>> {
        let failed: Vec<String> = self.failed_tests().map(String::from).collect();
        let is_explained = |test: &String| self.printed.get(test).is_some_and(|printed| !printed.contains(SAFETY));
        let all = self.unfinished == 0
            && self.failed_targets == self.failed_binaries
            && self.failed == failed.len()
            && (1..=MOST_UNSTEADY).contains(&failed.len())
            && failed.iter().all(is_explained);
        all.then_some(failed)
    }

    /// Takes in how the failed tests fared alone: those that passed, or were found not to apply, are unsteady. Whether none is left that
    /// failed.
    pub(crate) fn settle(&mut self, alone: &Self) -> bool {
        if alone.unfinished > 0 {
            return false;
        }
        let failed: Vec<String> = self.failed_tests().map(String::from).collect();
        for test in failed {
            let verdict = match alone.tests.get(&test) {
                Some(verdict @ (Verdict::Passed | Verdict::Skipped)) => *verdict,
                _ => continue,
            };
            self.failed -= 1;
            match verdict {
                Verdict::Skipped => self.skipped += 1,
                _ => self.passed += 1,
            }
            if let Some(reason) = alone.reasons.get(&test) {
                self.reasons.insert(test.clone(), reason.clone());
            }
            self.tests.insert(test.clone(), verdict);
            self.unsteady.push(test);
        }
        alone.failed == 0 && self.failed_tests().next().is_none()
    }

    /// What this test said when it failed: the line after that of its panic. Other threads may have panicked before, as a test may have
    /// planned. If its own did not, the first one says most.
    pub(crate) fn reason(&self, test: &str) -> &str {
        let printed = self.printed.get(test).map_or("", |printed| printed);
        let lines: Vec<&str> = printed.lines().collect();
        let (panic, own) = ("panicked at", format!("thread '{test}' "));
        let by_own = lines
            .iter()
            .rposition(|line| line.starts_with(&own) && line.contains(panic));
        let at = by_own.or_else(|| lines.iter().position(|line| line.contains(panic)));
        let reason = at.and_then(|at| lines.get(at + 1).copied());
        reason.unwrap_or("what it printed is above")
    }

    fn failed_tests(&self) -> impl Iterator<Item = &str> {
        let failed = self.tests.iter().filter(|(_, verdict)| **verdict == Verdict::Failed);
        failed.map(|(test, _)| test.as_str())
    }

    /// What is wrong beyond steps that failed.
    pub(crate) fn problems(&self) -> Vec<String> {
        let failed = self.failed_tests();
        let mut problems: Vec<String> = failed
            .map(|test| format!("test {test}: {}", self.reason(test)))
            .collect();
        if self.unfinished > 0 {
            problems.push(format!("{} test binaries ended without a result", self.unfinished));
        }
        if self.passed == 0 {
            problems.push("no test has passed".into());
        }
        problems
    }

    /// The last line of all. What was left out beforehand counts as skipped too.
    pub(crate) fn summary(&self, left_out: usize) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed,
            self.failed,
            self.skipped + left_out
        )
    }

    fn end_of_binary(&mut self, counts: Counts) {
        let Binary {
            mut verdicts,
            skips,
            printed,
            ..
        } = self.current.take().unwrap_or_default();
        self.printed.extend(printed);
        // The harness knows no skipping at run time: such a test "passes".
        let green: Vec<&String> = skips
            .iter()
            .filter(|test| verdicts.get(*test) == Some(&Verdict::Passed))
            .collect();
        self.passed += counts.passed.saturating_sub(green.len());
        self.failed += counts.failed;
        self.failed_binaries += usize::from(counts.failed > 0);
        let red = skips
            .iter()
            .filter(|test| verdicts.get(*test) == Some(&Verdict::Failed))
            .count();
        self.skipped += counts.ignored + skips.len() - red;
        for test in green {
            verdicts.insert(test.clone(), Verdict::Skipped);
        }
        for (test, verdict) in verdicts {
            self.note(&test, verdict);
        }
    }

    fn note(&mut self, test: &str, verdict: Verdict) {
        let known = self.tests.entry(test.into()).or_insert(verdict);
        let severity = |verdict| match verdict {
            Verdict::Passed => 0,
            Verdict::Skipped => 1,
            Verdict::Failed => 2,
        };
        if severity(verdict) > severity(*known) {
            *known = verdict;
        }
    }
}

impl Binary {
    fn line(&mut self, line: &str) {
        if let Some(test) = line
            .strip_prefix("---- ")
            .and_then(|line| line.strip_suffix(" stdout ----"))
        {
            self.printing = Some(test.into());
            self.printed.entry(test.into()).or_default();
        } else if let Some(test) = &self.printing {
            let printed = self.printed.entry(test.clone()).or_default();
            printed.push_str(line);
            printed.push('\n');
        } else if let Some(rest) = line.strip_prefix("test ")
            && let Some((test, said)) = rest.split_once(" ... ").or_else(|| rest.split_once(" ..."))
        {
            let test = test.trim_end_matches(" - should panic").to_string();
            match verdict(said) {
                Some(verdict) => _ = self.verdicts.insert(test, verdict),
                None => self.open = Some(test),
            }
        } else if let Some(verdict) = verdict(line)
            && let Some(test) = self.open.take()
        {
            self.verdicts.insert(test, verdict);
        }
    }
}

/// "ok", "FAILED", "ignored" or "ignored, reason"; other output may stand before it.
fn verdict(said: &str) -> Option<Verdict> {
    let is =
        |word: &str| said == word || said.starts_with(&format!("{word} (")) || said.starts_with(&format!("{word}, "));
    match said {
        _ if is("ok") => Some(Verdict::Passed),
        _ if is("FAILED") || is("failed") => Some(Verdict::Failed),
        _ if is("ignored") => Some(Verdict::Skipped),
        _ => None,
    }
}

/// "SKIP test::path: reason", which a test says past the harness's capture.
struct Skip<'a> {
    test: &'a str,
    reason: &'a str,
}

impl<'a> Skip<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        // With one test thread it stands behind the name of the test.
        let rest = match line.strip_prefix("SKIP ") {
            Some(rest) => rest,
            None if line.starts_with("test ") => line.split_once("... SKIP ")?.1,
            None => return None,
        };
        let (test, reason) = rest.split_once(": ")?;
        (!test.contains(' ')).then_some(Self { test, reason })
    }
}

/// "test result: ok. 3 passed; 0 failed; 1 ignored; …"
struct Counts {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Counts {
    fn parse(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |what: &str| {
            counts
                .split("; ")
                .find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
        };
        Some(Self {
            passed: count("passed")?,
            failed: count("failed")?,
            ignored: count("ignored")?,
        })
    }
}

#[cfg(test)]
mod tests;
