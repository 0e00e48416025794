//! The limits of such a backend, and what they change for the cases.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Capabilities, Mode};
use lock_core::{Error, ErrorKind, Result};

use super::{FrugalHarness, Kind, LONGEST_TTL, passes_everything, unsupported, with_longest_ttl};
use crate::case::Case;
use crate::cases;
use crate::mutants::Mutant;
use crate::reference::ReferenceHarness;
use crate::run::execute;
use crate::verdict::{Outcome, Skip};

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) kind: Kind,
    shortest_ttl: Duration,
    longest_ttl: Duration,
    permits: u32,
    /// A release is answered, and the hold lasts until its ttl is over.
    pub(super) forgets_releases: bool,
}

impl Limits {
    pub(super) fn new(kind: Kind, longest_ttl: Duration) -> Self {
        Self {
            kind,
            shortest_ttl: Capabilities::default().shortest_ttl,
            longest_ttl,
            permits: u32::MAX,
            forgets_releases: false,
        }
    }

    pub(super) fn declared(&self, mut capabilities: Capabilities) -> Capabilities {
        (capabilities.shortest_ttl, capabilities.longest_ttl) = (self.shortest_ttl, self.longest_ttl);
        capabilities.permits = capabilities.permits.min(self.permits);
        capabilities
    }

    pub(super) fn check_request(&self, request: &AcquireRequest) -> Result<()> {
        match request.mode() {
            Mode::Permits(permits) if permits.of() > self.permits => Err(unsupported()),
            _ if request.ttl() < self.shortest_ttl => {
                Err(Error::new(ErrorKind::Misconfigured, "shorter than the shortest ttl"))
            }
            _ => self.check(request.ttl()),
        }
    }

    pub(super) fn check(&self, time: Duration) -> Result<()> {
        match time > self.longest_ttl {
            true => Err(Error::new(ErrorKind::Misconfigured, "longer than the longest ttl")),
            false => Ok(()),
        }
    }
}

/// The shortest ttl is that of the cases, and the longest one is three times that.
#[test]
fn a_shortest_ttl_next_to_the_longest_passes() {
    for kind in [Kind::Plain, Kind::Session] {
        passes_everything(|| {
            let mut harness = FrugalHarness::new(ReferenceHarness::default(), kind, LONGEST_TTL);
            harness.limits.shortest_ttl = harness.timing.ttl;
            harness
        });
    }
}

/// Its longest ttl is over before the patience of the suite is.
#[test]
fn a_release_that_is_forgotten_is_found_whatever_the_patience() {
    for name in [
        "a_dropped_guard_releases",
        "a_dropped_guard_wakes_a_waiter",
        "a_watch_keeps_nothing_alive",
        "waiters_are_served_in_order",
    ] {
        let longest = Duration::from_secs(15);
        let mut harness = with_longest_ttl(longest, ReferenceHarness::default(), Kind::LongTtls);
        harness.limits.forgets_releases = true;
        let outcome = execute(cases::named(name), Arc::new(harness), name);
        assert!(
            matches!(&outcome, Outcome::Failed(failure) if failure.asserted),
            "{name}: {outcome}"
        );
    }
}

/// More than any case asks for.
const MANY: u32 = 10;

fn run(case: &'static Case, whole: ReferenceHarness, most: u32) -> Outcome {
    let mut harness = FrugalHarness::new(whole, Kind::LongTtls, LONGEST_TTL);
    harness.limits.permits = most;
    execute(case, Arc::new(harness), case.name)
}

fn of_permits() -> impl Iterator<Item = &'static Case> {
    let topics = ["permits", "permits_waiting", "permits_expiry", "undeclared"];
    cases::all().iter().filter(move |case| topics.contains(&case.topic))
}

/// No case asks for a higher limit than the backend declares.
#[test]
fn a_backend_with_few_permits_passes() {
    for most in 2..MANY {
        let mut skipped = Vec::new();
        for case in of_permits() {
            match run(case, ReferenceHarness::default(), most) {
                Outcome::Passed => {}
                Outcome::Skipped(Skip::FewerPermits(3)) => skipped.push(case.name),
                outcome => panic!("{}, {most} permits: {outcome}", case.name),
            }
        }
        let expected: &[_] = match most {
            2 => &["several_permits_or_none", "a_smaller_limit_is_not_starved"],
            _ => &[],
        };
        assert_eq!(skipped, expected, "{most} permits");
    }
}

#[test]
fn a_backend_without_permits_skips_their_cases() {
    for most in [0, 1] {
        for case in of_permits().filter(|case| case.name != "undeclared_modes_are_refused") {
            let outcome = run(case, ReferenceHarness::default(), most);
            let is_skipped = matches!(&outcome, Outcome::Skipped(Skip::Undeclared(_)));
            assert!(is_skipped, "{}, {most} permits: {outcome}", case.name);
        }
    }
}

/// With the lower limits the cases find what they find with the higher ones.
#[test]
fn few_permits_hide_no_mutant() {
    for case in of_permits() {
        for mutant in Mutant::ALL.iter().filter(|mutant| mutant.caught_by() == case.name) {
            for most in 2..MANY {
                let outcome = run(case, ReferenceHarness::with_mutant(*mutant), most);
                let is_fine = match &outcome {
                    Outcome::Failed(failure) => failure.asserted,
                    Outcome::Skipped(Skip::FewerPermits(_)) => true,
                    _ => false,
                };
                assert!(is_fine, "{mutant:?}, {most} permits: {outcome}");
            }
        }
    }
}
