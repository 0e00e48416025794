//! The limit on a request's wait for its hash slot.

use std::time::Duration;

use lock_kit::backoff::pauses;
use tokio::time::{Instant, sleep, sleep_until};

use super::LOOK_AGAIN;

/// The pauses of one request, until its time is over.
pub(super) struct Patience {
    deadline: Instant,
    pauses: Box<dyn Iterator<Item = Duration> + Send>,
    /// True if the next pause is left out, since a node has redirected the request for the first time.
    knows_better: bool,
    moves: u32,
    /// The moment when it last asked who has the slot.
    looked: Option<Instant>,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            deadline: Instant::now() + limit,
            pauses: Box::new(pauses(FIRST, LONGEST)),
            knows_better: false,
            moves: 0,
            looked: None,
        }
    }

    /// A node has said where the slot is. Two may send us back and forth until both have heard of a move.
    pub(super) fn note_moved(&mut self) {
        self.moves += 1;
        self.knows_better = self.moves == 1;
    }

    /// Returns whether it is to ask now who has the slot: the first time, and then now and then.
    pub(super) fn looks_elsewhere(&mut self) -> bool {
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN);
        if is_due {
            self.looked = Some(Instant::now());
        }
        is_due
    }

    /// Waits for a while. Returns false if the time is over.
    pub(super) async fn pause(&mut self) -> bool {
        if std::mem::take(&mut self.knows_better) {
            return true;
        }
        sleep(self.pauses.next().unwrap_or(LONGEST)).await;
        Instant::now() < self.deadline
    }

    /// Returns when the time is over.
    pub(super) fn over(&self) -> impl Future<Output = ()> + use<> {
        sleep_until(self.deadline)
    }
}

const FIRST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_move_is_followed_at_once_and_all_else_after_a_pause_until_the_time_is_over() {
        let (start, limit) = (Instant::now(), Duration::from_secs(5));
        let mut patience = Patience::new(limit);
        patience.note_moved();
        assert!(patience.pause().await);
        assert_eq!(start.elapsed(), Duration::ZERO);
        patience.note_moved();
        assert!(patience.pause().await);
        assert!(start.elapsed() >= Duration::from_millis(2));
        let mut pauses = 0;
        while patience.pause().await {
            pauses += 1;
        }
        assert!((49..150).contains(&pauses), "{pauses}");
        assert!(start.elapsed() >= limit && start.elapsed() <= limit + 2 * LONGEST);
        patience.over().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_nobody_serves_is_asked_for_at_once_and_then_now_and_then() {
        let mut patience = Patience::new(Duration::from_secs(5));
        let mut looks = 0;
        while patience.pause().await {
            looks += u32::from(patience.looks_elsewhere());
            assert!(looks > 0);
        }
        assert!((10..=25).contains(&looks), "{looks}");
    }
}
