//! The end of a runtime's turn: whatever is ready now has been polled by then.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::poll_fn;
use futures_util::task::AtomicWaker;
use tokio::task::yield_now;

/// Waits until the runtime has polled its other tasks that are ready, however often this is polled meanwhile:
/// [`yield_now`] is over with its second poll.
pub(super) async fn end_of_turn() {
    let turn = Arc::new(Turn::default());
    {
        let waker = Waker::from(turn.clone());
        // Outside a runtime it wakes at once.
        if pin!(yield_now()).poll(&mut Context::from_waker(&waker)).is_ready() {
            return;
        }
    }
    poll_fn(|context| {
        turn.waker.register(context.waker());
        match turn.is_over.load(Ordering::SeqCst) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

#[derive(Default)]
struct Turn {
    is_over: AtomicBool,
    waker: AtomicWaker,
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn polls_do_not_end_it_but_the_runtime_does() {
        let mut turn = Box::pin(end_of_turn());
        for _ in 0..3 {
            assert!(turn.as_mut().now_or_never().is_none());
        }
        turn.await;
    }
}
