//! One caller asks the nodes. Those that come meanwhile wait for it, and mostly need not ask then.

use std::sync::Arc;

use lock_core::backend::UNDRIVEN_AFTER;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

/// Held by the one whose turn it is. It is replaced if that one takes too long.
#[derive(Debug, Default)]
pub(super) struct Turn(Mutex<Arc<tokio::sync::Mutex<()>>>);

impl Turn {
    /// Waits until nobody else has the turn, or somebody has had it for too long: a caller's future may be on a runtime that nobody
    /// drives, or the nodes do not answer. Then one of those that wait asks, too, and all others wait for that one.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(super) async fn take(&self) -> OwnedMutexGuard<()> {
        loop {
            let now = self.0.lock().clone();
            if let Ok(turn) = timeout(UNDRIVEN_AFTER, now.clone().lock_owned()).await {
                return turn;
            }
            let mut current = self.0.lock();
            if Arc::ptr_eq(&current, &now) {
                *current = Arc::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::task::{Context, Waker};

    use futures_util::future::{join_all, select_all};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_waits_for_the_one_before() {
        let turn = Turn::default();
        let start = Instant::now();
        let brief = || async {
            let _turn = turn.take().await;
            tokio::time::sleep(UNDRIVEN_AFTER / 5).await;
        };
        join_all((0..4).map(|_| brief())).await;
        assert_eq!(start.elapsed().as_millis(), (4 * UNDRIVEN_AFTER / 5).as_millis());
    }

    /// One that is never driven again stays in the queue: the turn may have passed to it.
    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_goes_on_without_those_that_are_not_driven() {
        let turn = Turn::default();
        let (start, held) = (Instant::now(), turn.take().await);
        let mut idle = Box::pin(turn.take());
        let context = &mut Context::from_waker(Waker::noop());
        assert!(idle.as_mut().poll(context).is_pending());
        drop(held);
        for count in 1..=3 {
            let takers = (0..100).map(|_| Box::pin(turn.take()));
            let (taken, _, others) = select_all(takers).await;
            assert_eq!(start.elapsed().as_millis(), (count * UNDRIVEN_AFTER).as_millis());
            // As one that waits for nodes that do not answer.
            tokio::spawn(async move {
                let _taken = taken;
                pending::<()>().await
            });
            drop(others);
        }
        drop(idle);
    }
}
