//! What holder ids may have left at the server: a place in a queue, and an acquire that is still under way on a
//! connection that has been replaced.
//!
//! What was sent over one connection is executed in that order: whatever ends a hold over the same connection comes
//! after it. Over another one it may come before, and then leaves a tombstone, by which the late acquire is refused.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::HolderId;
use tokio::time::Instant;

/// Of acquires that came to no grant.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<Recent>);

/// Those of the last day or two. They are forgotten a day's worth at a time, so that one more costs the same however many
/// there are. Core has long stopped to ask for the end of such a hold.
#[derive(Debug, Default)]
struct Recent {
    today: HashMap<HolderId, Doubt>,
    yesterday: HashMap<HolderId, Doubt>,
    /// When today began. `None`: nothing was ever recorded.
    since: Option<Instant>,
}

#[derive(Debug, Default)]
struct Doubt {
    /// The connections that an acquire without an answer went over.
    generations: Vec<u64>,
}

/// An acquire that is about to be sent: in doubt until [`answered`](Self::answered).
#[derive(Debug)]
#[must_use]
pub(crate) struct Unanswered<'a> {
    doubts: &'a Doubts,
    holder: HolderId,
    generation: u64,
}

impl Doubts {
    /// To be called before an acquire is sent.
    pub(crate) fn sending(&self, holder: HolderId, generation: u64) -> Unanswered<'_> {
        Unanswered {
            doubts: self,
            holder,
            generation,
        }
    }

    /// Whether what is sent over this connection may overtake an acquire of this holder id.
    pub(crate) fn may_overtake(&self, holder: HolderId, generation: u64) -> bool {
        let recent = self.lock();
        let doubt = recent.get(holder);
        doubt.is_some_and(|doubt| doubt.generations.iter().any(|sent| *sent != generation))
    }

    /// Whether this holder id may have left anything.
    pub(crate) fn knows(&self, holder: HolderId) -> bool {
        self.lock().get(holder).is_some()
    }

    /// This holder id has a place.
    pub(crate) fn note_place(&self, holder: HolderId) {
        self.record(holder, None);
    }

    /// The server has ended whatever this holder id had, for good.
    pub(crate) fn settle(&self, holder: HolderId) {
        self.lock().remove(holder);
    }

    fn record(&self, holder: HolderId, generation: Option<u64>) {
        let mut recent = self.lock();
        let doubt = recent.entry(holder, Instant::now());
        if let Some(generation) = generation
            && !doubt.generations.contains(&generation)
        {
            doubt.generations.push(generation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent {
    fn get(&self, holder: HolderId) -> Option<&Doubt> {
        self.today.get(&holder).or_else(|| self.yesterday.get(&holder))
    }

    fn entry(&mut self, holder: HolderId, now: Instant) -> &mut Doubt {
        self.turn_the_page(now);
        let known = self.yesterday.remove(&holder).unwrap_or_default();
        self.today.entry(holder).or_insert(known)
    }

    fn remove(&mut self, holder: HolderId) {
        if self.today.remove(&holder).is_none() {
            self.yesterday.remove(&holder);
        }
    }

    fn turn_the_page(&mut self, now: Instant) {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let age = now - *self.since.get_or_insert(now);
        if age >= DAY {
            self.yesterday = std::mem::take(&mut self.today);
            self.since = Some(now);
        }
        if age >= 2 * DAY {
            self.yesterday.clear();
        }
    }
}

impl Unanswered<'_> {
    /// The server has answered it: it is not under way any more.
    pub(crate) fn answered(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.doubts.record(self.holder, Some(self.generation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_another_connection_can_overtake() {
        let (doubts, holder) = (Doubts::default(), HolderId::random());
        doubts.sending(holder, 1).answered();
        assert!(!doubts.may_overtake(holder, 2) && !doubts.knows(holder));
        doubts.note_place(holder);
        assert!(!doubts.may_overtake(holder, 2) && doubts.knows(holder));
        drop(doubts.sending(holder, 1));
        assert!(!doubts.may_overtake(holder, 1));
        assert!(doubts.may_overtake(holder, 2));
        assert!(!doubts.may_overtake(HolderId::random(), 2));
        drop(doubts.sending(holder, 2));
        assert!(doubts.may_overtake(holder, 1) && doubts.may_overtake(holder, 2));
        doubts.settle(holder);
        assert!(!doubts.may_overtake(holder, 3) && !doubts.knows(holder));
    }

    #[tokio::test(start_paused = true)]
    async fn doubts_are_forgotten_after_a_day_or_two() {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        for (days, known) in [(0, true), (1, true), (2, false)] {
            let (doubts, holder) = (Doubts::default(), HolderId::random());
            drop(doubts.sending(holder, 1));
            tokio::time::advance(days * DAY).await;
            drop(doubts.sending(HolderId::random(), 2));
            assert_eq!(doubts.knows(holder), known, "after {days} days");
        }
        let (doubts, holder) = (Doubts::default(), HolderId::random());
        for number in 0..3 {
            drop(doubts.sending(holder, number));
            tokio::time::advance(DAY).await;
        }
        assert!(doubts.may_overtake(holder, 2), "it was recorded again and again");
        doubts.settle(holder);
        assert!(!doubts.knows(holder));
    }

    /// Of acquires that were cancelled while the server was away. Looking through all of them for each one more took
    /// minutes.
    #[test]
    fn many_doubts_cost_no_more_each_than_few() {
        let (doubts, start) = (Doubts::default(), std::time::Instant::now());
        for _ in 0..100_000 {
            doubts.note_place(HolderId::random());
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}
