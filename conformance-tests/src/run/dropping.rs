//! The drop of a harness that hangs or panics.

use std::sync::mpsc;
use std::time::Duration;

use super::{DROP_LIMIT, after_drop, guarded};
use crate::harness::Timing;
use crate::verdict::{Outcome, Skip, Stop};

/// Calls the function when it is dropped.
struct AtDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_drop_of_the_harness_that_fails_hides_no_failure() {
    let panics = |outcome| after_drop(AtDrop(|| panic!("as planned")), DROP_LIMIT, outcome);
    let blocks = |outcome| {
        let (_unblock, blocked) = mpsc::channel::<()>();
        let harness = AtDrop(move || {
            // Until the sender is dropped.
            let _ = blocked.recv();
        });
        after_drop(harness, Duration::from_millis(10), outcome)
    };
    for green in [Outcome::Passed, Outcome::Skipped(Skip::OneProcess)] {
        let panicked = panics(green.clone());
        assert!(
            matches!(&panicked, Outcome::Panicked(text) if text.starts_with("as planned, while")),
            "{panicked}"
        );
        let hung = blocks(green);
        assert!(matches!(hung, Outcome::Hung), "{hung}");
    }
    let two_holders = guarded(Timing::paused(), || async { Err(Stop::safety("two holders")) });
    for outcome in [panics(two_holders.clone()), blocks(two_holders)] {
        assert!(
            matches!(&outcome, Outcome::Failed(failure) if failure.safety),
            "{outcome}"
        );
    }
    for failed in [Outcome::Hung, Outcome::Panicked("in the case".to_owned())] {
        let outcome = panics(failed.clone());
        assert_eq!(outcome.to_string(), failed.to_string());
    }
}
