//! The names of all spans, events and metrics. They are public: see the docs of the crate.
//!
//! The subscriber and the recorder are the application's. If one panics, core goes on: no renewal and no release may depend on it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tracing::Span;

pub(crate) use self::timers::{AcquireTimer, HoldTimer};
use crate::error::Error;
use crate::lost::LostCause;
use crate::name::LockName;
use crate::token::FencingToken;

mod timers;

/// Tells the recorder of this process what each metric counts.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    {
        use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
        describe_histogram!("polylock_wait_seconds", Unit::Seconds, "How long an acquire took");
        describe_histogram!("polylock_hold_seconds", Unit::Seconds, "How long a lock was held");
        describe_gauge!("polylock_acquires", "Acquires under way: those that wait, mostly");
        describe_gauge!("polylock_holds", "Locks held by this process");
        describe_gauge!("polylock_leader", "Elections in which this process leads");
        describe_counter!("polylock_contended_total", "Acquires that found the lock taken");
        describe_counter!("polylock_renewals_total", "Renewals");
        describe_counter!("polylock_suspicions_total", "Holds that became suspect");
        describe_counter!("polylock_losses_total", "Holds that were lost");
        describe_counter!("polylock_passes_total", "Holds passed on within this process");
        describe_counter!(
            "polylock_undos_dropped_total",
            "Cancelled acquires left to their TTL, as too many wait"
        );
        describe_counter!("polylock_requests_total", "Requests to the lock server");
    }
}

/// A request to the backend.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BackendRequest {
    Acquire,
    Renew,
    Release,
    Downgrade,
    Abandon,
    Status,
    List,
    Revoke,
}

/// The outcome of a renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RenewalOutcome {
    Renewed,
    Lost,
    Failed,
    Unanswered,
}

pub(crate) fn acquire_span(name: &LockName, label: Option<&str>) -> Span {
    new_span(|| tracing::debug_span!(target: "polylock", "acquire", lock = name.as_str(), label))
}

pub(crate) fn release_span(name: &LockName, token: FencingToken) -> Span {
    new_span(|| tracing::debug_span!(target: "polylock", "release", lock = name.as_str(), token = token.as_u64()))
}

pub(crate) fn renew_span(name: &LockName, token: FencingToken) -> Span {
    new_span(|| tracing::debug_span!(target: "polylock", "renew", lock = name.as_str(), token = token.as_u64()))
}

pub(crate) fn abandon_span(name: &LockName) -> Span {
    new_span(|| tracing::debug_span!(target: "polylock", "abandon", lock = name.as_str()))
}

/// Calls the application's subscriber or recorder. The panic hook has reported it if it panics.
fn shielded(tell: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(tell)));
}

fn new_span(make: impl FnOnce() -> Span) -> Span {
    catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| Span::none())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A request goes out.
pub(crate) fn requested(request: BackendRequest) {
    shielded(|| {
        #[cfg(feature = "metrics")]
        metrics::counter!("polylock_requests_total", "request" => match request {
            BackendRequest::Acquire => "acquire",
            BackendRequest::Renew => "renew",
            BackendRequest::Release => "release",
            BackendRequest::Downgrade => "downgrade",
            BackendRequest::Abandon => "abandon",
            BackendRequest::Status => "status",
            BackendRequest::List => "list",
            BackendRequest::Revoke => "revoke",
        })
        .increment(1);
    });
    let _ = request;
}

/// An acquire found the name taken, and waits.
pub(crate) fn contended(name: &LockName, holder: Option<&str>) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), holder, "lock is taken");
        #[cfg(feature = "metrics")]
        metrics::counter!("polylock_contended_total", "queue" => "server").increment(1);
    });
}

/// An acquire found another one of this process before it, and waits behind it or is refused.
pub(crate) fn contended_in_process() {
    shielded(|| {
        #[cfg(feature = "metrics")]
        metrics::counter!("polylock_contended_total", "queue" => "process").increment(1);
    });
}

/// Two parts of this process, most likely by mistake.
pub(crate) fn limits_differ(name: &LockName, limit: u32, other: u32) {
    shielded(|| {
        tracing::warn!(target: "polylock", lock = name.as_str(), limit, other, "semaphore limits differ");
    });
}

pub(crate) fn acquire_failed(name: &LockName, error: &Error) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), %error, "acquire failed; trying again");
    });
}

pub(crate) fn not_undone(name: &LockName, error: &Error) {
    shielded(|| {
        tracing::warn!(target: "polylock", lock = name.as_str(), %error, "an acquire was not undone; what it left ends by itself");
    });
}

/// Too many undos wait already. There may be thousands, so the log has the first one.
pub(crate) fn undo_dropped(name: &LockName, is_first: bool) {
    shielded(|| {
        if is_first {
            tracing::warn!(target: "polylock", lock = name.as_str(), "too many cancelled acquires wait to be undone; what others left ends by itself");
        }
        #[cfg(feature = "metrics")]
        metrics::counter!("polylock_undos_dropped_total").increment(1);
    });
}

