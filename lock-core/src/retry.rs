//! Repetitions of failed requests.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::error::{Error, Result};
use crate::sync::time::sleep;

/// The longest pause before a failed release or undo is repeated.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Repeats a release or an undo until the server has answered. The pauses grow from 25 ms to a second, and jitter adds up to
/// as much again. Core ends its holds in this way, and a backend over other backends ends theirs.
///
/// # Errors
/// The last error: one that is not [retryable](Error::is_retryable), or one for which `may_repeat` returned false. It is
/// called only for errors that are retryable.
///
/// # Cancel safety
/// As that of the request.
///
/// # Panics
/// Panics outside a Tokio runtime, if the request has to be repeated.
pub async fn until_answered<T, C: Future<Output = Result<T>>>(
    mut request: impl FnMut() -> C,
    mut may_repeat: impl FnMut(&Error) -> bool,
) -> Result<T> {
    let mut pauses = pauses(LONGEST_PAUSE);
    loop {
        match request().await {
            Err(error) if error.is_retryable() && may_repeat(&error) => {}
            result => return result,
        }
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// The pauses before the repetitions of a failed call: from 25 ms to `longest`, doubling. Jitter adds up to as
/// much again.
pub(crate) fn pauses(longest: Duration) -> impl Iterator<Item = Duration> + Send + use<> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(25))
        .with_max_delay(longest)
        .without_max_times();
    // A schedule of shuttle's has to go the same way each time.
    #[cfg(not(shuttle))]
    let pauses = pauses.with_jitter();
    // Most calls need none.
    let mut built = None;
    std::iter::from_fn(move || built.get_or_insert_with(|| pauses.build()).next())
}
