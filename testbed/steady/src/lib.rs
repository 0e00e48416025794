//! Waits and repetitions for tests that a busy machine cannot fail.
//!
//! | a test is tied to the machine's speed by | instead |
//! |---|---|
//! | a limit where only "it happens" matters | [`happens`] for an event, [`eventually`] for a state that nobody announces, [`blocking`] for both without async. Their limit, [`AT_MOST`], ends a hang |
//! | an order that is assumed | the test makes the order: before the second one starts, it waits with [`eventually`] until the server shows the first |
//! | a time or a count that the machine or background work raises | [`stays_below`], which repeats the scenario; [`in_some_run`], if the scenario judges by itself |
//!
//! What must never happen, or not before a time, is a plain assertion within the scenario: each run checks it. Two holders
//! at a time, and a token that went back, are an [`assert_safe!`]. A lease whose expiry would hide a defect lives longer than
//! [`AT_MOST`]: [`LONG_TTL`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::fmt::Debug;
use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

mod answer;
pub mod blocking;

pub use answer::Answer;

/// How long a test waits for what must happen: less than the TTL of the holds in most tests, whose expiry would hide a defect.
pub const AT_MOST: Duration = Duration::from_secs(50);
/// The TTL of a hold whose expiry must not stand for a release: longer than [`AT_MOST`].
pub const LONG_TTL: Duration = Duration::from_secs(600);
/// The first word of a failure that no slow machine explains. `cargo xtask test` never repeats a test that printed it.
pub const SAFETY: &str = "SAFETY: ";
/// The most runs until a value stays below its bound. With more, a race that hits half of the runs would pass almost always.
const MEASUREMENTS: usize = 3;
/// The most runs until a scenario succeeds that means nothing if the machine stands still.
const RUNS: usize = 6;
/// The first pause between two looks. Most things happen soon.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest one.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// `assert!` with a message, for what no slow machine explains, such as two holders at a time or a token that went back: the message
/// begins with [`SAFETY`], so that `cargo xtask test` does not repeat the test, which may pass alone.
#[macro_export]
macro_rules! assert_safe {
    ($is_safe:expr, $($message:tt)+) => {
        ::std::assert!($is_safe, "{}{}", $crate::SAFETY, ::std::format_args!($($message)+))
    };
}

/// What this future yields, however long a busy machine takes for it.
///
/// # Panics
/// If it takes longer than [`AT_MOST`], with `what` did not happen.
#[track_caller]
pub fn happens<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let at = Location::caller();
    async move {
        match timeout(AT_MOST, future).await {
            Ok(done) => done,
            Err(_) => panic!("did not happen within {AT_MOST:?}: {what} (at {at})"),
        }
    }
}

/// Asks again and again until it is so: `true`, `Some`, or `Ok`.
///
/// # Panics
/// If it takes longer than [`AT_MOST`], with `what` is not so, and the last answer.
#[track_caller]
pub fn eventually<A: Answer>(what: &str, mut ask: impl AsyncFnMut() -> A) -> impl Future<Output = A::Value> {
    let at = Location::caller();
    async move {
        let (end, mut last) = (Instant::now() + AT_MOST, "no answer".to_owned());
        let mut pause = PAUSE;
        while let Ok(answer) = timeout_at(end, ask()).await {
            match answer.into_value() {
                Ok(value) => return value,
                Err(other) => last = other,
            }
            if Instant::now() >= end {
                break;
            }
            sleep(pause).await;
            pause = longer(pause);
        }
        panic!("not so within {AT_MOST:?}: {what} (at {at}); at last: {last}");
    }
}

/// The pause after this one: many tests that look are a load by themselves.
fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(LONGEST_PAUSE)
}

/// Repeats a scenario until its time or its count stays below the bound, three times at most. A busy machine and background work
/// can only raise it. A defect that is no race raises it in each run; a race may pass.
///
/// # Panics
/// If no run stays below, with `mistake` and the values of all runs.
#[track_caller]
pub fn stays_below<T: PartialOrd + Debug>(
    bound: T,
    mistake: &str,
    mut scenario: impl AsyncFnMut() -> T,
) -> impl Future<Output = ()> {
    let at = Location::caller();
    async move {
        let mut values = Vec::new();
        while values.len() < MEASUREMENTS {
            let value = scenario().await;
            if value < bound {
                return;
            }
            values.push(value);
        }
        panic!("{mistake}: {values:?}, and never less than {bound:?} (at {at})");
    }
}

/// Repeats a scenario until it succeeds: `true`, `Some`, or `Ok`, six times at most. For one that means nothing if the machine stands
/// still for a moment of it. A defect that is no race makes each run fail; a race passes almost always.
///
/// # Panics
/// If no run succeeds, with `mistake` and why each failed.
#[track_caller]
pub fn in_some_run<A: Answer>(mistake: &str, mut scenario: impl AsyncFnMut() -> A) -> impl Future<Output = A::Value> {
    let at = Location::caller();
    async move {
        let mut reasons = Vec::new();
        while reasons.len() < RUNS {
            match scenario().await.into_value() {
                Ok(value) => return value,
                Err(reason) => reasons.push(reason),
            }
        }
        panic!("{mistake}, {RUNS} times in a row (at {at}): {reasons:?}");
    }
}

#[cfg(test)]
mod tests;
