//! What is alike in the acquires of several backends: reports to a caller that waits, and the end of one that has left.

use std::pin::pin;
use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
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

/// Waits for a connection to `server`, unless the request is given up before. One that was refused before, and so waits for the name,
/// learns from the error why there is none.
///
/// # Errors
/// Those of `connecting`; [`ErrorKind::Unavailable`] if the request is given up. Nothing was sent.
///
/// # Cancel safety
/// When dropped, `connecting` is dropped.
pub async fn unless_given_up<T>(
    request: &AcquireRequest,
    server: &str,
    connecting: impl Future<Output = Result<T>>,
) -> Result<T> {
    let connected = tokio::select! {
        biased;
        connected = connecting => connected,
        () = request.given_up() => Err(given_up(server, "reached")),
    };
    if let Err(error) = &connected
        && request.last_busy().is_some()
    {
        request.note_unreachable(error.clone());
    }
    connected
}

/// Refuses to ask `server` on behalf of a caller that has left.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if the request is given up.
pub fn check_not_given_up(request: &AcquireRequest, server: &str) -> Result<()> {
    match request.is_given_up() {
        true => Err(given_up(server, "asked")),
        false => Ok(()),
    }
}

fn given_up(server: &str, what: &str) -> Error {
    let message = format!("given up before the {server} server was {what}");
    Error::new(ErrorKind::Unavailable, message).not_executed()
}

#[cfg(test)]
mod tests {
    use lock_core::LockName;
    use lock_core::backend::Busy;
    use lock_core::backend::request::{RequestOptions, Terms};
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

    #[tokio::test]
    async fn a_caller_that_has_left_waits_for_no_connection_and_asks_nobody() {
        let terms = Terms::new(Duration::from_secs(60));
        let (request, control) = RequestOptions::new(LockName::new("a").unwrap(), terms).start();
        check_not_given_up(&request, "test").unwrap();
        assert_eq!(unless_given_up(&request, "test", async { Ok(7) }).await.unwrap(), 7);
        request.note_busy(Busy::new());
        control.give_up();
        let refused = check_not_given_up(&request, "test").unwrap_err();
        assert!(refused.is_not_executed() && refused.to_string().contains("test server was asked"));
        let left = unless_given_up(&request, "test", std::future::pending::<Result<()>>()).await;
        let left = left.unwrap_err().to_string();
        assert!(left.contains("test server was reached"), "{left}");
        assert_eq!(request.unreachable().map(|why| why.to_string()), Some(left));
    }
}
