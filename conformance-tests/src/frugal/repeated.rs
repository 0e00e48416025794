//! Which failures make a case run again.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};

use super::{FrugalHarness, Kind, LONGEST_TTL, case};
use crate::case::{Body, Case};
use crate::cases::support::in_one_of;
use crate::harness::Timing;
use crate::reference::ReferenceHarness;
use crate::run::execute;
use crate::verdict::{Outcome, Stop};

/// A machine that stood still explains a failure once. All others fail the case at once, also on a session.
#[test]
fn only_what_a_pause_explains_is_repeated() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    macro_rules! repeated {
        ($stop:expr) => {
            LazyLock::new(|| {
                case(Body::Subject(|cx| {
                    let once = |_| {
                        RUNS.fetch_add(1, SeqCst);
                        ready(Err($stop))
                    };
                    Box::pin(in_one_of(3, cx, once))
                }))
            })
        };
    }
    static EXPLAINED: LazyLock<Case> = repeated!(Stop::explained("its hold was over"));
    static LIVE: LazyLock<Case> = repeated!(Stop::assertion("its hold was live"));
    static BY_TTL: LazyLock<Case> = repeated!(Stop::by_ttl("a second one").explained_if(true));
    static SECOND: LazyLock<Case> = repeated!(Stop::second(true, "a second one".to_owned()));
    static NEXT: LazyLock<Case> = repeated!(Stop::second(false, "the next one".to_owned()));
    let runs = |case: &'static Case, timing| {
        let harness = FrugalHarness::new(ReferenceHarness::default(), Kind::Session, LONGEST_TTL);
        RUNS.store(0, SeqCst);
        let outcome = execute(case, Arc::new(harness.with_timing(timing)), case.name);
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome}");
        RUNS.load(SeqCst)
    };
    let cases = [&EXPLAINED, &NEXT, &LIVE, &BY_TTL, &SECOND];
    assert_eq!(cases.map(|case| runs(case, Timing::default())), [3, 3, 1, 1, 1]);
    assert_eq!(cases.map(|case| runs(case, Timing::paused())), [1; 5]);
}
