//! Running a case: on a runtime of its own, in a thread of its own, against the clock.

use std::any::Any;
use std::future::Future;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::Builder;

use crate::case::{Body, Case, RawBody, SubjectBody};
use crate::cases;
use crate::child;
use crate::context::{Cx, RawCx};
use crate::harness::{BackendHarness, Harness, NoServer, Timing};
use crate::raw::permits;
use crate::sending::SendingDelay;
use crate::summary;
use crate::verdict::{Capability, Failure, Outcome, Skip, Stop, Verdict};

/// The topics of passes, of minimum holds and of following, which exclusive holds alone have.
const OF_EXCLUSIVE_HOLDS: [&str; 3] = ["passes", "keeping", "following"];

/// A case may wait for so many TTLs and as many ticks, one after the other. The longest one is `a_nested_acquire_while_suspect_is_no_deadlock`
/// on a session: three times for twice 6 TTLs. Most ticks, nine, has `a_loss_says_why`.
const ENDS_OF_HOLDS: u32 = 36;

/// A harness may stop its server when it is dropped, and no longer than this.
const DROP_LIMIT: Duration = Duration::from_secs(30);

/// The limits on a case, which end one that hangs.
#[derive(Clone, Copy, Debug)]
struct Limits {
    is_paused: bool,
    /// By its runtime's clock, which may be paused.
    runtime: Duration,
    /// By wall clock.
    wall: Duration,
}

impl Limits {
    /// Longer than any case may wait: several waits of three times the patience each, and the ends of holds.
    fn of(timing: Timing) -> Self {
        let limit = timing.for_all_requests() + ENDS_OF_HOLDS * (timing.ttl + timing.tick);
        Self {
            is_paused: timing.paused,
            runtime: match timing.paused {
                true => limit.max(Duration::from_secs(60 * 60)),
                false => limit,
            },
            wall: limit + Duration::from_secs(30),
        }
    }
}

/// The body of a test that the [`conformance!`](crate::conformance) macro writes: runs the case of this name.
///
/// # Panics
/// When the case fails: that is how a test fails.
#[doc(hidden)]
pub fn test<H: BackendHarness>(module: &str, case: &'static str) {
    child::run_as_child::<H>();
    let (test, case) = (test_path(module, case), cases::named(case));
    if let Some(harness) = start::<H>(&test, case) {
        let outcome = execute(case, Arc::new(harness), &test);
        report(&test, case, &outcome);
    }
}

/// The same for a harness of a lock library that is no backend.
#[doc(hidden)]
pub fn subject_test<H: Harness>(module: &str, case: &'static str) {
    child::run_as_child::<H>();
    let (test, case) = (test_path(module, case), cases::named(case));
    let Body::Subject(body) = case.body else {
        panic!("{} is for backends alone: it has no subject", case.name);
    };
    if let Some(harness) = start::<H>(&test, case) {
        let outcome = of_subject(body, Arc::new(harness), &test);
        report(&test, case, &outcome);
    }
}

fn of_subject(body: SubjectBody, harness: Arc<dyn Harness>, test: &str) -> Outcome {
    let test = test.to_owned();
    on_harness(harness, move |harness| async move {
        let cx = Cx::new(harness, namespace(), test);
        judged(&cx, body(&cx).await).await
    })
}

/// The same where the lock of a raw case is a semaphore of one permit.
///
/// # Panics
/// When the case fails.
#[doc(hidden)]
pub fn one_permit_test<H: BackendHarness>(module: &str, case: &'static str) {
    let (test, case) = (test_path(module, case), cases::named(case));
    let Body::Raw(body) = case.body else {
        unreachable!("the macro chose it as a case of the raw layer");
    };
    if let Some(harness) = start::<H>(&test, case) {
        let outcome = one_permit(case, body, Arc::new(harness), &test);
        report(&test, case, &outcome);
    }
}

fn one_permit(case: &'static Case, body: RawBody, harness: Arc<dyn BackendHarness>, test: &str) -> Outcome {
    if OF_EXCLUSIVE_HOLDS.contains(&case.topic) {
        return after_drop(harness, DROP_LIMIT, Outcome::Skipped(Skip::ExclusiveAlone));
    }
    let test = test.to_owned();
    on_harness(harness, move |harness| async move {
        let cx = RawCx::new(harness, namespace(), test);
        Capability::Permits.or_skip(cx.backend().await.capabilities())?;
        let cx = cx.alone_by(permits(1, 1)?);
        judged(&cx, body(&cx).await).await
    })
}

