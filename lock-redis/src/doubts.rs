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
pub(crate) struct Doubts(Mutex<HashMap<HolderId, Doubt>>);

#[derive(Debug)]
struct Doubt {
    /// The connections that an acquire without an answer went over.
    generations: Vec<u64>,
    since: Instant,
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
        let doubts = self.lock();
        let doubt = doubts.get(&holder);
        doubt.is_some_and(|doubt| doubt.generations.iter().any(|sent| *sent != generation))
    }

    /// Whether this holder id may have left anything.
    pub(crate) fn knows(&self, holder: HolderId) -> bool {
        self.lock().contains_key(&holder)
    }

    /// This holder id has a place.
    pub(crate) fn note_place(&self, holder: HolderId) {
        self.record(holder, None);
    }

    /// The server has ended whatever this holder id had, for good.
    pub(crate) fn settle(&self, holder: HolderId) {
        self.lock().remove(&holder);
    }

    fn record(&self, holder: HolderId, generation: Option<u64>) {
        /// Core has long stopped to ask for the end of such a hold.
        const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);
        let mut doubts = self.lock();
        doubts.retain(|_, doubt| doubt.since.elapsed() < FORGOTTEN);
        let doubt = doubts.entry(holder).or_insert_with(|| Doubt {
            generations: Vec::new(),
            since: Instant::now(),
        });
        if let Some(generation) = generation
            && !doubt.generations.contains(&generation)
        {
            doubt.generations.push(generation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HolderId, Doubt>> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn doubts_do_not_pile_up() {
        let doubts = Doubts::default();
        for _ in 0..100 {
            drop(doubts.sending(HolderId::random(), 1));
        }
        tokio::time::advance(Duration::from_secs(24 * 3600)).await;
        drop(doubts.sending(HolderId::random(), 2));
        assert_eq!(doubts.lock().len(), 1);
    }
}
