//! `docs/peers.md`, out of the results and the texts in `failures/`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use conformance_tests::cases;

use crate::claims::{CASES, Claim};
use crate::libraries::{ALL, Library};
use crate::results::{OfCase, Results, package};

/// What people have written about a failure: the cases that show it, and the text.
struct Told {
    library: String,
    name: String,
    cases: Vec<String>,
    title: String,
    text: String,
}

pub(crate) fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().to_owned()
}

pub(crate) fn write(results: &Results) -> Result<(), String> {
    let page = render(results)?;
    std::fs::write(path(), page).map_err(|error| format!("{}: {error}", path().display()))
}

fn path() -> PathBuf {
    package().join("../../docs/peers.md")
}

/// The page. A failure that nobody has explained is shown with what the case said.
fn render(results: &Results) -> Result<String, String> {
    let told = told()?;
    let mut page = include_str!("../intro.md").to_owned();
    // Writing to a string does not fail.
    let _ = write!(page, "\n## What was run\n\n{}", versions(results));
    let _ = write!(page, "\n## Results\n\n{}", table(results, &told));
    let _ = write!(page, "\n## What each library claims\n\n{}", claims(results));
    let _ = write!(page, "\n## Failures\n{}", failures(results, &told));
    Ok(page)
}

fn tested(results: &Results) -> impl Iterator<Item = &'static Library> + Clone + '_ {
    ALL.iter().filter(|library| results.0.contains_key(library.name))
}

fn versions(results: &Results) -> String {
    let mut text = "| library | version | lock | server | date | options |\n|---|---|---|---|---|---|\n".to_owned();
    for library in tested(results) {
        let result = &results.0[library.name];
        let _ = writeln!(
            text,
            "| {} ({:?}) | {} | `{}` | {} | {} | {} |",
            library.name, library.language, result.version, library.lock, result.server, result.date, library.settings
        );
    }
    text
}

fn table(results: &Results, told: &[Told]) -> String {
    let names: Vec<&str> = tested(results).map(|library| library.name).collect();
    let mut text = format!(
        "| case | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for (case, needs) in CASES {
        let cells: Vec<String> = tested(results)
            .map(|library| match results.0[library.name].cases.get(*case) {
                _ if !library.claims_all(needs) => "not offered".to_owned(),
                Some(result) if result.has_passed() => match is_told(told, library.name, case) {
                    true => format!("[{}](#{})", passed(result), anchor(told, library.name, case)),
                    false => passed(result),
                },
                Some(_) => format!("[failed](#{})", anchor(told, library.name, case)),
                None => "not run".to_owned(),
            })
            .collect();
        let _ = writeln!(text, "| `{case}` | {} |", cells.join(" | "));
    }
    let counts: Vec<String> = tested(results)
        .map(|library| {
            let cases = results.0[library.name].cases.values();
            let passed = cases.clone().filter(|case| case.has_passed()).count();
            format!("**{passed} of {}**", cases.count())
        })
        .collect();
    let _ = writeln!(text, "| passed | {} |", counts.join(" | "));
    text
}

fn passed(result: &OfCase) -> String {
    match result.runs {
        1 => "passed".to_owned(),
        runs => format!("passed in {} of {runs}", result.passed),
    }
}

fn claims(results: &Results) -> String {
    let mut text = "A case is run on a library that claims all that the case needs.\n".to_owned();
    for library in tested(results) {
        let _ = write!(text, "\n**{}**\n\n", library.name);
        for (claim, place) in library.claims {
            let _ = writeln!(text, "- {}: {place}", claim.says());
        }
        let missing = Claim::ALL.iter().filter(|claim| !library.claims_all(&[**claim]));
        let missing: Vec<&str> = missing.map(|claim| claim.says()).collect();
        if !missing.is_empty() {
            let _ = writeln!(text, "- not claimed: {}", missing.join("; "));
        }
    }
    text
}

