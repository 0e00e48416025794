//! Work that is done while locks are held.

use std::future::poll_fn;
use std::task::Poll;

use crate::lost::Lost;

/// Polls the future while `check` allows it, until `lost` says otherwise.
pub(crate) async fn run_while_held<F: Future>(
    check: impl Fn() -> Result<(), Lost>,
    lost: impl Future<Output = Lost>,
    future: F,
) -> Result<F::Output, Lost> {
    tokio::pin!(lost, future);
    poll_fn(|context| {
        check()?;
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        lost.as_mut().poll(context).map(Err)
    })
    .await
}