pub(crate) fn renewed(outcome: RenewalOutcome) {
    shielded(|| {
        #[cfg(feature = "metrics")]
        metrics::counter!("polylock_renewals_total", "outcome" => match outcome {
            RenewalOutcome::Renewed => "renewed",
            RenewalOutcome::Lost => "lost",
            RenewalOutcome::Failed => "failed",
            RenewalOutcome::Unanswered => "unanswered",
        })
        .increment(1);
    });
    let _ = outcome;
}

pub(crate) fn renewal_failed(name: &LockName, error: &Error) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), %error, "renewal failed");
    });
    renewed(RenewalOutcome::Failed);
}

pub(crate) fn renewal_unanswered(name: &LockName) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), "renewal unanswered");
    });
    renewed(RenewalOutcome::Unanswered);
}

pub(crate) fn renewal_panicked(name: &LockName) {
    shielded(|| {
        tracing::error!(target: "polylock", lock = name.as_str(), "the backend panicked in a renewal");
    });
}

pub(crate) fn suspected(
    name: &LockName,
    error: Option<&Error>,
    confirmed: Option<Duration>,
    lease_left: Option<Duration>,
) {
    shielded(|| {
        tracing::info!(target: "polylock", lock = name.as_str(), error = error.map(tracing::field::display),
            confirmed_ms_ago = confirmed.map(millis), lease_ms_left = lease_left.map(millis), "hold suspect");
        #[cfg(feature = "metrics")]
        metrics::counter!("polylock_suspicions_total").increment(1);
    });
}

pub(crate) fn passed(name: &LockName, token: FencingToken) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), token = token.as_u64(), "lock passed on");
        #[cfg(feature = "metrics")]
        metrics::counter!("polylock_passes_total").increment(1);
    });
}

pub(crate) fn release_unanswered(name: &LockName, error: &Error) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), %error, "release unanswered; trying again");
    });
}

pub(crate) fn upgraded(name: &LockName, token: FencingToken) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), token = token.as_u64(), "lock upgraded");
    });
}

pub(crate) fn downgraded(name: &LockName, token: FencingToken) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), token = token.as_u64(), "lock downgraded");
    });
}

pub(crate) fn released(name: &LockName, token: FencingToken) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), token = token.as_u64(), "lock released");
    });
}

/// Somebody of this process ended the hold of somebody else.
pub(crate) fn revoked(name: &LockName, token: FencingToken, at_once: bool) {
    shielded(|| {
        tracing::warn!(target: "polylock", lock = name.as_str(), token = token.as_u64(), at_once, "hold revoked");
    });
}

/// One that nobody waits for any more.
pub(crate) fn release_failed(name: &LockName, error: &Error) {
    shielded(|| {
        tracing::debug!(target: "polylock", lock = name.as_str(), %error, "a release in the background failed; the hold ends by itself");
    });
}

/// In a job of the keeper's.
pub(crate) fn job_panicked() {
    shielded(|| {
        tracing::error!(target: "polylock", "the backend panicked in the background");
    });
}

/// One that a user gave.
#[cfg(all(feature = "blocking", not(shuttle)))]
pub(crate) fn callback_panicked(name: &LockName) {
    shielded(|| {
        tracing::error!(target: "polylock", lock = name.as_str(), "a callback of a lost lock panicked");
    });
}

/// A candidate of this process leads.
pub(crate) fn elected(name: &LockName, term: FencingToken, is_measured: bool) {
    shielded(|| {
        tracing::info!(target: "polylock", lock = name.as_str(), term = term.as_u64(), "leader elected");
    });
    leads(name, is_measured, 1.0);
}

/// The operating system starts no thread for it.
#[cfg(all(feature = "blocking", not(shuttle)))]
pub(crate) fn callback_not_started(name: &LockName) {
    shielded(|| {
        tracing::error!(target: "polylock", lock = name.as_str(), "a callback of a lost lock was not called: no thread can be started");
    });
}

/// It leads no longer: it has resigned, or lost its hold for this reason.
pub(crate) fn term_ended(name: &LockName, term: FencingToken, lost: Option<LostCause>, is_measured: bool) {
    shielded(|| match lost {
        None => tracing::info!(target: "polylock", lock = name.as_str(), term = term.as_u64(), "leader resigned"),
        Some(cause) => {
            tracing::warn!(target: "polylock", lock = name.as_str(), term = term.as_u64(), %cause, "leadership lost");
        }
    });
    leads(name, is_measured, -1.0);
}

/// Counted, since the next candidate of this process may be elected before the term of the last one is dropped.
fn leads(name: &LockName, is_measured: bool, more: f64) {
    shielded(|| {
        #[cfg(feature = "metrics")]
        if is_measured {
            metrics::gauge!("polylock_leader", "election" => name.as_str().to_owned()).increment(more);
        }
    });
    let _ = (name, is_measured, more);
}
