//! Reports to the caller of an acquire while it waits.

use std::pin::pin;
use std::time::Duration;

use lock_core::Error;
use lock_core::backend::AcquireRequest;
use tokio::time::timeout;

/// If a question has no answer for so long, the server counts as silent.
const SILENT_AFTER: Duration = Duration::from_millis(1500);

/// Waits for the answer to a question. If it does not come for 1.5 s, a request that was refused before, and so waits for the name,
/// learns from the error that the server is silent. `silent` makes that of this time.
///
/// # Cancel safety
/// When dropped, `asking` is dropped.
pub async fn note_silence<T>(
    request: &AcquireRequest,
    asking: impl Future<Output = T>,
    silent: impl FnOnce(Duration) -> Error,
) -> T {
    let mut asking = pin!(asking);
    if let Ok(answer) = timeout(SILENT_AFTER, &mut asking).await {
        return answer;
    }
    if request.last_busy().is_some() {
        request.note_unreachable(silent(SILENT_AFTER));
    }
    asking.await
}

#[cfg(test)]
mod tests {
    use lock_core::backend::Busy;
    use lock_core::backend::request::{RequestOptions, Terms};
    use lock_core::{ErrorKind, LockName};
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_waits_learns_that_the_server_is_silent() {
        let silent = |after| Error::new(ErrorKind::Unavailable, format!("silent for {after:?}"));
        for (was_refused, answered_after, is_noted) in [
            (true, SILENT_AFTER - Duration::from_millis(1), false),
            (true, SILENT_AFTER + Duration::from_millis(1), true),
            (false, SILENT_AFTER + Duration::from_millis(1), false),
        ] {
            let terms = Terms::new(Duration::from_secs(60));
            let (request, _control) = RequestOptions::new(LockName::new("a").unwrap(), terms).start();
            if was_refused {
                request.note_busy(Busy::new());
            }
            let asking = async {
                sleep(answered_after).await;
                7
            };
            assert_eq!(note_silence(&request, asking, silent).await, 7);
            let noted = request.unreachable().map(|why| why.to_string());
            assert_eq!(noted.is_some(), is_noted, "{noted:?}");
        }
    }
}
