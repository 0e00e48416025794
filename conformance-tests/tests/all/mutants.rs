//! The subjects from which the mutants are made pass all cases, and each mutant has a case that catches it.

use std::sync::Arc;

use conformance_tests::mutants::Mutant;
use conformance_tests::reference::ReferenceHarness;
use conformance_tests::{Outcome, cases, execute};

#[cfg(unix)]
use crate::harness::file::{Bug, FileHarness};

#[test]
fn the_reference_passes_everything() {
    for case in cases::all() {
        let outcome = execute(case, Arc::new(ReferenceHarness::default()), case.name);
        assert!(
            matches!(outcome, Outcome::Passed | Outcome::Skipped(_)),
            "{}: {outcome}",
            case.name
        );
    }
}

#[test]
fn every_mutant_has_a_case_of_its_own() {
    for mutant in Mutant::ALL {
        let cases = cases::all()
            .iter()
            .filter(|case| case.name == mutant.caught_by())
            .count();
        assert_eq!(cases, 1, "{} is to be caught by {}", mutant.name(), mutant.caught_by());
    }
}

/// The case with this name, on files. Its child processes are the test of the same name in the module `file`.
#[cfg(unix)]
fn on_files(bug: Bug, name: &str) -> Outcome {
    let case = cases::all().iter().find(|case| case.name == name).expect("a case");
    execute(
        case,
        Arc::new(FileHarness::with_bug(Some(bug))),
        &format!("file::{name}"),
    )
}

/// Catches the bug in one of several runs of the case.
#[cfg(unix)]
fn assert_caught_on_files(bug: Bug, name: &str) {
    const RUNS: u32 = 10;
    let mut runs = 0..RUNS;
    let caught = runs.find(|_| {
        let outcome = on_files(bug, name);
        println!("{outcome}");
        matches!(&outcome, Outcome::Failed(failure) if failure.asserted)
    });
    println!("caught in run {caught:?}, counted from 0");
    assert!(caught.is_some(), "not caught in {RUNS} runs of the case");
}

/// Two believe for a fifteenth of the TTL. A process that stands still meanwhile does not see it.
#[cfg(unix)]
#[test]
fn a_grant_that_counts_from_its_effect_is_caught_on_files() {
    assert_caught_on_files(Bug::CountsFromTheEffect, "belief_counts_from_before_the_effect");
}

/// Chance decides whether a process is killed between two system calls. The mutant is usually caught in the first run.
#[cfg(unix)]
#[test]
fn a_file_that_is_emptied_before_it_is_written_is_caught() {
    assert_caught_on_files(Bug::EmptiesBeforeItWrites, "processes_killed_in_a_request_cost_no_name");
}
