//! Proves the suite: every mutant must be caught, or the suite shows nothing.
//!
//! Each [`Mutant`] differs from the [reference](crate::reference) in one place, most of them with a bug that a real
//! library has or had, and each has a case that catches it. [`prove`] runs one through all cases.

use std::sync::Arc;

use crate::cases;
use crate::reference::ReferenceHarness;
use crate::run::execute;
use crate::verdict::Outcome;

pub use crate::mutant::Mutant;

/// The result of a mutant.
#[derive(Debug)]
#[non_exhaustive]
pub struct Proof {
    /// The outcome of the case that is named for it.
    pub named: Outcome,
    /// The other cases that did not pass, and how they ended.
    pub failed: Vec<(&'static str, Outcome)>,
    /// The number of the other cases that passed or do not apply.
    pub passed: usize,
}

/// Runs a mutant through all cases.
pub fn prove(mutant: Mutant) -> Proof {
    let mut proof = Proof {
        named: Outcome::Hung,
        failed: Vec::new(),
        passed: 0,
    };
    for case in cases::all() {
        let outcome = execute(case, Arc::new(ReferenceHarness::with_mutant(mutant)), case.name);
        if case.name == mutant.caught_by() {
            proof.named = outcome;
        } else if matches!(outcome, Outcome::Passed | Outcome::Skipped(_)) {
            proof.passed += 1;
        } else {
            proof.failed.push((case.name, outcome));
        }
    }
    proof
}

impl Proof {
    /// Whether the named case caught the mutant, by an assertion.
    ///
    /// # Errors
    /// Says what is missing: the case named for it must fail by its own assertion, and at least half of the others
    /// must pass.
    pub fn check(&self) -> Result<(), String> {
        match &self.named {
            Outcome::Failed(failure) if failure.asserted => {}
            other => return Err(format!("the case named for it did not fail by an assertion: {other}")),
        }
        if self.failed.len() > self.passed {
            let failed: Vec<_> = self
                .failed
                .iter()
                .map(|(case, outcome)| format!("\n{case}: {outcome}"))
                .collect();
            return Err(format!(
                "only {} other cases passed; these did not:{}",
                self.passed,
                failed.concat()
            ));
        }
        Ok(())
    }
}

/// Runs the mutant through all cases.
///
/// # Panics
/// If its case does not catch it, or if it fails too many others.
pub fn assert_caught(mutant: Mutant) {
    if let Err(missing) = prove(mutant).check() {
        panic!("{mutant:?} (to be caught by {}): {missing}", mutant.caught_by());
    }
}
