//! What the pages say about this repository is true of it.

use std::fs;
use std::path::{Path, PathBuf};

const REPOSITORY: &str = "https://github.com/polylock/polylock/";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Markdown pages for readers.
fn pages() -> Vec<PathBuf> {
    let folders = [
        "",
        "docs",
        "cli",
        "lock-core",
        "lock-redis",
        "lock-mysql",
        "lock-postgres",
        "lock-zookeeper",
        "lock-quorum",
        "conformance-tests",
    ];
    let entries = folders.map(|folder| fs::read_dir(root().join(folder)).expect("a folder"));
    let paths = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("an entry").path());
    let pages: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .collect();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// The targets of a page's links.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let inline = page
        .split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0));
    let references = page.lines().filter_map(|line| Some(line.split_once("]: ")?.1));
    inline.chain(references)
}

/// README.md and docs/reference.md are shown on docs.rs too, where a relative link leads nowhere.
#[test]
fn links_into_the_repository_lead_to_files() {
    for path in pages() {
        let page = fs::read_to_string(&path).expect("UTF-8");
        for link in links(&page) {
            let on_main = ["blob/main/", "tree/main/"].map(|folder| format!("{REPOSITORY}{folder}"));
            let inside = on_main.iter().find_map(|prefix| link.strip_prefix(prefix));
            let file = match inside {
                Some(inside) => root().join(inside),
                None if link.starts_with("https://") || link.starts_with('#') => continue,
                None => path.parent().expect("a folder").join(link),
            };
            let file = file.to_str().expect("UTF-8").split('#').next().expect("a part");
            assert!(Path::new(file).exists(), "{}: {link}", path.display());
            let on_docs_rs = path.ends_with("README.md") || path.ends_with("reference.md");
            assert!(
                !on_docs_rs || link.starts_with("https://"),
                "{}: {link}",
                path.display()
            );
        }
    }
}

/// README promises that one command passes all tests: it is the one that CI runs.
#[test]
fn ci_runs_the_second_command_of_the_readme() {
    let page = include_str!("../../README.md");
    let command = page
        .lines()
        .find(|line| line.starts_with("cargo xtask test"))
        .expect("README says how to run all tests");
    let last = include_str!("../../.ci/run").lines().last().expect("it has lines");
    assert_eq!(last, format!("exec {command}"));
}

/// An answer is worth as much as the test that shows it.
#[test]
fn the_tests_that_the_page_of_the_quorum_names_exist() {
    let page = include_str!("../../docs/quorum.md");
    let mut named = 0;
    for cited in page.split("[`").skip(1) {
        let Some((test, rest)) = cited.split_once("`](") else {
            continue;
        };
        let (file, _) = rest.split_once(')').expect("a link has an end");
        let source = fs::read_to_string(root().join("docs").join(file)).expect("UTF-8");
        assert!(source.contains(&format!("fn {test}(")), "{file} has no test {test}");
        named += 1;
    }
    assert!(named > 20, "{named}");
}

/// Whoever changes a stored format has to find the test that holds it.
#[test]
fn the_tests_that_the_page_of_formats_names_exist() {
    let page = include_str!("../../docs/compatibility.md");
    let mut named = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cell = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .expect("a row has a cell");
        let mut tests = Vec::new();
        for word in cell.split('`').skip(1).step_by(2) {
            if !word.ends_with(".rs") {
                tests.push(word);
                continue;
            }
            for test in tests.drain(..) {
                let source = fs::read_to_string(root().join(word)).expect("UTF-8");
                assert!(source.contains(&format!("fn {test}(")), "{word} has no test {test}");
                named += 1;
            }
        }
    }
    assert!(named > 10, "{named}");
}

/// So that nobody looks for a case that has another name.
#[test]
fn the_cases_that_the_page_for_authors_names_exist() {
    let page = include_str!("../../docs/writing-a-backend.md");
    let folder = root().join("conformance-tests/src/cases");
    let files = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    let sources: String = files.map(|path| fs::read_to_string(path).expect("UTF-8")).collect();
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    let cases: Vec<&str> = rows
        .filter_map(|row| Some(row.rsplit_once(" | `")?.1.trim_end_matches("` |")))
        .flat_map(|cases| cases.split("`, `"))
        .collect();
    assert!(cases.len() > 12, "{cases:?}");
    for case in cases {
        assert!(sources.contains(&format!("fn {case}(")), "there is no case {case}");
    }
}
