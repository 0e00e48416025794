//! The guarantees of the test bed's servers, as the pages show them, and the test that shows each "yes". `cargo xtask
//! guarantees` writes the pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use conformance_tests::cases;
use conformance_tests::mutants::Mutant;

use self::servers::{Answer, SERVERS};

mod pages;
mod servers;

/// Set by `cargo xtask guarantees`: writes the pages instead of comparing them.
const WRITE: &str = "POLYLOCK_WRITE_GUARANTEES";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Servers that cannot be installed here are left out.
#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_show_what_the_servers_keep_and_each_yes_has_a_proof() {
    let mut answers = Vec::new();
    for server in SERVERS {
        let answer = server
            .ask()
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", server.title));
        ensure_proved(&answer);
        answers.push(answer);
    }
    for (page, written) in [
        (root().join("docs/guarantees.md"), pages::tables(&answers)),
        (root().join("README.md"), pages::choice(&answers)),
    ] {
        compare_or_write(&page, &written);
    }
}

/// Each "yes" is shown by a case of this id, which runs on this server, or by a cell of torture; and each cell that is named is for one.
fn ensure_proved(answer: &Answer) {
    let server = answer.server;
    let suites: String = include_str!("main.rs").split_whitespace().collect();
    let runs_all = suites.contains(&format!("conformance!({},", server.suite));
    assert!(
        runs_all,
        "{}: there is no whole run of the suite called {}",
        server.title, server.suite
    );
    for (guarantee, verdict) in &answer.verdicts {
        let id = guarantee.id();
        let has_case = cases::all().iter().any(|case| case.guarantee == Some(id));
        let has_cell = server.cells.iter().any(|(proved, _)| *proved == id);
        assert!(
            !verdict.is_yes() || has_case || has_cell,
            "{} says yes to {id}, and neither a case nor a cell shows it",
            server.title
        );
        assert!(
            verdict.is_yes() || !has_cell,
            "{}: a cell shows {id}, yet: {verdict}",
            server.title
        );
    }
}

fn compare_or_write(page: &PathBuf, written: &str) {
    let before = fs::read_to_string(page).expect("a page");
    let after = pages::replaced(&before, written);
    if std::env::var_os(WRITE).is_some() {
        fs::write(page, after).expect("it can be written");
    } else {
        assert!(after == before, "{} is old: run cargo xtask guarantees", page.display());
    }
}

/// A case that no bug fails would prove nothing.
#[test]
fn a_backend_that_claims_what_it_does_not_keep_is_caught_by_the_case_of_that_id() {
    let of_cases = cases::all().iter().filter_map(|case| case.guarantee);
    let caught: BTreeSet<&str> = Mutant::ALL
        .iter()
        .filter_map(|mutant| {
            let case = cases::all().iter().find(|case| case.name == mutant.caught_by());
            case.and_then(|case| case.guarantee)
        })
        .collect();
    assert_eq!(of_cases.collect::<BTreeSet<_>>(), caught);
}
