//! What the mutants are made from passes everything, and each has a case that catches it.

use std::sync::Arc;

use conformance_tests::mutants::Mutant;
use conformance_tests::reference::ReferenceHarness;
use conformance_tests::{Outcome, cases, execute};

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