fn failures(results: &Results, told: &[Told]) -> String {
    let mut text = String::new();
    for library in tested(results) {
        let mut failed: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (case, result) in &results.0[library.name].cases {
            if !result.has_passed() || is_told(told, library.name, case) {
                failed.entry(anchor(told, library.name, case)).or_default().push(case);
            }
        }
        for (anchor, of_anchor) in &failed {
            let entry = told.iter().find(|entry| entry.anchor() == *anchor);
            let title = entry.map_or_else(|| of_anchor.join(", "), |entry| entry.title.clone());
            let _ = write!(text, "\n<a id=\"{anchor}\"></a>\n\n### {}: {title}\n\n", library.name);
            for case in of_anchor {
                let failure = results.0[library.name].cases[*case]
                    .failure
                    .as_deref()
                    .unwrap_or_default();
                let failure = failure.split_once("rs:").map_or(failure, |(_, rest)| rest);
                let failure = failure.split_once(": ").map_or(failure, |(_, rest)| rest);
                let _ = writeln!(text, "- `{case}`, whose rule is \"{}\", saw: {failure}", rule(case));
            }
            if let Some(entry) = entry {
                let _ = write!(text, "\n{}\n", entry.text.trim());
            }
        }
    }
    text
}

fn rule(name: &str) -> &'static str {
    cases::all()
        .iter()
        .find(|case| case.name == name)
        .map_or("", |case| case.rule())
}

impl Told {
    fn anchor(&self) -> String {
        format!("{}-{}", self.library, self.name)
    }
}

/// Whether a failure is explained.
fn is_told(told: &[Told], library: &str, case: &str) -> bool {
    told.iter()
        .any(|entry| entry.library == library && entry.cases.iter().any(|of_entry| of_entry == case))
}

/// Where a failure is explained.
fn anchor(told: &[Told], library: &str, case: &str) -> String {
    let entry = told
        .iter()
        .find(|entry| entry.library == library && entry.cases.iter().any(|of_entry| of_entry == case));
    entry.map_or_else(|| format!("{library}-{case}"), Told::anchor)
}

/// `failures/LIBRARY/NAME.md`: a line with the cases, a title, and the text.
fn told() -> Result<Vec<Told>, String> {
    let mut told = Vec::new();
    for library in ALL {
        let folder = package().join("failures").join(library.name);
        let Ok(files) = std::fs::read_dir(&folder) else {
            continue;
        };
        for file in files {
            let path = file.map_err(|error| error.to_string())?.path();
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let mut parts = text.splitn(3, '\n');
            let (cases, title, text) = (parts.next(), parts.next(), parts.next());
            let cases = cases.and_then(|line| line.strip_prefix("cases: "));
            let title = title.and_then(|line| line.strip_prefix("title: "));
            let (Some(cases), Some(title), Some(text)) = (cases, title, text) else {
                return Err(format!("{}: it begins with `cases:` and `title:`", path.display()));
            };
            told.push(Told {
                library: library.name.to_owned(),
                name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                cases: cases.split(", ").map(str::to_owned).collect(),
                title: title.to_owned(),
                text: text.to_owned(),
            });
        }
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries;

    #[test]
    fn the_page_is_that_of_the_results() {
        let page = std::fs::read_to_string(path()).unwrap();
        let rendered = render(&Results::read(libraries::names()).unwrap()).unwrap();
        assert!(
            page == rendered,
            "docs/peers.md is not that of the results: cargo xtask peers --page"
        );
    }

    #[test]
    fn the_results_are_of_the_cases_that_each_library_claims() {
        let results = Results::read(libraries::names()).unwrap();
        for library in ALL {
            let result = results
                .0
                .get(library.name)
                .unwrap_or_else(|| panic!("{} was not run", library.name));
            let claimed = CASES.iter().filter(|(_, needs)| library.claims_all(needs));
            let mut claimed: Vec<&str> = claimed.map(|(case, _)| *case).collect();
            claimed.sort_unstable();
            let run: Vec<&str> = result.cases.keys().map(String::as_str).collect();
            assert_eq!(run, claimed, "{}", library.name);
        }
    }

    #[test]
    fn each_failure_is_explained_and_nothing_else() {
        let (results, told) = (Results::read(libraries::names()).unwrap(), told().unwrap());
        for (library, result) in &results.0 {
            for (case, result) in &result.cases {
                let entries = told
                    .iter()
                    .filter(|entry| entry.library == *library && entry.cases.contains(case));
                // One that passed in some of its runs may be explained, too.
                let least = usize::from(!result.has_passed());
                let most = usize::from(result.passed < result.runs);
                assert!((least..=most).contains(&entries.count()), "{library}: {case}");
            }
        }
    }
}