/// Runs a case against this server, which must be fresh where the case wants one of its own.
///
/// `test` is the path of a test that [`conformance!`](crate::conformance) has made: a case with other processes starts this program with it. If the
/// [`address`](crate::Harness::address) is `None`, no case does.
pub fn execute(case: &'static Case, harness: Arc<dyn BackendHarness>, test: &str) -> Outcome {
    if child::is_child() {
        return Outcome::Panicked(
            "this process is a client of a case: name a test that `conformance!` has made".to_owned(),
        );
    }
    let test = test.to_owned();
    on_harness(harness, move |harness| async move {
        let cx = RawCx::new(harness, namespace(), test);
        let verdict = match case.body {
            Body::Raw(body) | Body::Modes(body) => body(&cx).await,
            Body::Subject(body) => body(&cx).await,
        };
        judged(&cx, verdict).await
    })
}

/// Takes SAFETY from what was concluded from a ttl alone where a session renews: there a machine that stands still may end a hold
/// long before its ttl.
async fn judged(cx: &Cx, verdict: Verdict) -> Verdict {
    match verdict {
        Err(Stop::Failed(failure)) if failure.by_ttl => {
            let safety = !cx.observer().await.capabilities().session_renewal;
            Err(Stop::Failed(Failure { safety, ..failure }))
        }
        verdict => verdict,
    }
}

/// Runs the case with a clone of the harness, and drops the last one after it. A harness may own a runtime, which panics if it is dropped
/// within the case's.
fn on_harness<H: Harness + ?Sized, F: Future<Output = Verdict>>(
    harness: Arc<H>,
    case: impl FnOnce(Arc<H>) -> F + Send + 'static,
) -> Outcome {
    let of_case = harness.clone();
    let outcome = guarded(harness.timing(), move || case(of_case));
    after_drop(harness, DROP_LIMIT, outcome)
}

/// Drops the harness on a thread of its own. If that hangs or panics, a case fails that had not failed.
fn after_drop<H: Send + 'static>(harness: H, limit: Duration, outcome: Outcome) -> Outcome {
    let (done, dropped) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        drop(harness);
        // Nobody listens any more once the drop counts as hung.
        let _ = done.send(());
    });
    let failed = match dropped.recv_timeout(limit) {
        Ok(()) => None,
        Err(mpsc::RecvTimeoutError::Timeout) => Some(Outcome::Hung),
        Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().err().map(|panic| {
            let text = text_of(&*panic);
            Outcome::Panicked(format!("{text}, while the harness was dropped"))
        }),
    };
    match (outcome, failed) {
        (Outcome::Passed | Outcome::Skipped(_), Some(failed)) => failed,
        (outcome, _) => outcome,
    }
}

fn guarded<F: Future<Output = Verdict>>(timing: Timing, case: impl FnOnce() -> F + Send + 'static) -> Outcome {
    let limits = Limits::of(timing);
    let (done, outcome) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Nobody listens any more once the case counts as hung.
        let _ = done.send(on_runtime(limits, case));
    });
    match outcome.recv_timeout(limits.wall) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => Outcome::Hung,
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let panic = thread.join().err();
            panicked(panic.as_deref().unwrap_or(&()))
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Outcome {
    Outcome::Panicked(text_of(panic).to_owned())
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message")
}

fn on_runtime<F: Future<Output = Verdict>>(limits: Limits, case: impl FnOnce() -> F) -> Outcome {
    let mut builder = if limits.is_paused {
        let mut builder = Builder::new_current_thread();
        builder.start_paused(true);
        builder
    } else {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2);
        builder
    };
    let sending = SendingDelay::new(limits.is_paused);
    let of_runtime = sending.clone();
    builder.on_thread_start(move || of_runtime.begin_thread());
    sending.begin_thread();
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Outcome::Panicked(format!("no runtime: {error}")),
    };
    let verdict = runtime.block_on(async { tokio::time::timeout(limits.runtime, case()).await });
    runtime.shutdown_background();
    match verdict {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Stop::Failed(failure))) => Outcome::Failed(failure),
        Ok(Err(Stop::Skipped(skip))) => Outcome::Skipped(skip),
        Err(_) => Outcome::Hung,
    }
}

