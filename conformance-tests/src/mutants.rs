//! Proves the suite: every mutant must be caught, or the suite shows nothing.
//!
//! Each [`Mutant`] differs from the [reference](crate::reference) in one place, most of them with a bug that a real
//! library has or had, and each has a case that catches it. [`prove`] runs it, and others that must pass.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use crate::case::Case;
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
    /// The other cases that were run and did not pass, and how they ended.
    pub failed: Vec<(&'static str, Outcome)>,
    /// The number of the other cases that were run and passed or do not apply.
    pub passed: usize,
}

/// Runs a mutant through the case that is named for it, and through others until half of them have passed or more than half have
/// not.
pub fn prove(mutant: Mutant) -> Proof {
    let run = |case: &'static Case| execute(case, Arc::new(ReferenceHarness::with_mutant(mutant)), case.name);
    let (named, others): (Vec<&Case>, Vec<&Case>) =
        QUICKEST_FIRST.iter().partition(|case| case.name == mutant.caught_by());
    let mut proof = Proof {
        named: named.first().map_or(Outcome::Hung, |case| run(case)),
        failed: Vec::new(),
        passed: 0,
    };
    let half = others.len().div_ceil(2);
    for case in others {
        if proof.passed >= half || proof.failed.len() > half {
            break;
        }
        match run(case) {
            Outcome::Passed | Outcome::Skipped(_) => proof.passed += 1,
            outcome => proof.failed.push((case.name, outcome)),
        }
    }
    proof
}

/// All cases, in the order of the time that the reference takes. Half of them need a tenth of the time of all.
static QUICKEST_FIRST: LazyLock<Vec<&'static Case>> = LazyLock::new(|| {
    let timed = cases::all().iter().map(|case| {
        let start = Instant::now();
        execute(case, Arc::new(ReferenceHarness::default()), case.name);
        (start.elapsed(), case)
    });
    let mut timed: Vec<_> = timed.collect();
    timed.sort_by_key(|(time, _)| *time);
    timed.into_iter().map(|(_, case)| case).collect()
});

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

/// Runs the mutant through its case and others, as [`prove`] does.
///
/// # Panics
/// If its case does not catch it, or if it fails too many others.
pub fn assert_caught(mutant: Mutant) {
    if let Err(missing) = prove(mutant).check() {
        panic!("{mutant:?} (to be caught by {}): {missing}", mutant.caught_by());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Failure;

    /// What the case that is named for it sees.
    fn failure(mutant: Mutant) -> Failure {
        let case = cases::named(mutant.caught_by());
        match execute(case, Arc::new(ReferenceHarness::with_mutant(mutant)), case.name) {
            Outcome::Failed(failure) => failure,
            other => panic!("{mutant:?}: {other}"),
        }
    }

    #[test]
    fn two_holders_and_tokens_that_go_back_are_marked() {
        for mutant in [
            Mutant::GrantCountsFromTheReply,
            Mutant::RenewalCountsFromTheReply,
            Mutant::GrantCountsFromItsEffect,
            Mutant::RenewalCountsFromItsEffect,
            Mutant::StateWrittenBack,
            Mutant::HolderIdPerClient,
            Mutant::AskersTtlCutsTheHolders,
            Mutant::ReleaseWithoutCompare,
            Mutant::AbandonWithoutCompare,
            Mutant::HoldEndsWithItsConnection,
            Mutant::OldestNameIsEvicted,
            Mutant::CounterDeletedWithTheHold,
            Mutant::PassKeepsTheToken,
            Mutant::AnyKeyWillDo,
            Mutant::WriterBesideReaders,
            Mutant::ReaderBesideAWriter,
            Mutant::DowngradeLetsAWriterIn,
            Mutant::TwoUpgraders,
            Mutant::UpgradeBesideReaders,
            Mutant::TermsOverlap,
            Mutant::PermitsCountedByTheClient,
            Mutant::PermitsCountHolders,
            Mutant::PermitsBesideOtherModes,
            Mutant::RevokeFreesAtOnce,
            Mutant::HoldersLimitCounts,
            Mutant::ExpiredPermitReturnsTwice,
        ] {
            let failure = failure(mutant);
            assert!(failure.safety, "{mutant:?}: {failure}");
        }
    }

    /// A busy machine explains the end of a hold that nobody believes in, and a turn that is out of order has no two holders.
    #[test]
    fn other_failures_are_not_marked() {
        for mutant in [
            Mutant::NoRenewal,
            Mutant::RenewalGivenUpEarly,
            Mutant::NewcomersComeFirst,
            Mutant::SmallRequestsPassLargeOnes,
        ] {
            let failure = failure(mutant);
            assert!(!failure.safety, "{mutant:?}: {failure}");
        }
    }
}