fn start<H: Harness>(test: &str, case: &Case) -> Option<H> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime to start a server on: {error}"));
    match catch_unwind(AssertUnwindSafe(|| runtime.block_on(H::start(case.server)))) {
        Ok(Ok(harness)) => Some(harness),
        Ok(Err(NoServer::Offline(reason))) => {
            say_skipped(test, &reason);
            None
        }
        Ok(Err(NoServer::Missing(reason))) => {
            summary::note(test, case, &Outcome::no_server(&reason));
            panic!("{reason}");
        }
        Err(panic) => {
            summary::note(test, case, &panicked(&*panic));
            resume_unwind(panic);
        }
    }
}

fn report(test: &str, case: &Case, outcome: &Outcome) {
    summary::note(test, case, outcome);
    match outcome {
        Outcome::Passed => {}
        Outcome::Skipped(skip) => say_skipped(test, &skip.to_string()),
        failed => panic!("{test}: {failed}\nThe rule: {}", case.rule()),
    }
}

/// Past the test runner's capture, so that a skip is always seen.
fn say_skipped(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {}\n", reason.replace('\n', " "));
    // A closed stderr is not worth a failure.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The name of the case for the test runner: the path without the crate.
fn test_path(module: &str, case: &str) -> String {
    let module = module.split_once("::").map_or(module, |(_, module)| module);
    format!("{module}::{case}")
}

/// One that no other case has, on a server that many runs may share.
fn namespace() -> String {
    static CASES: AtomicU32 = AtomicU32::new(0);
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    format!("c{:x}_{:x}_{case}", since.as_millis(), std::process::id())
}

#[cfg(test)]
mod dropping;
#[cfg(test)]
mod missing_server;
#[cfg(test)]
mod owned_runtime;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ReferenceHarness;

    #[test]
    fn each_way_to_end_is_told_apart() {
        let passed = guarded(Timing::paused(), || async { Ok(()) });
        assert!(matches!(passed, Outcome::Passed), "{passed}");
        let failed = guarded(Timing::paused(), || async { Err(Stop::assertion("broken")) });
        assert!(
            matches!(&failed, Outcome::Failed(failure) if failure.asserted),
            "{failed}"
        );
        let skipped = guarded(Timing::paused(), || async { Err(Stop::Skipped(Skip::OneProcess)) });
        assert!(matches!(skipped, Outcome::Skipped(Skip::OneProcess)), "{skipped}");
        let panicked = guarded(Timing::paused(), || async { resume_unwind(Box::new("as planned")) });
        assert!(
            matches!(&panicked, Outcome::Panicked(text) if text == "as planned"),
            "{panicked}"
        );
        let hung = guarded(Timing::paused(), || async { std::future::pending().await });
        assert!(matches!(hung, Outcome::Hung), "{hung}");
    }

    #[test]
    fn the_limits_leave_room_for_what_a_case_may_wait() {
        let secs = Duration::from_secs;
        for (patience, ttl, tick) in [(20, 3, 0), (70, 3, 1), (1000, 10, 0), (20, 60, 0), (1, 600, 60)] {
            let (patience, ttl, tick) = (secs(patience), secs(ttl), secs(tick));
            // Of the case with most TTLs, and of the one with most ticks.
            let ends = (36 * ttl + 6 * tick).max(18 * ttl + 9 * tick);
            for timing in [Timing::default(), Timing::paused()] {
                let limits = Limits::of(timing.with_patience(patience).with_ttl(ttl).with_tick(tick));
                for limit in [limits.runtime, limits.wall] {
                    assert!(limit > 9 * patience + ends, "{limits:?}");
                    assert!(limit >= secs(300) + ends, "{limits:?}");
                }
                assert!(timing.paused || limits.wall > limits.runtime, "{limits:?}");
            }
        }
    }

    #[test]
    fn the_reference_passes_as_a_semaphore_of_one() {
        for case in cases::all() {
            let Body::Raw(body) = case.body else { continue };
            let outcome = one_permit(case, body, Arc::new(ReferenceHarness::default()), case.name);
            let is_fine = matches!(outcome, Outcome::Passed | Outcome::Skipped(_));
            assert!(is_fine, "{}: {outcome}", case.name);
        }
    }

    #[test]
    fn a_test_is_called_by_its_path_without_the_crate() {
        assert_eq!(test_path("suite::redis", "a_case"), "redis::a_case");
        assert_ne!(namespace(), namespace());
    }
}
